package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/kvtier/lineage"
	"github.com/weir-dev/weir/planner/demand"
	"github.com/weir-dev/weir/planner/route"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/model"
	"github.com/weir-dev/weir/services/record"
	"github.com/weir-dev/weir/services/tokenizer"
	"github.com/weir-dev/weir/streams"
	"github.com/weir-dev/weir/streams/jsrun"
)

// Config of the deciding services.
type Config struct {
	Conn     *nats.Conn
	Topology []streams.Stream
	Cell     string
	ID       string // of this instance: holder of leases, name of consumers
	Model    *model.Model
	Context  int // tokens per sequence of the executors
	Logger   *slog.Logger

	DirectMax int  // see route.Config
	Admit     bool // likewise
	Deadline  time.Duration
	// Keep is how long lineage remembers a session that has no new turn; 0 is as long
	// as there is room.
	Keep time.Duration

	OnIn  func(service string, in *schemas.Msg)
	OnOut func(service string, in, out *schemas.Msg)
	// OnOp sees every operation outside the bus with its completion, from any goroutine.
	OnOp func(service string, op *schemas.Op, start time.Time, done *schemas.OpDone)
	// Actor is called with the service's actor before every message that it
	// gets, in the goroutine that owns it.
	Actor func(service string, a schemas.Actor)
	// Stats is told of runners as they start, for metrics.
	Stats func(service string, s *jsrun.Stats)

	// Mode of the planner where people have set none; act by default.
	Mode schemas.Mode
	// Work is what work costs on the executors, where that is known; the planner
	// measures it otherwise.
	Work demand.Model
	// Record keeps what router and planner are told and answer; nil records nothing.
	Record *record.Recorder
}

func (c *Config) hooks(service string, actor schemas.Actor) (func(*schemas.Msg), func(in, out *schemas.Msg)) {
	var in func(*schemas.Msg)
	var out func(a, b *schemas.Msg)
	if c.OnIn != nil || c.Actor != nil {
		in = func(m *schemas.Msg) {
			if c.Actor != nil {
				c.Actor(service, actor)
			}
			if c.OnIn != nil {
				c.OnIn(service, m)
			}
		}
	}
	if c.OnOut != nil {
		out = func(a, b *schemas.Msg) { c.OnOut(service, a, b) }
	}
	return in, out
}

// Where lineage's snapshot is kept.
const (
	lineageActor = "lineage"
	lineageShard = "0"
)

// Lineage runs the lineage service until ctx ends. It renders through the local
// tokenizer when it has one, and through the tokenizer service otherwise.
func Lineage(ctx context.Context, cfg Config, local *tokenizer.Renderer) error {
	js, err := jetstream.New(cfg.Conn)
	if err != nil {
		return err
	}
	snaps, err := jsrun.NewSnapshots(ctx, js)
	if err != nil {
		return fmt.Errorf("lineage: %w", err)
	}
	m := cfg.Model
	actor := lineage.New(lineage.Config{
		Cell: cfg.Cell, DeadlineNS: int64(cfg.Deadline), KeepNS: int64(cfg.Keep),
		Models: []lineage.Model{{
			Name: m.Name, Aliases: []string{"default", "weir"}, Digest: m.Digest, Vocab: m.Vocab.Name(), Template: m.TemplateDigest(),
			Context: cfg.Context, Size: m.Vocab.Size(),
		}},
	})
	loc, err := newLocal(ctx, cfg, js, local)
	if err != nil {
		return err
	}
	in, out := cfg.hooks("lineage", actor)
	r, err := jsrun.New(jsrun.Config{
		Conn: cfg.Conn, Topology: cfg.Topology, Actor: actor, Name: "lineage-" + cfg.ID, Logger: cfg.Logger, OnIn: in, OnOut: out,
		Inputs: []streams.Input{
			{Stream: streams.Result, Policy: streams.NoAck, Deliver: streams.DeliverAll, Resume: true},
			{Stream: streams.Agent, Policy: streams.NoAck, Deliver: streams.DeliverAll, Resume: true},
			{Core: true, Filters: []string{schemas.HBSubject(cfg.Cell, "*")}},
			{Core: true, Filters: []string{schemas.TokensSubject(cfg.Cell), schemas.SessionSubject(cfg.Cell)}},
		},
		Local: loc.do, OnBad: unreadable(actor),
		Snapshots: snaps, SnapshotActor: lineageActor, Shard: lineageShard, SnapshotEvery: 30 * time.Second,
	})
	if err != nil {
		return err
	}
	if cfg.Stats != nil {
		cfg.Stats("lineage", r.Stats())
	}
	go purge(ctx, cfg, js, snaps)
	return r.Run(ctx)
}

