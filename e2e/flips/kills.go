package flips

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/weir-dev/weir/e2e/stack"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
)

// Faults is how many of each kind are done, each while a role changes.
type Faults struct {
	Control  int // kill -9 of router, lineage and gateway
	Planner  int // kill -9 of a planner that acts too
	Executor int // kill -9 of the executor that changes
	Leader   int // kill -9 of the NATS server that leads the stream of assignments
	Stopped  int // SIGSTOP of an executor, which wakes with an old epoch
	Last     int // SIGSTOP of the only executor of a phase, which the planner must replace
}

// The kinds, as they are called in the log.
const (
	killControl  = "control killed"
	killPlanner  = "planner killed"
	killExecutor = "executor killed"
	killLeader   = "NATS leader killed"
	stopExecutor = "executor stopped"
	stopLast     = "last executor of a phase stopped"
)

// stopFor is how long an executor stands still: longer than the router waits for its
// heartbeat, so that its turns run elsewhere when it wakes.
const stopFor = 5 * time.Second

// downFor is how long a killed server stays away: longer than an election takes.
const downFor = 10 * time.Second

// between two faults turns go on and end.
const between = 1500 * time.Millisecond

// killer does faults in the midst of role changes.
type killer struct {
	o       *Options
	stack   *stack.Stack
	nats    *stack.Cluster
	ch      *changer
	w       *watch
	agents  *agents
	planner *planner
}

// RunKills changes roles under load and faults, on a NATS cluster of three, and then
// runs the same turns in calm.
func RunKills(ctx context.Context, o Options, n Faults) (f *Figures, err error) {
	if o.Long == 0 {
		o.Long = 400 // turns wait for what died, so more of them end
	}
	o.defaults()
	cluster, err := stack.LaunchCluster(ctx, 3)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	o.Args = append([]string{"--nats-replicas", "3"}, o.Args...)
	s, err := stack.Launch(ctx, stack.Options{NATS: cluster.URL, Args: o.args()})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	b, err := newBench(ctx, &o, s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.watch.close()) }()
	k := &killer{o: &o, stack: s, nats: cluster, ch: b.changer, w: b.watch}
	k.planner = newPlanner(s, cluster.URL)
	defer k.planner.stop()
	hot := &agents{client: b.client, tenant: "kills", seed: o.Seed + 1, long: o.Long, wait: true}
	k.agents = hot
	f = &Figures{}
	err = f.under(ctx, &o, hot, b.watch, func() error { return k.all(ctx, f, n) })
	if err != nil {
		return f, fmt.Errorf("%w\n%s", err, s.Logs(15))
	}
	o.Log("%d changes under faults, %d turns; the same turns in calm", f.Flips, len(hot.records))
	calm := &agents{client: b.client, tenant: "calm"}
	twin := calm.calm(ctx, hot.records, o.Agents)
	if ctx.Err() != nil {
		return f, context.Cause(ctx)
	}
	f.add(compare(hot.records, twin))
	f.Repeated = hot.dup
	f.watched(b.watch)
	return f, nil
}

func (k *killer) all(ctx context.Context, f *Figures, n Faults) error {
	var faults []string
	for _, x := range []struct {
		kind string
		n    int
	}{{killControl, n.Control}, {killExecutor, n.Executor}, {killLeader, n.Leader}, {stopExecutor, n.Stopped}, {killPlanner, n.Planner}, {stopLast, n.Last}} {
		for range x.n {
			faults = append(faults, x.kind)
		}
	}
	k.ch.rng.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
	if n.Planner+n.Last > 0 {
		// It acts from the start, and nobody is pinned.
		if err := k.planner.start(); err != nil {
			return err
		}
	}
	for i, kind := range faults {
		// Each fault meets a stack that works.
		pause(ctx, between)
		if err := k.flowing(ctx); err != nil {
			return err
		}
		took, err := k.fault(ctx, kind)
		if err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
		f.Flips++
		f.Ms = append(f.Ms, took.Seconds()*1000)
		k.o.Log("fault %d of %d: %s, the change took %.2f s", i+1, len(faults), kind, took.Seconds())
	}
	return k.settled(ctx)
}

// flowing waits until all executors are heard and a turn is in flight.
func (k *killer) flowing(ctx context.Context) error {
	return k.w.wait(ctx, 60*time.Second, "all executors at work", func() bool {
		for id := range k.w.roles {
			if time.Since(k.w.beats[id].at) > time.Second || k.w.beats[id].Epoch == 0 {
				return false
			}
		}
		return k.agents.busy() > 0
	})
}

