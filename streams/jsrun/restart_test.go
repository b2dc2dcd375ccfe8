package jsrun

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
)

// host is where a server can be stopped and started again on its store, while
// clients reconnect to whatever runs there.
type host struct {
	t    *testing.T
	dir  string
	topo []streams.Stream
	mu   sync.Mutex
	srv  *server.Server
}

func (h *host) start() {
	h.t.Helper()
	s, err := Embedded(EmbeddedOptions{Dir: h.dir, Topology: h.topo})
	if err != nil {
		h.t.Fatal(err)
	}
	h.mu.Lock()
	h.srv = s
	h.mu.Unlock()
}

func (h *host) stop() {
	h.mu.Lock()
	s := h.srv
	h.srv = nil
	h.mu.Unlock()
	s.Shutdown()
	s.WaitForShutdown()
}

// InProcessConn connects to the server of the moment.
func (h *host) InProcessConn() (net.Conn, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.srv == nil {
		return nil, errors.New("no server")
	}
	return h.srv.InProcessConn()
}

func (h *host) connect() *nats.Conn {
	h.t.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(h), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
	if err != nil {
		h.t.Fatal(err)
	}
	return nc
}

// relay publishes what the operations and ticks ask for and forwards inputs.
type relay struct {
	mu   sync.Mutex
	next schemas.Time
	n    int
	got  map[string]int
	bus  []string
	err  []string
}

func (a *relay) Step(now schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch in.Kind {
	case schemas.KindTick:
		a.next = now + schemas.Time(100*time.Millisecond)
		a.n++
		id := fmt.Sprintf("n%d", a.n)
		out = append(out, schemas.Msg{
			Kind: schemas.KindDone, Subject: schemas.DoneSubject("c0", id), ID: "d-" + id,
			Done: &schemas.Done{Header: schemas.H(), Job: id, Attempt: 1, Outcome: schemas.OutcomeDecoded},
		}, schemas.Msg{
			Kind: schemas.KindResult, Subject: schemas.ResultSubject("t", "s", id), ExpectSet: true, Confirm: true,
			Result: &schemas.Result{Header: schemas.H(), Tenant: "t", Session: "s", Turn: id, Status: schemas.StatusOK},
		})
	case schemas.KindDone:
		a.got["done "+in.Done.Job]++
	case schemas.KindTurn:
		a.got["turn "+in.Turn.Weir.Turn]++
	case schemas.KindBus:
		a.bus = append(a.bus, in.Err)
	case schemas.KindPublished:
		if in.Err != "" {
			a.err = append(a.err, in.Subject+" "+in.Err)
		}
	default:
	}
	return out
}

func (a *relay) Next() schemas.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.next
}

func (a *relay) Snapshot(dst []byte) ([]byte, error) { return dst, nil }
func (a *relay) Restore([]byte) error                { return nil }

