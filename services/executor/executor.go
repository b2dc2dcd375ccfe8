package executor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/gpuexec/worker"
	"github.com/weir-dev/weir/kvtier/hostmem"
	"github.com/weir-dev/weir/kvtier/peer"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/model"
	"github.com/weir-dev/weir/services/proc"
	"github.com/weir-dev/weir/streams"
	"github.com/weir-dev/weir/streams/jsrun"
)

// layoutVersion is the version of exported blocks as this build writes them.
const layoutVersion = 1

// Config of an executor process.
type Config struct {
	Conn     *nats.Conn
	Topology []streams.Stream
	Cell     string
	ID       string
	Node     string
	Arena    string // folder of the shared KV memory
	Model    *model.Model
	Engine   model.EngineOptions
	// Device: the time that operations take is that of this device; nil for the engine's own.
	Device *Device
	// NoKeep: the engine forgets the context of a turn that is over.
	NoKeep bool
	// PeerToken is what nodes must know to give each other blocks; empty for none.
	PeerToken string
	Logger    *slog.Logger
	Hooks     Hooks
	// StuckAfter: an engine operation that takes longer ends the process, so that
	// its turns are run elsewhere. 120 s.
	StuckAfter time.Duration
}

// Hooks observe what the actor sees and sends; all may be nil.
type Hooks struct {
	In  func(in *schemas.Msg)
	Out func(in, out *schemas.Msg)
	// Op sees every operation with its completion, from any goroutine.
	Op func(op *schemas.Op, start time.Time, done *schemas.OpDone)
	// Stats is told of the runner when it starts.
	Stats func(s *jsrun.Stats)
	// Peers is told of what gets blocks from other nodes.
	Peers func(c *peer.Client)
}

// ErrStuck: an engine operation did not come back.
var ErrStuck = errors.New("executor: engine operation stuck")

// Run runs the executor until ctx ends or something fails.
func Run(ctx context.Context, cfg Config) error {
	eng, err := cfg.Model.NewEngine(cfg.Engine)
	if err != nil {
		return err
	}
	eng = withFault(eng)
	info, limits := eng.Info(), eng.Limits()
	format := schemas.KVFormat{Engine: info.Engine, Version: info.Version, Numerics: info.Numerics, Layout: layoutVersion}
	boot := os.Getenv(proc.EnvBoot)
	if !schemas.ValidID(boot) {
		boot = proc.NewBoot()
	}
	mem, err := attach(ctx, cfg, format, limits, boot)
	if err != nil {
		return errors.Join(err, eng.Close())
	}
	e := newEngine(cfg, eng, mem, format)
	e.bring = newBringer(mem, format, cfg.PeerToken, cfg.Logger, lowersOf(mem, cfg.Logger)...)
	e.health = openHealth(cfg.ID, cfg.Logger)
	limits = e.pacer.limits(limits)
	size := 1
	if cfg.Device != nil {
		size = cfg.Device.Cal.Layout.GPUs
	}
	conf := gpuexec.Config{
		Cell: cfg.Cell, Executor: cfg.ID, Node: cfg.Node, Pool: cfg.Model.Name, Boot: boot, Limits: limits, Format: format,
		Size: size, TierBlocks: mem.Capacity(), Lower: len(e.bring.lowers) > 0 || e.pacer != nil, Health: e.health.driver != nil, Inexact: !info.Exact, Devices: deviceNames(info.Devices),
	}
	coarse(&conf, cfg.Device)
	actor := gpuexec.NewExecutor(conf)
	ask, err := newAsker(cfg.Conn, cfg.Cell)
	if err != nil {
		return errors.Join(err, e.bring.close(), mem.Close(), eng.Close())
	}
	runner, err := jsrun.New(jsrun.Config{
		Conn: cfg.Conn, Topology: cfg.Topology, Actor: actor, Name: cfg.ID, Logger: cfg.Logger, Inputs: inputs(cfg.Cell, cfg.ID),
		OnIn: cfg.Hooks.In, OnOut: cfg.Hooks.Out,
		Local: func(op *schemas.Op, done func(schemas.OpDone)) { e.local(ctx, ask, op, done) },
	})
	if err != nil {
		return errors.Join(err, e.bring.close(), mem.Close(), eng.Close())
	}
	if cfg.Hooks.Peers != nil {
		cfg.Hooks.Peers(e.bring.peers)
	}
	if cfg.Hooks.Stats != nil {
		cfg.Hooks.Stats(runner.Stats())
	}
	engineCtx, stop := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); e.run(engineCtx) }()
	go e.watch(engineCtx, stop)
	cfg.Logger.Info("executor runs", "id", cfg.ID, "boot", boot, "engine", info.Engine, "version", info.Version, "devices", info.Devices,
		"slots", limits.Slots, "context", limits.Context, "block_bytes", limits.BlockBytes, "kv_slots", mem.Capacity())
	err = runner.Run(engineCtx)
	if cause := context.Cause(engineCtx); errors.Is(cause, ErrStuck) {
		return cause // the engine cannot be closed: it is still busy
	}
	stop(nil)
	<-ended
	return errors.Join(err, e.health.close(), e.bring.close(), mem.Close(), eng.Close())
}

func deviceNames(ds []gpuexec.Device) []string {
	names := make([]string, len(ds))
	for i, d := range ds {
		names[i] = d.Name + ": " + d.Description
	}
	return names
}