// unreadable lets lineage answer for turns that cannot be decoded. It runs in the
// goroutine that owns the actor.
func unreadable(actor *lineage.Lineage) func(string, uint64, []byte, error) []schemas.Msg {
	return func(subject string, seq uint64, body []byte, cause error) []schemas.Msg {
		if body == nil {
			return nil // an output that cannot be encoded: its turn hears by KindPublished
		}
		return actor.Unreadable(schemas.Time(time.Now().UnixNano()), subject, seq, body, cause)
	}
}

// Router runs the router of a cell whenever this instance holds the lease.
func Router(ctx context.Context, cfg Config) error {
	return cfg.underLease(ctx, "router", func(ctx context.Context, _ jetstream.JetStream, epoch uint64) error {
		return route1(ctx, cfg, epoch)
	})
}

// underLease runs a service whenever this instance holds the cell's lease for it. The
// context that run gets ends with the lease.
func (c *Config) underLease(ctx context.Context, service string, run func(context.Context, jetstream.JetStream, uint64) error) error {
	js, err := jetstream.New(c.Conn)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		lease, err := jsrun.Acquire(ctx, jsrun.LeaseConfig{JS: js, Cell: c.Cell, Service: service, Holder: c.ID, Logger: c.Logger})
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("%s: %w", service, err)
		}
		c.Logger.Info(service+" is active", "cell", c.Cell, "epoch", lease.Epoch)
		err = run(lease.Context(), js, lease.Epoch)
		lost := context.Cause(lease.Context())
		lease.Release()
		if ctx.Err() != nil {
			return err
		}
		if err != nil && lost == nil {
			return err
		}
		c.Logger.Warn(service+" lost its lease and stands by", "cell", c.Cell, "cause", errors.Join(lost, err))
	}
	return nil
}

// route1 runs a router with one lease.
func route1(ctx context.Context, cfg Config, epoch uint64) error {
	conf := route.Config{Cell: cfg.Cell, Epoch: epoch, DirectMax: cfg.DirectMax, Admit: cfg.Admit}
	actor := route.New(conf)
	recorded, end := cfg.recorded("router", epoch, actor, conf)
	defer end()
	in, out := cfg.hooks("router", actor)
	r, err := jsrun.New(jsrun.Config{
		Conn: cfg.Conn, Topology: cfg.Topology, Name: "router-" + cfg.ID, Logger: cfg.Logger, OnIn: in, OnOut: out,
		Actor: recorded,
		Inputs: []streams.Input{
			{
				Stream: streams.Ready, Filters: []string{schemas.ReadySubject(cfg.Cell, "*", "*", "*")}, Durable: "router-" + cfg.Cell,
				Policy: streams.Hold, Recreate: true,
			},
			{Stream: streams.Done, Filters: []string{schemas.DoneSubject(cfg.Cell, "*")}, Policy: streams.NoAck, Deliver: streams.DeliverNew},
			{Stream: streams.Result, Policy: streams.NoAck, Deliver: streams.DeliverNew},
			{Core: true, Filters: []string{schemas.HBSubject(cfg.Cell, "*"), schemas.BranchSubject(cfg.Cell, "*")}},
			// What was said before is in the list that each node is asked for.
			{Stream: streams.KV, Filters: []string{schemas.KVSubject(cfg.Cell, "*")}, Policy: streams.NoAck, Deliver: streams.DeliverNew},
		},
		Local: newLister(ctx, cfg).do,
	})
	if err != nil {
		return err
	}
	if cfg.Stats != nil {
		cfg.Stats("router", r.Stats())
	}
	return r.Run(ctx)
}
