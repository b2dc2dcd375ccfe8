package control

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
	"github.com/weir-dev/weir/streams/jsrun"
)

// TestPurge: a full AGENT gets room again, but never at the cost of a message that
// no snapshot holds.
func TestPurge(t *testing.T) {
	const size = 2 << 20
	topo := streams.Topology(streams.Options{MaxBytes: map[string]int64{streams.Agent: size}})
	s, err := jsrun.Embedded(jsrun.EmbeddedOptions{Dir: t.TempDir(), Topology: topo})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if err := jsrun.Provision(t.Context(), js, topo); err != nil {
		t.Fatal(err)
	}
	snaps, err := jsrun.NewSnapshots(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	publish := func(n int) {
		t.Helper()
		for range n {
			if _, err := js.Publish(t.Context(), schemas.AgentSubject("t", "s", schemas.EventTurn), make([]byte, size/20)); err != nil {
				t.Fatal(err)
			}
		}
	}
	save := func(seq uint64) {
		t.Helper()
		if err := snaps.Save(t.Context(), lineageActor, lineageShard, schemas.Time(time.Second), map[string]uint64{streams.Agent: seq}, []byte("state")); err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string, upTo, first uint64) {
		t.Helper()
		got, err := purgeOnce(t.Context(), js, snaps)
		if err != nil || got != upTo {
			t.Errorf("%s: purged up to %d, want %d, %v", when, got, upTo, err)
		}
		st, err := js.Stream(t.Context(), streams.Agent)
		if err != nil {
			t.Fatal(err)
		}
		if f := st.CachedInfo().State.FirstSeq; f != first {
			t.Errorf("%s: AGENT begins at %d, want %d", when, f, first)
		}
	}
	publish(10)
	check("half full", 0, 1)
	publish(7)
	check("above the mark, without a snapshot", 0, 1)
	save(9)
	check("above the mark", 9, 10)
	check("with room again", 0, 10)
	publish(9)
	check("full, and the snapshot holds nothing of it", 0, 10)
	save(26)
	check("all of it in the snapshot", 26, 27)
}
