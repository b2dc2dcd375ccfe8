package simrun

import (
	"testing"
	"time"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
	"github.com/weir-dev/weir/streams/conform"
)

func TestConformance(t *testing.T) {
	for _, seed := range []uint64{1, 2, 3, 4, 5} {
		conform.Test(t, func(t *testing.T, topo []streams.Stream, f func(*testing.T, conform.World)) {
			s, err := New(Options{Seed: seed, Topology: topo})
			if err != nil {
				t.Fatal(err)
			}
			f(t, &world{t: t, s: s})
		})
	}
}

type world struct {
	t *testing.T
	s *Sim
}

func (w *world) Start(svc conform.Service) {
	w.t.Helper()
	cfg := Service{Name: svc.Name, Actor: svc.Actor, Inputs: svc.Inputs, OnBad: svc.OnBad, SnapshotEvery: svc.SnapshotEvery}
	if svc.Local != nil {
		cfg.Local = func(_ schemas.Time, op *schemas.Op) (schemas.OpDone, time.Duration) { return svc.Local(op) }
	}
	if err := w.s.Start(cfg); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) Stop(name string) {
	w.t.Helper()
	if err := w.s.Stop(name); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) Crash(name string) { w.s.Crash(name) }

func (w *world) Publish(subject, id string, body []byte) error {
	_, err := w.s.Publish(subject, id, body)
	return err
}

func (w *world) PublishCore(subject string, body []byte) { w.s.PublishCore(subject, body) }

func (w *world) Stored(stream string) []conform.Stored {
	var out []conform.Stored
	for _, m := range w.s.Stored(stream) {
		out = append(out, conform.Stored{Subject: m.Subject, ID: m.ID, Seq: m.Seq, Body: m.Body, Trace: m.Trace})
	}
	return out
}

func (w *world) Purge(stream string) { w.s.Purge(stream) }

func (w *world) Sleep(d time.Duration) {
	w.t.Helper()
	if err := w.s.RunFor(d); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) Now() schemas.Time { return w.s.Now() }
