package jsrun

import (
	"testing"
	"time"

	"github.com/weir-dev/weir/streams"
)

// TestProvisionRetains: a chosen age is given to streams that exist, with what is in
// them; without a choice a stream keeps its age.
func TestProvisionRetains(t *testing.T) {
	bubble(t, func(t *testing.T, b *bus) {
		age := func() time.Duration {
			st, err := b.js.Stream(t.Context(), streams.Dead)
			if err != nil {
				t.Fatal(err)
			}
			return st.CachedInfo().Config.MaxAge
		}
		chosen := func(d time.Duration) []streams.Stream {
			return streams.Topology(streams.Options{MaxAge: map[string]time.Duration{streams.Dead: d}})
		}
		was := age()
		if _, err := b.js.Publish(t.Context(), "dead.agent.default", []byte("{}")); err != nil {
			t.Fatal(err)
		}
		for _, d := range []time.Duration{30 * 24 * time.Hour, time.Hour, time.Minute} {
			if err := Provision(t.Context(), b.js, chosen(d)); err != nil {
				t.Fatal(err)
			}
			if age() != d || age() == was {
				t.Errorf("the age is %s, %s was chosen", age(), d)
			}
			if err := Provision(t.Context(), b.js, b.topo); err != nil {
				t.Fatalf("without a choice: %v", err)
			}
			if age() != d {
				t.Errorf("without a choice the age became %s, it was %s", age(), d)
			}
		}
		time.Sleep(2 * time.Minute) // virtual
		st, err := b.js.Stream(t.Context(), streams.Dead)
		if err != nil {
			t.Fatal(err)
		}
		if n := st.CachedInfo().State.Msgs; n != 0 {
			t.Errorf("%d messages are older than the stream's age", n)
		}
	})
}
