package turns

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/streams/jsrun"
)

// bus is a NATS server that is stopped and started again on its store, so that
// file streams stay and memory streams are lost, as after a kill.
type bus struct {
	t    *testing.T
	dir  string
	addr string
	srv  *server.Server
}

func newBus(t *testing.T) *bus {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &bus{t: t, dir: t.TempDir(), addr: l.Addr().String()}
	_ = l.Close()
	b.start()
	t.Cleanup(b.stop)
	return b
}

func (b *bus) start() {
	b.t.Helper()
	srv, err := jsrun.Embedded(jsrun.EmbeddedOptions{Dir: b.dir, Listen: b.addr, Topology: topology()})
	if err != nil {
		b.t.Fatal(err)
	}
	b.srv = srv
	nc := b.connect(10 * time.Millisecond)
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := jsrun.Provision(context.Background(), js, topology()); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bus) stop() {
	b.srv.Shutdown()
	b.srv.WaitForShutdown()
}

// connect opens a connection that comes back that long after the server.
func (b *bus) connect(wait time.Duration) *nats.Conn {
	b.t.Helper()
	nc, err := nats.Connect("nats://"+b.addr, nats.MaxReconnects(-1), nats.ReconnectWait(wait), nats.ReconnectJitter(0, 0))
	if err != nil {
		b.t.Fatal(err)
	}
	return nc
}

// pair is a client and a fake on that bus, each with its own connection.
func (b *bus) pair(clientWait time.Duration, o Options) *fake {
	b.t.Helper()
	k := &fake{t: b.t, srv: b.srv, ref: Ref{Tenant: "default", Session: "s", Turn: "t1"}, nc: b.connect(10 * time.Millisecond)}
	nc := b.connect(clientWait)
	var err error
	if k.js, err = jetstream.New(k.nc); err != nil {
		b.t.Fatal(err)
	}
	if k.c, err = New(nc, o); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		k.c.Close()
		nc.Close()
		k.nc.Close()
	})
	return k
}

// back waits until the fake's connection is there again.
func (k *fake) back() {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), 10*time.Second)
	defer cancel()
	for !k.nc.IsConnected() {
		if err := k.nc.FlushWithContext(ctx); err != nil && ctx.Err() != nil {
			k.t.Fatal(err)
		}
	}
}

func TestServerRestartsInMidStream(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	k := b.pair(10*time.Millisecond, Options{SilenceMin: 200 * time.Millisecond})
	s := k.publish()
	k.frame(1, 0, 4)
	if e, err := s.Next(t.Context()); err != nil || len(e.Tokens) != 4 {
		t.Fatalf("%+v, %v", e, err)
	}
	b.stop()
	b.start()
	k.back()
	k.frame(2, 8, 10) // 4 to 8 were sent into nothing
	k.result(k.resultOf(2, 12))
	from := Position{Index: 4, TextAt: len(textOf(whole(4)...))}
	k.want(k.read(s, from), from, 12)
}

// TestResultWhileAway: the result was published before the caller's connection
// came back. It is looked for then, not only after a silence.
func TestResultWhileAway(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	k := b.pair(700*time.Millisecond, Options{SilenceMin: time.Hour, SilenceMax: time.Hour})
	s := k.publish()
	k.frame(1, 0, 4)
	b.stop()
	b.start()
	k.back()
	k.frame(1, 0, 9)
	k.result(k.resultOf(1, 12))
	k.want(k.read(s, Position{}), Position{}, 12)
}

func TestPublishWaitsForTheServer(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	k := b.pair(10*time.Millisecond, Options{})
	b.stop()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := k.c.Publish(ctx, request(k, "x")); !errors.Is(err, ErrUnavailable) {
		t.Errorf("without a server: %v, want ErrUnavailable", err)
	}
	published := make(chan *Stream)
	go func() {
		s, err := k.c.Publish(t.Context(), request(k, "hello"))
		if err != nil {
			t.Errorf("Publish across a restart: %v", err)
		}
		published <- s
	}()
	b.start()
	s := <-published
	if s == nil {
		return
	}
	k.back()
	k.result(k.resultOf(1, 12))
	k.want(k.read(s, Position{}), Position{}, 12)
}
