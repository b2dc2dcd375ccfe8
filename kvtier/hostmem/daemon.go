package hostmem

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/kvtier/retain"
)

// Daemon is the one allocator of a host's KV memory. One goroutine (loop) owns
// everything below cmds; connections and callers hand it closures.
//
// Executors go on reading and sealing while no daemon runs. A new one takes over
// the same folder, however the last one ended.
type Daemon struct {
	cfg    Config
	lock   *os.File
	life   uint64
	ln     net.Listener
	cmds   chan func()
	events chan Batch
	quit   chan struct{}
	ended  chan struct{} // closed when no command runs any more
	once   sync.Once
	wg     sync.WaitGroup

	store  *store
	pools  []*pool // in the order in which they came
	turn   int     // whose events are sent next
	parted []Batch // the last of pools that are gone
	graves *graves
	keeper *retain.Keeper
	spill  *spill // nil without a disk
	conns  map[*conn]struct{}
}

// probeEvery is how often the daemon looks at the locks of clients that are not
// connected, and again at reservations that wait.
const (
	probeEvery = 50 * time.Millisecond
	never      = time.Duration(1<<63 - 1)
	maxParted  = 64
)

// NewDaemon opens or makes the folder, allocates the budget, rebuilds the pools
// that are there, and serves. It returns ErrNoSpace when the filesystem is too
// small, ErrBusy when another daemon owns the folder, ErrLayout for a pool file
// of another version.
func NewDaemon(cfg Config) (*Daemon, error) {
	cfg.fill()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("hostmem: folder: %w", err)
	}
	lock, err := lockFile(filepath.Join(cfg.Dir, daemonLock))
	if err != nil {
		return nil, fmt.Errorf("another tier daemon owns %s: %w", cfg.Dir, err)
	}
	d := &Daemon{
		cfg: cfg, lock: lock, cmds: make(chan func(), 64), events: make(chan Batch, cfg.EventBatches),
		quit: make(chan struct{}), ended: make(chan struct{}), conns: map[*conn]struct{}{},
	}
	if d.life, err = nextLife(lock, time.Now()); err != nil {
		_ = lock.Close()
		return nil, err
	}
	store, arenas, err := openStore(cfg)
	if err != nil {
		_ = lock.Close()
		return nil, err
	}
	d.store = store
	d.graves = newGraves(rememberMost, len(arenas) == 0)
	d.keeper = retain.NewKeeper(retain.Config{Policy: cfg.Order})
	if d.spill = openSpill(cfg); d.spill != nil {
		d.keeper.Follow(d.spill.store)
	}
	for _, a := range arenas {
		d.pools = append(d.pools, d.newPool(a))
	}
	d.probe()
	if d.ln, err = listen(cfg.Dir); err != nil {
		d.release()
		return nil, err
	}
	if d.spill != nil {
		d.wg.Add(1)
		go d.runSpill()
	}
	d.wg.Add(2)
	go d.loop()
	go d.accept()
	return d, nil
}

// listen takes the socket's place. The daemon lock is held, so a socket that is
// there has no owner.
func listen(dir string) (net.Listener, error) {
	path := filepath.Join(dir, socketName)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("hostmem: socket: %w", err)
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("hostmem: socket: %w", err)
	}
	return ln, nil
}

// loop runs commands one at a time and passes events on when the reader has room.
func (d *Daemon) loop() {
	defer d.wg.Done()
	defer close(d.ended)
	timer := time.NewTimer(probeEvery)
	defer timer.Stop()
	armed, due := true, time.Now().Add(probeEvery)
	for {
		if pause := d.nextProbe(); pause < never {
			if at := time.Now().Add(pause); !armed || at.Before(due) {
				timer.Reset(pause)
				armed, due = true, at
			}
		}
		d.pickSpill(time.Now())
		var out chan<- Batch
		p, batch := d.nextBatch()
		if len(batch.Events) > 0 {
			out = d.events
		}
		select {
		case f := <-d.cmds:
			f()
		case out <- batch:
			d.sent(p)
		case <-timer.C:
			armed = false
			d.probe()
		case <-d.quit:
			return
		}
	}
}

