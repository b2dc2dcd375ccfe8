package jsrun

import (
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
)

func TestParseMeta(t *testing.T) {
	f := func(reply string, want meta, ok bool) {
		t.Helper()
		got, gotOK := parseMeta(reply)
		if got != want || gotOK != ok {
			t.Errorf("%s: %+v, %v", reply, got, gotOK)
		}
	}
	f("$JS.ACK.AGENT.lineage.2.17.5.1700000000000000000.9", meta{2, 17, 5, 1700000000000000000}, true)
	f("$JS.ACK.hub.acchash.AGENT.lineage.1.17.5.1700000000000000000.9.rand", meta{1, 17, 5, 1700000000000000000}, true)
	f("$JS.ACK.AGENT.lineage.x.17.5.1.9", meta{}, false)
	f("$JS.ACK.AGENT", meta{}, false)
	f("_INBOX.x", meta{}, false)
	f("", meta{}, false)
}

func FuzzParsePubAck(f *testing.F) {
	for _, s := range []string{
		`{"stream":"AGENT", "seq":12}`, `{"stream":"A", "domain":"x", "seq":3,"duplicate": true}`,
		`{"error":{"code":503,"err_code":10077,"description":"maximum bytes exceeded"},"stream":"A","seq":0}`, `{`, `"seq":`, `{"seq":99999999999999999999999}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m := &nats.Msg{Data: b}
		what, res := judge(m)
		if what == fateOK && res.seq == 0 {
			t.Fatalf("%q counts as stored without a sequence", b)
		}
	})
}

func TestJudge(t *testing.T) {
	f := func(body string, want fate, text string) {
		t.Helper()
		what, res := judge(&nats.Msg{Data: []byte(body)})
		if what != want || res.err != text {
			t.Errorf("%s: %d %q", body, what, res.err)
		}
	}
	f(`{"stream":"A","seq":7}`, fateOK, "")
	f(`{"stream":"A", "seq":7,"duplicate": true}`, fateOK, "")
	f(`{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 5"},"stream":"A","seq":0}`, fateConflict, schemas.ErrTextConflict)
	f(`{"error":{"code":400,"err_code":10164,"description":"wrong last sequence"},"stream":"A","seq":0}`, fateConflict, schemas.ErrTextConflict)
	f(`{"error":{"code":503,"err_code":10077,"description":"maximum bytes exceeded"},"stream":"A","seq":0}`, fateFull, schemas.ErrTextFull)
	f(`{"error":{"code":429,"err_code":10167,"description":"too many requests"}}`, fateRetry, "too many requests")
	f(`{"error":{"code":503,"err_code":10008,"description":"no leader"}}`, fateRetry, "no leader")
	f(`{"error":{"code":400,"err_code":10166,"description":"ttl disabled"}}`, fateRefused, "ttl disabled")
	f(`{"error":{"code":400,"err_code":10054,"description":"too large"}}`, fateRefused, "too large")
	f(`nonsense`, fateRetry, "unreadable answer")
	if what, _ := judge(&nats.Msg{Header: nats.Header{"Status": {"503"}}}); what != fateNoStream {
		t.Errorf("nobody listens: %d", what)
	}
}

func TestHeaders(t *testing.T) {
	m := &schemas.Msg{ExpectSet: true, ExpectSeq: 9, Trace: schemas.Trace{Parent: "p", State: "s"}}
	want := nats.Header{"Nats-Msg-Id": {"id"}, "Nats-Expected-Last-Subject-Sequence": {"9"}, "traceparent": {"p"}, "tracestate": {"s"}}
	if d := cmp.Diff(want, headerFor(m, "id")); d != "" {
		t.Error(d)
	}
	if headerFor(&schemas.Msg{}, "") != nil {
		t.Error("a header without need")
	}
	if tr := traceOf(want); tr != m.Trace {
		t.Errorf("%+v", tr)
	}
}

// cutter is a client whose network can be cut without the server noticing, and
// whose answers can be dropped.
type cutter struct {
	t    *testing.T
	nc   *nats.Conn
	js   jetstream.JetStream
	mu   sync.Mutex
	mute bool // what the server says is thrown away
	dead bool
	conn net.Conn
	srv  interface{ InProcessConn() (net.Conn, error) }
}

func newCutter(t *testing.T, b *bus) *cutter {
	t.Helper()
	c := &cutter{t: t, srv: b.srv}
	var err error
	if c.nc, err = nats.Connect("", nats.InProcessServer(c), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if c.js, err = jetstream.New(c.nc); err != nil {
		t.Fatal(err)
	}
	return c
}

// InProcessConn puts a pipe of its own between client and server.
func (c *cutter) InProcessConn() (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return nil, fmt.Errorf("the network is cut")
	}
	server, err := c.srv.InProcessConn()
	if err != nil {
		return nil, err
	}
	ours, theirs := net.Pipe()
	c.conn = theirs
	go c.copy(theirs, server, true)
	go c.copy(server, theirs, false)
	return ours, nil
}

func (c *cutter) copy(to, from net.Conn, down bool) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		c.mu.Lock()
		drop := down && c.mute
		c.mu.Unlock()
		if drop {
			continue
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (c *cutter) off() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dead = true
	_ = c.conn.Close()
}

// renew closes the connection so that the client makes another, hearing again.
func (c *cutter) renew() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mute = false
	_ = c.conn.Close()
}

func (c *cutter) deafen() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mute = true
}

func (c *cutter) close() { c.nc.Close() }

// TestLostAnswers publishes with and without expectations while every answer of
// the server is lost, and renews the connection: each message is stored once and
// the actor hears of success, not of a conflict with itself.
func TestLostAnswers(t *testing.T) {
	bubble(t, func(t *testing.T, b *bus) {
		cut := newCutter(t, b)
		a := &relay{got: map[string]int{}, next: schemas.Never}
		r, err := New(Config{Conn: cut.nc, Actor: a, Name: "svc", Inputs: []streams.Input{{Stream: streams.Done, Policy: streams.NoAck}}})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		ctx, cancel := contextOf(t)
		go func() { ended <- r.Run(ctx) }()
		<-r.Ready()
		cut.deafen()
		a.mu.Lock()
		a.next = 0
		a.mu.Unlock()
		r.posted.call(func() {})
		time.Sleep(350 * time.Millisecond)
		a.mu.Lock()
		a.next = schemas.Never
		n := a.n
		a.mu.Unlock()
		cut.renew()
		time.Sleep(10 * time.Second)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		st, err := b.js.Stream(t.Context(), streams.Result)
		if err != nil {
			t.Fatal(err)
		}
		if got := st.CachedInfo().State.Msgs; got != uint64(n) || n < 2 || len(a.err) != 0 {
			t.Errorf("%d results of %d, refused: %v", got, n, a.err)
		}
		if r.Stats().Retried.Load() == 0 || len(a.got) != n {
			t.Errorf("retried %d, got %v of %d", r.Stats().Retried.Load(), a.got, n)
		}
		cut.close()
	})
}
