package jsrun

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
)

// pump publishes a result per millisecond, at most 200 without an answer, and
// reads them back from a done message each.
type pump struct {
	mu     sync.Mutex
	n, ok  int
	refuse []string
	got    map[string]int
	next   schemas.Time
	moved  chan struct{}
}

func (a *pump) Step(now schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch in.Kind {
	case schemas.KindTick:
		a.next = now + schemas.Time(time.Millisecond)
		if a.n-a.ok > 200 {
			return out
		}
		a.n++
		id := fmt.Sprintf("n%d", a.n)
		return append(out, schemas.Msg{
			Kind: schemas.KindResult, Subject: schemas.ResultSubject("t", "s", id), ExpectSet: true, Confirm: true,
			Result: &schemas.Result{Header: schemas.H(), Tenant: "t", Session: "s", Turn: id, Status: schemas.StatusOK},
		})
	case schemas.KindPublished:
		a.ok++
		if in.Err != "" {
			a.refuse = append(a.refuse, in.Subject+" "+in.Err)
		}
	case schemas.KindResult:
		a.got[in.Result.Turn]++
	default:
	}
	select {
	case a.moved <- struct{}{}:
	default:
	}
	return out
}

func (a *pump) Next() schemas.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.next
}
func (a *pump) Snapshot(dst []byte) ([]byte, error) { return dst, nil }
func (a *pump) Restore([]byte) error                { return nil }

// until waits until that many publishes have an answer and so many results were read.
func (a *pump) until(t *testing.T, n, read int) {
	t.Helper()
	limit := time.After(30 * time.Second)
	for {
		a.mu.Lock()
		ok, got := a.ok, len(a.got)
		a.mu.Unlock()
		if ok >= n && got >= read {
			return
		}
		select {
		case <-a.moved:
		case <-limit:
			t.Fatalf("%d of %d publishes have an answer, %d of %d were read", ok, n, got, read)
		}
	}
}

// TestServerKilled kills the server process without warning while a service
// publishes and reads: every publish is stored once and read.
func TestServerKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	dir := t.TempDir()
	srv := serveApart(t, dir, "")
	addr := strings.TrimPrefix(srv.url, "nats://")
	nc, err := Connect(ConnectOptions{URL: srv.url, Name: "svc"})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if err := Provision(t.Context(), js, streams.Topology(streams.Options{})); err != nil {
		t.Fatal(err)
	}
	a := &pump{got: map[string]int{}, moved: make(chan struct{}, 1)}
	r, err := New(Config{Conn: nc, Actor: a, Name: "svc", Inputs: []streams.Input{{Stream: streams.Result, Durable: "reader", Policy: streams.AutoAck}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	for round := 1; round <= 3; round++ {
		a.until(t, 300*round, 0)
		if err := srv.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = srv.cmd.Wait()
		srv = serveApart(t, dir, addr)
	}
	defer func() { srv.stop() }()
	a.until(t, 1200, 0)
	a.mu.Lock()
	a.next = schemas.Never
	n := a.n
	a.mu.Unlock()
	a.until(t, n, n)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	st, err := js.Stream(t.Context(), streams.Result)
	if err != nil {
		t.Fatal(err)
	}
	if got := st.CachedInfo().State.Msgs; got != uint64(n) || len(a.refuse) > 0 {
		t.Errorf("%d results of %d are stored, refused %v", got, n, a.refuse)
	}
	repeated := 0
	for i := 1; i <= n; i++ {
		switch c := a.got[fmt.Sprintf("n%d", i)]; {
		case c == 0:
			t.Errorf("result %d was not read", i)
		case c > 1:
			repeated++
		}
	}
	t.Logf("%d results, read more than once %d, publishes repeated %d", n, repeated, r.Stats().Retried.Load())
}