// nextBatch picks the pool whose events go out next, in turn. It is nil for one that is
// gone.
func (d *Daemon) nextBatch() (*pool, Batch) {
	if len(d.parted) > 0 {
		return nil, d.parted[0]
	}
	for i := range d.pools {
		p := d.pools[(d.turn+i)%len(d.pools)]
		if b, ok := p.out.next(); ok {
			return p, b
		}
	}
	return nil, Batch{}
}

// sent forgets the batch that nextBatch returned.
func (d *Daemon) sent(p *pool) {
	if p == nil {
		d.parted = d.parted[1:]
		return
	}
	p.out.sent()
	d.turn++
}

// part tells that a pool is gone with all that it held. Of many whose end nobody has
// read about yet, the last ones are told of.
func (d *Daemon) part(p *pool) {
	if len(d.parted) == maxParted {
		d.parted = d.parted[1:]
	}
	d.parted = append(d.parted, Batch{
		Pool: p.pool, Epoch: p.out.epoch, Seq: p.out.seq + 1, Gap: p.out.gap, Events: []kvtier.Event{{Kind: kvtier.EventCleared}},
	})
}

func (d *Daemon) accept() {
	defer d.wg.Done()
	for {
		nc, err := d.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors: wait for some to be freed
			select {
			case <-d.quit:
				return
			case <-time.After(probeEvery):
			}
			continue
		}
		if !d.do(func() { d.admit(nc) }) {
			_ = nc.Close()
			return
		}
	}
}

// do hands f to the loop; false once the daemon is closed.
func (d *Daemon) do(f func()) bool {
	select {
	case <-d.quit:
		return false
	default:
	}
	select {
	case d.cmds <- f:
		return true
	case <-d.quit:
		return false
	}
}

// call runs f in the loop and waits for it. With ErrClosed f did not run and will not.
func (d *Daemon) call(f func()) error {
	done := make(chan struct{})
	if !d.do(func() { f(); close(done) }) {
		return ErrClosed
	}
	select {
	case <-done:
		return nil
	case <-d.ended:
	}
	select {
	case <-done: // it was the last one
		return nil
	default:
		return ErrClosed
	}
}

// nextProbe is how long until something may have changed that no message
// announces: a lock that became free, or a reservation whose time is up.
func (d *Daemon) nextProbe() time.Duration {
	next := min(d.nextRank(time.Now()), d.spill.pause(time.Now()))
	for _, p := range d.pools {
		for _, w := range p.writers {
			if w != nil && w.conn == nil {
				next = min(next, probeEvery)
			}
		}
		for _, w := range p.waiting {
			next = min(next, probeEvery, max(0, time.Until(w.deadline)))
		}
	}
	return next
}

// probe reclaims what dead clients held and serves reservations that wait.
func (d *Daemon) probe() {
	d.rank(time.Now())
	for _, p := range d.pools {
		d.bury(p, false)
		p.serveWaiting(time.Now())
	}
}

// bury reclaims every client whose lock is free, and returns how many are left, guests
// not counted.
// A connection is taken as a sign of life unless all is set: the end of one may
// not have been noticed yet.
func (d *Daemon) bury(p *pool, all bool) (alive int) {
	for _, w := range p.writers {
		switch {
		case w == nil:
		case (all || w.conn == nil) && ifDead(d.cfg.Dir, w.id, func() { p.reclaim(w.no) }):
		case !w.guest:
			alive++
		}
	}
	return alive
}

// Close stops serving. Pool files and what is sealed in them stay for the next
// daemon; clients go on reading.
func (d *Daemon) Close() error {
	d.once.Do(func() {
		close(d.quit)
		_ = d.ln.Close()
		d.wg.Wait()
		for c := range d.conns {
			_ = c.nc.Close()
		}
		d.release()
	})
	return nil
}

func (d *Daemon) release() {
	for _, p := range d.pools {
		_ = p.close()
	}
	if err := d.spill.close(); err != nil {
		d.cfg.Logger.Warn("the KV disk did not close well", "error", err)
	}
	_ = d.lock.Close()
}

// Remove closes the daemon and deletes its files: no shared memory is left. Call
// it when the executors have ended.
func (d *Daemon) Remove() error {
	_ = d.Close()
	return d.store.remove()
}