// inputs of an executor. Jobs are not acknowledged: the router sees in the
// heartbeats what arrived, and places again what did not.
func inputs(cell, id string) []streams.Input {
	return []streams.Input{
		{Stream: streams.Role, Filters: []string{schemas.RoleSubject(cell, id)}, Policy: streams.NoAck, Deliver: streams.DeliverLastPerSubject},
		{Stream: streams.Prefill, Filters: []string{schemas.JobSubject(schemas.StagePrefill, cell, id, "*")}, Policy: streams.NoAck, Deliver: streams.DeliverNew},
		{Stream: streams.Decode, Filters: []string{schemas.JobSubject(schemas.StageDecode, cell, id, "*")}, Policy: streams.NoAck, Deliver: streams.DeliverNew},
		{Core: true, Filters: []string{schemas.CancelSubject(cell, id)}},
	}
}

// attach joins the pool of blocks that this engine can read.
func attach(ctx context.Context, cfg Config, f schemas.KVFormat, l gpuexec.Limits, boot string) (*hostmem.Client, error) {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s|%s|%s|%s|%d", cfg.Model.Digest, f.Engine, f.Version, f.Numerics, f.Layout))
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	mem, err := hostmem.Attach(ctx, hostmem.Options{
		Dir: cfg.Arena, Writer: cfg.ID + "-" + boot, Pool: cfg.Model.Name + "-" + hex.EncodeToString(sum[:8]), BlockBytes: int64(l.BlockBytes),
	})
	if errors.Is(err, hostmem.ErrBudget) {
		return nil, fmt.Errorf("executor %s: the KV memory in %s is too small for this model; raise --kv-mem: %w", cfg.ID, cfg.Arena, err)
	}
	if err != nil {
		return nil, fmt.Errorf("executor %s: joining the KV memory in %s: %w", cfg.ID, cfg.Arena, err)
	}
	return mem, nil
}

// engine is the goroutine that owns the worker.
type engine struct {
	worker     *worker.Worker
	health     *health
	bring      *bringer
	pacer      *pacer // nil: operations take the time that they take
	started    time.Time
	ops        chan job
	busySince  atomic.Int64 // nanoseconds since started; 0 while idle
	stuckAfter time.Duration
	hook       func(op *schemas.Op, start time.Time, done *schemas.OpDone)
}

func (e *engine) observe(op *schemas.Op, start time.Time, done *schemas.OpDone) {
	if e.hook != nil {
		e.hook(op, start, done)
	}
}

type job struct {
	op   *schemas.Op
	done func(schemas.OpDone)
}

func newEngine(cfg Config, eng gpuexec.StepEngine, mem *hostmem.Client, format schemas.KVFormat) *engine {
	started := time.Now() // origin of the monotonic clock
	e := &engine{
		started: started, pacer: newPacer(cfg.Device), ops: make(chan job, 64), stuckAfter: cfg.StuckAfter, hook: cfg.Hooks.Op,
		worker: worker.New(worker.Config{
			Engine: eng, Vocab: cfg.Model.Vocab, Tier: &tier{mem: mem}, NoKeep: cfg.NoKeep, Keys: keys{}, Format: format,
			Now: func() int64 { return time.Since(started).Nanoseconds() },
		}),
	}
	if e.stuckAfter <= 0 {
		e.stuckAfter = 2 * time.Minute
	}
	return e
}

// local does an operation of the actor. Questions to the bus wait in goroutines of
// their own. The engine's operations queue up: one is under way at a time, and
// what follows it are drops, so the queue never fills.
func (e *engine) local(ctx context.Context, ask *asker, op *schemas.Op, done func(schemas.OpDone)) {
	if op.Health != nil {
		go func() {
			d := e.health.read()
			done(schemas.OpDone{ID: op.ID, Health: &d})
		}()
		return
	}
	if op.Bring != nil {
		start := time.Now()
		e.bring.start(op, func(d schemas.OpDone) {
			if e.pacer != nil {
				e.pacer.brings(ctx, op.Bring)
				d.TookNS = time.Since(start).Nanoseconds()
			}
			e.observe(op, start, &d)
			done(d)
		})
		return
	}
	if op.Tokens == nil && op.Delivered == nil {
		e.ops <- job{op, done}
		return
	}
	go func() {
		start := time.Now()
		d := ask.do(ctx, op)
		e.observe(op, start, &d)
		done(d)
	}()
}

func (e *engine) do(ctx context.Context, op *schemas.Op) schemas.OpDone {
	if e.pacer != nil {
		return e.pacer.do(ctx, e.worker, op)
	}
	return e.worker.Do(op)
}

func (e *engine) run(ctx context.Context) {
	sweep := time.NewTicker(time.Second)
	defer sweep.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-sweep.C:
			e.worker.Sweep()
		case j := <-e.ops:
			start := time.Now()
			e.busySince.Store(max(1, start.Sub(e.started).Nanoseconds()))
			d := e.do(ctx, j.op)
			e.busySince.Store(0)
			e.observe(j.op, start, &d)
			j.done(d)
		}
	}
}

// watch ends the process when an operation hangs: heartbeats alone would say
// that all is well.
func (e *engine) watch(ctx context.Context, stop context.CancelCauseFunc) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			since := e.busySince.Load()
			if since == 0 {
				continue
			}
			if d := time.Since(e.started) - time.Duration(since); d > e.stuckAfter {
				stop(fmt.Errorf("%w for %s; the process ends so that its turns can run elsewhere", ErrStuck, d.Round(time.Second)))
				return
			}
		}
	}
}
