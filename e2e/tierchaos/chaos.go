package tierchaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/weir-dev/weir/kvtier/hostmem"
)

// run is one run's state. One goroutine owns it.
type run struct {
	opt       Options
	dir       string
	rng       *rand.Rand
	res       Result
	daemon    *process
	clients   []*member
	universes []*universe
	observers []*hostmem.Client // one per class, in this process: they only read
	begun     int               // client processes so far
	stopped   *member
	wake      time.Time // when the stopped one goes on
	stops     int       // still to be made
}

// member is one client process and its place.
type member struct {
	place int
	class int
	*process
	reports *reports
}

// Run abuses a tier and says what came of it. The error is about the run itself;
// Result.Err tells whether the tier held.
func Run(ctx context.Context, opt Options) (res Result, err error) {
	opt.fill()
	dir, err := arenaDir(opt.Dir)
	if err != nil {
		return Result{}, err
	}
	defer os.RemoveAll(dir)
	r := &run{opt: opt, dir: dir, rng: rand.New(rand.NewPCG(opt.Seed, 1)), stops: 1}
	defer r.end()
	steps := []func(context.Context) error{r.begin, r.abuse, r.quiet, r.flipBlocks, r.flipHeaders, r.remove}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return r.res, err
		}
	}
	return r.res, nil
}

func arenaDir(dir string) (string, error) {
	if dir != "" {
		return dir, os.MkdirAll(dir, 0o700)
	}
	base := ""
	if st, err := os.Stat("/dev/shm"); err == nil && st.IsDir() {
		base = "/dev/shm"
	}
	return os.MkdirTemp(base, "weirchaos")
}

// end leaves no process behind, whatever happened.
func (r *run) end() {
	for _, c := range r.observers {
		_ = c.Close()
	}
	for _, m := range r.clients {
		if m.process != nil {
			m.kill()
		}
	}
	if r.daemon != nil {
		r.daemon.kill()
	}
}

func (r *run) problem(format string, args ...any) {
	p := fmt.Sprintf(format, args...)
	r.opt.Log("problem: %s", p)
	r.res.Problems = append(r.res.Problems, p)
}

// begin starts the daemon, the observers and the clients.
func (r *run) begin(ctx context.Context) error {
	if err := r.startDaemon(); err != nil {
		return err
	}
	for _, c := range classes {
		u := newUniverse(c)
		r.universes = append(r.universes, u)
		r.res.SharedBlocks += u.shared
		wait, cancel := context.WithTimeout(ctx, attachWait)
		mem, err := attach(wait, r.dir, "observer-"+c.name, c)
		cancel()
		if err != nil {
			return err
		}
		r.observers = append(r.observers, mem)
	}
	for place := range r.opt.Clients {
		class := 0
		if place%5 >= 3 { // two in five
			class = 1
		}
		r.clients = append(r.clients, &member{place: place, class: class})
		if err := r.startClient(r.clients[place]); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) startDaemon() error {
	p, err := start(roleDaemon, r.dir, "", 0, 0)
	if err != nil {
		return err
	}
	r.daemon = p
	var ready daemonReply
	return p.next(&ready)
}

// startClient starts a process in a member's place. Every second one takes the
// name of the one before it.
func (r *run) startClient(m *member) error {
	life := 0
	if r.rng.IntN(2) == 0 {
		life = r.begun
	}
	r.begun++
	p, err := start(roleClient, r.dir, fmt.Sprintf("c%d-%d", m.place, life), m.class, r.rng.Uint64())
	if err != nil {
		return err
	}
	m.process, m.reports = p, follow(p)
	if err := m.reports.waitReady(); err != nil { // while the daemon is away it could not attach
		return fmt.Errorf("%s: %w", m.name, err)
	}
	return nil
}

// bury adds up what a client that has ended had done.
func (r *run) bury(m *member) {
	c := m.reports.last()
	r.res.Reads += c.Reads
	r.res.Puts += c.Puts
	r.res.Full += c.Full
	r.res.Down += c.Down
	r.res.Probes += c.Probes
	r.res.Served += c.Served
	r.res.BytesDiffering += c.Differ
	r.res.SharedBlocks += c.Shared
}

// abuse does things to the processes until the time is up.
func (r *run) abuse(ctx context.Context) error {
	end := time.Now().Add(r.opt.For)
	for n := 0; time.Now().Before(end) || r.stopped != nil; n++ {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Duration(20+r.rng.IntN(150)) * time.Millisecond):
		}
		if r.stopped != nil && time.Now().After(r.wake) {
			r.stopped.signal(syscall.SIGCONT)
			r.stopped = nil
		}
		var err error
		switch p := r.rng.IntN(10); {
		case r.stops > 0 && n >= 3:
			r.stop()
		case p < 6:
			err = r.killClient()
		default:
			err = r.restart(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *run) stop() {
	m := r.clients[r.rng.IntN(len(r.clients))]
	m.signal(syscall.SIGSTOP)
	r.stopped, r.wake = m, time.Now().Add(r.opt.StopFor)
	r.stops--
	r.res.Stops++
}

func (r *run) killClient() error {
	m := r.clients[r.rng.IntN(len(r.clients))]
	if m == r.stopped {
		return nil
	}
	m.kill()
	r.bury(m)
	r.res.Kills++
	return r.startClient(m)
}

// restart kills the daemon under load, lets the clients go on for a moment, and
// compares what is there before the next daemon starts with what is there after.
func (r *run) restart(ctx context.Context) error {
	_, before := r.stats()
	r.daemon.kill()
	r.res.Evictions += before
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Duration(r.rng.IntN(200)) * time.Millisecond):
	}
	for _, m := range r.clients {
		if m != r.stopped {
			m.tell(cmdPause)
		}
	}
	for _, m := range r.clients {
		if m != r.stopped {
			if err := m.reports.waitPaused(); err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
		}
	}
	there := r.survey()
	if err := r.startDaemon(); err != nil {
		return err
	}
	for i, mem := range r.observers {
		if !wait(mem.Connected) {
			return fmt.Errorf("tierchaos: observer %s was not connected again", classes[i].name)
		}
	}
	after := r.survey()
	for i, u := range r.universes {
		for _, b := range u.all() {
			if there[i][b.Key] && !after[i][b.Key] {
				r.res.BlocksLost++
			}
		}
		r.res.Checked += len(there[i])
	}
	r.res.Restarts++
	for _, m := range r.clients {
		if m != r.stopped {
			m.tell(cmdResume)
		}
	}
	return nil
}

