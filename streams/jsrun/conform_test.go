package jsrun

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
	"github.com/weir-dev/weir/streams/conform"
)

func TestConformance(t *testing.T) {
	conform.Test(t, func(t *testing.T, topo []streams.Stream, f func(*testing.T, conform.World)) {
		dir := t.TempDir()
		virtual(t, func(t *testing.T) {
			b := newBus(t, dir, topo)
			w := &world{bus: b, services: map[string]*service{}}
			defer b.close()
			defer w.close()
			f(t, w)
		})
	})
}

// world runs services on a real JetStream in virtual time; each has a connection
// of its own, so that cutting it is a crash.
type world struct {
	*bus
	services map[string]*service
}

type service struct {
	nc     *nats.Conn
	runner *Runner
	cancel context.CancelFunc
	ended  chan error
}

func (w *world) Start(s conform.Service) {
	w.t.Helper()
	nc, err := Connect(ConnectOptions{Server: w.srv, Name: s.Name})
	if err != nil {
		w.t.Fatal(err)
	}
	cfg := Config{Conn: nc, Actor: s.Actor, Name: s.Name, Topology: w.topo, Inputs: s.Inputs, OnBad: s.OnBad}
	if s.Local != nil {
		cfg.Local = func(op *schemas.Op, done func(schemas.OpDone)) {
			d, after := s.Local(op)
			if after == 0 {
				done(d)
				return
			}
			time.AfterFunc(after, func() { done(d) })
		}
	}
	if s.SnapshotEvery > 0 {
		js, err := jetstream.New(nc)
		if err != nil {
			w.t.Fatal(err)
		}
		if cfg.Snapshots, err = NewSnapshots(w.t.Context(), js); err != nil {
			w.t.Fatal(err)
		}
		cfg.SnapshotEvery = s.SnapshotEvery
	}
	r, err := New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	svc := &service{nc: nc, runner: r, cancel: cancel, ended: make(chan error, 1)}
	go func() { svc.ended <- r.Run(ctx) }()
	<-r.Ready()
	w.services[s.Name] = svc
}

func (w *world) Stop(name string) {
	w.t.Helper()
	s := w.services[name]
	delete(w.services, name)
	s.cancel()
	if err := <-s.ended; err != nil {
		w.t.Errorf("stopping %s: %v", name, err)
	}
	s.nc.Close()
}

func (w *world) Crash(name string) {
	w.t.Helper()
	s := w.services[name]
	delete(w.services, name)
	s.nc.Close()
	if err := <-s.ended; !errors.Is(err, ErrClosed) {
		w.t.Errorf("crashing %s: %v", name, err)
	}
	s.cancel()
}

func (w *world) close() {
	for name := range w.services {
		w.Stop(name)
	}
}

func (w *world) Publish(subject, id string, body []byte) error {
	m := &nats.Msg{Subject: subject, Data: body}
	if id != "" {
		m.Header = nats.Header{hdrMsgID: []string{id}}
	}
	_, err := w.js.PublishMsg(w.t.Context(), m)
	return err
}

func (w *world) PublishCore(subject string, body []byte) {
	if err := w.nc.Publish(subject, body); err != nil {
		w.t.Fatal(err)
	}
	if err := w.nc.Flush(); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) Stored(stream string) []conform.Stored {
	w.t.Helper()
	st, err := w.js.Stream(w.t.Context(), stream)
	if err != nil {
		w.t.Fatal(err)
	}
	info := st.CachedInfo().State
	var out []conform.Stored
	for seq := info.FirstSeq; seq <= info.LastSeq && info.Msgs > 0; seq++ {
		m, err := st.GetMsg(w.t.Context(), seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			w.t.Fatal(err)
		}
		out = append(out, conform.Stored{
			Subject: m.Subject, ID: m.Header.Get(hdrMsgID), Seq: m.Sequence, Body: m.Data, Trace: traceOf(m.Header),
		})
	}
	return out
}

func (w *world) Purge(stream string) {
	w.t.Helper()
	st, err := w.js.Stream(w.t.Context(), stream)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := st.Purge(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) Sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (w *world) Now() schemas.Time { return schemas.Time(time.Now().UnixNano()) }