// settled waits until every executor has the newest assignment in force.
func (k *killer) settled(ctx context.Context) error {
	return k.w.wait(ctx, 60*time.Second, "the newest assignments in force", func() bool {
		for id, epoch := range k.w.newest {
			if k.w.inForce[id] != epoch {
				return false
			}
		}
		return true
	})
}

// fault begins a role change, does the fault while it is under way, and waits until
// the change is in force.
func (k *killer) fault(ctx context.Context, kind string) (time.Duration, error) {
	switch kind {
	case stopExecutor:
		return k.stopped(ctx)
	case stopLast:
		return k.lastStopped(ctx)
	}
	id, role := k.ch.next()
	at := time.Now()
	epoch, err := k.ch.write(ctx, id, role)
	if err != nil {
		return 0, err
	}
	// Mid-change: a change that has nothing to hand over is over in a moment.
	pause(ctx, time.Duration(k.ch.rng.IntN(20))*time.Millisecond)
	switch kind {
	case killControl:
		err = k.killed(ctx, "control")
	case killPlanner:
		err = k.planner.kill(ctx)
	case killExecutor:
		err = k.killed(ctx, id)
	case killLeader:
		err = k.leader(ctx)
	}
	if err != nil {
		return 0, err
	}
	err = k.w.taken(ctx, id, epoch, 60*time.Second)
	return time.Since(at), err
}

// killed kills a process and waits until it runs again.
func (k *killer) killed(ctx context.Context, id string) error {
	pid, err := k.stack.Kill(id, syscall.SIGKILL)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	_, err = k.stack.WaitRestarted(ctx, id, pid)
	return err
}

// leader kills the server that leads the stream of assignments, and starts it again
// when another one must have been elected.
func (k *killer) leader(ctx context.Context) error {
	i, err := k.nats.Leader(ctx, k.ch.js, streams.Role)
	if err != nil {
		return err
	}
	if err := k.nats.Nodes[i].Kill(syscall.SIGKILL); err != nil {
		return err
	}
	pause(ctx, downFor)
	return k.nats.Nodes[i].Restart(ctx)
}

// stopped stops an executor in the midst of a change. Two more assignments come while
// it stands still; when it wakes, it takes none but the last.
func (k *killer) stopped(ctx context.Context) (time.Duration, error) {
	id, role := k.ch.next()
	at := time.Now()
	if _, err := k.ch.write(ctx, id, role); err != nil {
		return 0, err
	}
	if _, err := k.stack.Kill(id, syscall.SIGSTOP); err != nil {
		return 0, err
	}
	wake := func() error { _, err := k.stack.Kill(id, syscall.SIGCONT); return err }
	half := time.Duration(stopFor / 2)
	pause(ctx, half)
	if _, err := k.ch.write(ctx, id, schemas.RoleStandby); err != nil {
		return 0, errors.Join(err, wake())
	}
	pause(ctx, half)
	last := schemas.RolePrefill
	if role == schemas.RolePrefill {
		last = schemas.RoleDecode
	}
	epoch, err := k.ch.write(ctx, id, last)
	if err := errors.Join(err, wake()); err != nil {
		return 0, err
	}
	err = k.w.taken(ctx, id, epoch, 60*time.Second)
	return time.Since(at), err
}

// lastStopped makes one executor the only one of a phase and stops it. The planner gives
// the phase to another one; only then the first one wakes.
func (k *killer) lastStopped(ctx context.Context) (time.Duration, error) {
	stage, other := schemas.StagePrefill, schemas.RoleDecode
	if k.ch.rng.IntN(2) == 0 {
		stage, other = schemas.StageDecode, schemas.RolePrefill
	}
	k.w.mu.Lock()
	ids := k.w.has(stage, "")
	k.w.mu.Unlock()
	if len(ids) == 0 {
		return 0, fmt.Errorf("nobody is assigned to %s", stage)
	}
	for _, id := range ids[1:] {
		epoch, err := k.ch.write(ctx, id, other)
		if err == nil {
			err = k.w.taken(ctx, id, epoch, 60*time.Second)
		}
		if err != nil {
			return 0, err
		}
	}
	at := time.Now()
	if _, err := k.stack.Kill(ids[0], syscall.SIGSTOP); err != nil {
		return 0, err
	}
	err := k.w.wait(ctx, 60*time.Second, fmt.Sprintf("the planner gives somebody else to %s than %s, which is stopped", stage, ids[0]), func() bool {
		for _, id := range k.w.has(stage, "planner") {
			if id != ids[0] && k.w.inForce[id] == k.w.newest[id] {
				return true
			}
		}
		return false
	})
	took := time.Since(at)
	_, wake := k.stack.Kill(ids[0], syscall.SIGCONT)
	return took, errors.Join(err, wake)
}