// stats asks the daemon; evictions are those since it started.
func (r *run) stats() (pools []hostmem.PoolStats, evictions int) {
	reply, err := r.daemon.ask(cmdStats)
	if err != nil {
		r.problem("stats: %v", err)
	}
	for _, p := range reply.Pools {
		evictions += int(p.Evictions)
	}
	return reply.Pools, evictions
}

// quiet ends the clients, one half by kill -9, and looks at what is left.
func (r *run) quiet(context.Context) error {
	for i, m := range r.clients {
		if i%2 == 0 {
			m.tell(cmdQuit)
			m.wait()
		} else {
			m.kill()
		}
		r.bury(m)
	}
	r.clients = nil
	_, n := r.stats()
	r.res.Evictions += n
	for _, u := range r.universes {
		for _, mem := range r.observers {
			_ = mem.Match(keysOf(u.blocks[0][0]))
		}
	}
	var pools []hostmem.PoolStats
	gone := wait(func() bool {
		pools, _ = r.stats()
		for _, p := range pools {
			if p.Clients != 1 || p.Reserved != 0 || p.Leased != 0 {
				return false
			}
		}
		return len(r.res.Problems) > 0 || len(pools) == len(classes)
	})
	for _, p := range pools {
		r.res.BytesLeaked += int64(p.Total-p.Free-p.Sealed+p.Leased) * p.BlockBytes
		if !gone {
			r.problem("after all clients ended pool %s has %d reserved, %d leased, %d clients", p.Pool, p.Reserved, p.Leased, p.Clients)
		}
	}
	if err := r.files(); err != nil {
		return err
	}
	if _, err := r.daemon.ask(cmdCheck); err != nil {
		r.problem("integrity: %v", err)
	}
	return nil
}

// files checks that pools and reserve together are the budget, to the byte.
func (r *run) files() error {
	entries, err := filepath.Glob(filepath.Join(r.dir, "*"))
	if err != nil {
		return err
	}
	total := int64(0)
	for _, e := range entries {
		st, err := os.Stat(e)
		if err != nil {
			return err
		}
		// The lock holds the number of the daemon's life, 8 bytes that are no KV memory.
		if st.Mode().IsRegular() && filepath.Base(e) != "daemon.lock" {
			total += st.Size()
		}
	}
	if total != arenaBytes {
		r.problem("files hold %d bytes, the budget is %d", total, arenaBytes)
		r.res.BytesLeaked += max(total-arenaBytes, arenaBytes-total)
	}
	return nil
}

// remove ends the tier and looks for what it leaves.
func (r *run) remove(context.Context) error {
	for _, c := range r.observers {
		_ = c.Close()
	}
	r.observers = nil
	if _, err := r.daemon.ask(cmdRemove); err != nil {
		r.problem("remove: %v", err)
	}
	return filepath.Walk(r.dir, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			if os.IsNotExist(err) {
				return nil
			}
			return err
		}
		r.problem("%s is left", path)
		r.res.BytesLeaked += max(info.Size(), 1)
		return nil
	})
}

// wait polls a condition that other processes bring about.
func wait(cond func() bool) bool {
	deadline := time.Now().Add(patience)
	for !cond() {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(2 * time.Millisecond)
	}
	return true
}
