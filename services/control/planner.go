package control

import (
	"context"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/planner/plan"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/record"
	"github.com/weir-dev/weir/streams"
	"github.com/weir-dev/weir/streams/jsrun"
)

// plannerSnaps is how often the planner's state is saved: its smoothing goes back some
// minutes, so a restart that loses 10 s of it changes nothing.
const plannerSnaps = 10 * time.Second

// Planner runs the planner of a cell whenever this instance holds the lease.
func Planner(ctx context.Context, cfg Config) error {
	return cfg.underLease(ctx, "planner", func(ctx context.Context, js jetstream.JetStream, epoch uint64) error {
		return plan1(ctx, cfg, js, epoch)
	})
}

// plan1 runs a planner with one lease.
func plan1(ctx context.Context, cfg Config, js jetstream.JetStream, epoch uint64) error {
	snaps, err := jsrun.NewSnapshots(ctx, js)
	if err != nil {
		return err
	}
	conf := plan.Config{Cell: cfg.Cell, Epoch: epoch, Mode: cfg.Mode, Model: cfg.Work}
	actor := plan.New(conf)
	recorded, end := cfg.recorded("planner", epoch, actor, conf)
	defer end()
	in, out := cfg.hooks("planner", actor)
	r, err := jsrun.New(jsrun.Config{
		Conn: cfg.Conn, Topology: cfg.Topology, Actor: forgiving{recorded, cfg.Logger}, Name: "planner-" + cfg.ID, Logger: cfg.Logger, OnIn: in, OnOut: out,
		Inputs: []streams.Input{
			// Roles and the mode first: a decision needs them.
			{
				Stream: streams.Role, Filters: []string{schemas.RoleSubject(cfg.Cell, "*"), schemas.ModeSubject(cfg.Cell)},
				Policy: streams.NoAck, Deliver: streams.DeliverLastPerSubject,
			},
			{Core: true, Filters: []string{schemas.HBSubject(cfg.Cell, "*")}},
			{
				Stream: streams.Report, Filters: []string{schemas.ReportSubject(cfg.Cell, "*"), schemas.LoadSubject(cfg.Cell)},
				Policy: streams.NoAck, Deliver: streams.DeliverLastPerSubject,
			},
		},
		Snapshots: snaps, SnapshotActor: "planner", Shard: cfg.Cell, SnapshotEvery: plannerSnaps,
	})
	if err != nil {
		return err
	}
	if cfg.Stats != nil {
		cfg.Stats("planner", r.Stats())
	}
	return r.Run(ctx)
}

// forgiving starts an actor anew when it cannot read the state of an earlier one, as
// after a change of the build: a planner without memory is better than none.
type forgiving struct {
	schemas.Actor
	logger *slog.Logger
}

// Restore never fails. An actor that cannot read a state is as it was before.
func (f forgiving) Restore(b []byte) error {
	if err := f.Actor.Restore(b); err != nil {
		f.logger.Warn("the planner's saved state cannot be read; it begins anew", "error", err)
	}
	return nil
}

// recorded wraps an actor when --record is given. end closes the recording. A
// recording that cannot begin is no reason to serve nobody.
func (c *Config) recorded(service string, epoch uint64, actor schemas.Actor, conf any) (_ schemas.Actor, end func()) {
	if c.Record == nil {
		return actor, func() {}
	}
	body, err := encodeConfig(conf)
	var a *record.Actor
	if err == nil {
		a, err = c.Record.Actor(actor, record.Header{Actor: service, Cell: c.Cell, Epoch: epoch, Config: body})
	}
	if err != nil {
		c.Logger.Error("nothing is recorded", "actor", service, "error", err)
		return actor, func() {}
	}
	return a, func() {
		if err := a.Close(); err != nil {
			c.Logger.Error("recording not finished", "actor", service, "error", err)
		}
	}
}