// TestServerRestarts stops NATS again and again under a service that publishes
// ten times a second, file and memory streams, with and without expectations.
// Nothing acknowledged or asked for may be missing afterwards.
func TestServerRestarts(t *testing.T) {
	dir := t.TempDir()
	virtual(t, func(t *testing.T) {
		h := &host{t: t, dir: dir, topo: streams.Topology(streams.Options{})}
		h.start()
		outside, nc := h.connect(), h.connect()
		js, err := jetstream.New(outside)
		if err != nil {
			t.Fatal(err)
		}
		if err := Provision(t.Context(), js, h.topo); err != nil {
			t.Fatal(err)
		}
		a := &relay{got: map[string]int{}}
		r, err := New(Config{Conn: nc, Actor: a, Name: "svc", Inputs: []streams.Input{
			{Stream: streams.Done, Policy: streams.NoAck}, agent("lineage"),
		}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		<-r.Ready()

		turns := 0
		for range 4 {
			for range 20 {
				turns++
				id := fmt.Sprintf("u%d", turns)
				if _, err := js.Publish(t.Context(), schemas.AgentSubject("t", "s", schemas.EventTurn),
					fmt.Appendf(nil, `{"weir":{"turn":%q}}`, id), jetstream.WithMsgID(id)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(37 * time.Millisecond)
			}
			h.stop()
			time.Sleep(10 * time.Second)
			h.start()
			time.Sleep(3 * time.Second)
		}
		a.mu.Lock()
		a.next = schemas.Never
		a.mu.Unlock()
		time.Sleep(time.Minute)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		checkRelay(t, a, js, turns, r.Stats())
		nc.Close()
		outside.Close()
		h.stop()
	})
}

func agent(durable string) streams.Input {
	return streams.Input{Stream: streams.Agent, Durable: durable, Policy: streams.AutoAck}
}

func checkRelay(t *testing.T, a *relay, js jetstream.JetStream, turns int, stats *Stats) {
	t.Helper()
	for i := 1; i <= turns; i++ {
		if n := a.got[fmt.Sprintf("turn u%d", i)]; n != 1 {
			t.Errorf("turn %d arrived %d times", i, n)
		}
	}
	st, err := js.Stream(t.Context(), streams.Result)
	if err != nil {
		t.Fatal(err)
	}
	if n := st.CachedInfo().State.Msgs; n != uint64(a.n) || a.n < 300 {
		t.Errorf("%d results of %d are stored", n, a.n)
	}
	missing := 0
	for i := 1; i <= a.n; i++ {
		if a.got[fmt.Sprintf("done n%d", i)] == 0 {
			missing++
		}
	}
	// A memory stream loses what was stored and not yet delivered in the instant
	// of the stop; everything published later must arrive.
	if missing > 4 {
		t.Errorf("%d of %d done messages are missing", missing, a.n)
	}
	if len(a.err) != 0 {
		t.Errorf("publishes failed: %v", a.err)
	}
	if len(a.bus) != 8 || a.bus[0] == "" || a.bus[1] != "" {
		t.Errorf("the actor heard of the bus: %q", a.bus)
	}
	if stats.Recreated.Load() == 0 || stats.Inflight.Load() != 0 {
		t.Errorf("recreated %d, in flight %d", stats.Recreated.Load(), stats.Inflight.Load())
	}
}

// TestConsumerAndStreamDeleted takes the consumer away under a reader, and then
// the stream with everything in it.
func TestConsumerAndStreamDeleted(t *testing.T) {
	bubble(t, func(t *testing.T, b *bus) {
		a := &relay{got: map[string]int{}, next: schemas.Never}
		nc, err := Connect(ConnectOptions{Server: b.srv, Name: "svc"})
		if err != nil {
			t.Fatal(err)
		}
		r, err := New(Config{Conn: nc, Actor: a, Name: "svc", Inputs: []streams.Input{{Stream: streams.Done, Policy: streams.NoAck}, agent("lineage")}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		<-r.Ready()
		done := func(job string) {
			body := fmt.Sprintf(`{"v":1,"job":%q,"attempt":1,"stage":"decode","executor":"e","outcome":"decoded"}`, job)
			if _, err := b.js.Publish(t.Context(), schemas.DoneSubject("c0", job), []byte(body)); err != nil {
				t.Fatal(err)
			}
		}
		done("a")
		time.Sleep(time.Second)
		for _, c := range []string{"svc-0"} {
			if err := b.js.DeleteConsumer(t.Context(), streams.Done, c); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.js.DeleteConsumer(t.Context(), streams.Agent, "lineage"); err != nil {
			t.Fatal(err)
		}
		done("b")
		if _, err := b.js.Publish(t.Context(), "agent.t.s.turn", []byte(`{"weir":{"turn":"u1"}}`)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if err := b.js.DeleteStream(t.Context(), streams.Done); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		// A publish of the service finds nobody and makes the stream again.
		a.mu.Lock()
		a.next = 0
		a.mu.Unlock()
		r.posted.call(func() {})
		time.Sleep(5 * time.Second)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		for _, want := range []string{"done a", "done b", "turn u1", "done n1"} {
			if a.got[want] != 1 {
				t.Errorf("%s arrived %d times", want, a.got[want])
			}
		}
		nc.Close()
	})
}

func contextOf(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithCancel(t.Context())
}

// TestCallAndInject reads and feeds an actor from other goroutines, and does not
// hang when the runner has ended.
func TestCallAndInject(t *testing.T) {
	bubble(t, func(t *testing.T, b *bus) {
		a := &relay{got: map[string]int{}, next: schemas.Never}
		r, err := New(Config{Conn: b.nc, Actor: a, Name: "svc"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := contextOf(t)
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		r.Inject(schemas.Msg{Kind: schemas.KindDone, Done: &schemas.Done{Job: "x"}})
		n := 0
		if err := r.Call(t.Context(), func() { n = a.got["done x"] }); err != nil || n != 1 {
			t.Errorf("%d, %v", n, err)
		}
		late, stop := context.WithCancel(t.Context())
		stop()
		if err := r.Call(late, func() { t.Error("ran though nobody waits") }); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := r.Call(t.Context(), func() {}); err == nil {
			t.Error("called an actor that nobody runs")
		}
	})
}

func TestConfigRefusals(t *testing.T) {
	bubble(t, func(t *testing.T, b *bus) {
		a := &relay{next: schemas.Never}
		f := func(name string, want error, c Config) {
			t.Helper()
			if _, err := New(c); !errors.Is(err, want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		f("no actor", ErrConfig, Config{Conn: b.nc, Name: "x"})
		f("no connection", ErrConfig, Config{Actor: a, Name: "x"})
		f("bad name", ErrConfig, Config{Conn: b.nc, Actor: a, Name: "x y"})
		f("bad input", streams.ErrInput, Config{Conn: b.nc, Actor: a, Name: "x", Inputs: []streams.Input{{Stream: "NO"}}})
	})
}
