package hostmem

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/kvtier/disk"
)

// What memory will give up soon is written to disk before that, so that eviction itself
// never waits for the disk: the loop looks at the blocks that go next and hands those that
// are not on disk to one goroutine, which copies them and writes the copies. A block that
// is evicted before it was copied is gone, and counted.
const (
	// So many of the blocks that go next should be on disk ahead of time: half of the
	// pool, and no more than these. One prompt may push out a prompt's worth at once.
	spillBlocks = 512
	spillBytes  = 1 << 30
	// spillEvery is how often the loop looks while memory is under pressure.
	spillEvery = 10 * time.Millisecond
)

// spill is the disk below a daemon's memory. The loop owns what is not atomic.
type spill struct {
	store *disk.Store
	queue chan spillItem
	tasks chan func() // what else waits for the disk
	rate  int64

	waiting map[kvtier.Key]bool // handed to the writer
	due     bool                // blocks may be about to go that are not on disk
	next    time.Time           // when to look again
	// epoch grows with every erase: a copy that was made before it is not written.
	epoch atomic.Uint64
	late  uint64 // evicted before they were written
}

type spillItem struct {
	p     *pool
	id    uint32
	gen   uint64
	block kvtier.Block
	use   int64
	epoch uint64
}

// DiskStats is the state of the disk below the memory.
type DiskStats struct {
	disk.Stats
	Late uint64 // blocks that were evicted before they could be written
}

// openSpill opens the disk. One that cannot be used is reported and left out.
func openSpill(cfg Config) *spill {
	if cfg.Disk == "" {
		return nil
	}
	s, err := disk.Open(disk.Config{Dir: cfg.Disk, Bytes: cfg.DiskBytes, Logger: cfg.Logger})
	if err != nil {
		cfg.Logger.Error("the KV disk cannot be used: the tier goes on without; free the folder or name another with --kv-disk", "dir", cfg.Disk, "error", err)
		return nil
	}
	return &spill{
		store: s, queue: make(chan spillItem, spillBlocks), tasks: make(chan func(), 16), rate: cfg.DiskRate,
		waiting: map[kvtier.Key]bool{},
	}
}

// window is how many of a pool's next victims should be on disk.
func (p *pool) window() int {
	return int(max(1, min(p.arena.slots/2, spillBlocks, spillBytes/p.block)))
}

// pickSpill hands the next victims that are not on disk to the writer. It runs in the
// loop, at most every spillEvery.
func (d *Daemon) pickSpill(now time.Time) {
	sp := d.spill
	if sp == nil || !sp.due || len(sp.waiting) > 0 || now.Before(sp.next) {
		return
	}
	sp.next = now.Add(spillEvery)
	for _, p := range d.pools {
		if w := p.window(); p.slots.Counts().Free < w {
			d.pickFrom(p, w)
		}
	}
	sp.due = len(sp.waiting) > 0
}

// look makes the loop look soon whether the blocks that go next are on disk.
func (sp *spill) look() {
	if sp != nil {
		sp.due = true
	}
}

// pause is how long until the loop should look again.
func (sp *spill) pause(now time.Time) time.Duration {
	if sp == nil || !sp.due || len(sp.waiting) > 0 {
		return never
	}
	return max(0, sp.next.Sub(now))
}

// pickFrom looks at the window blocks of a pool that go next: leaves in their order, each
// with the blocks before it, which follow it out.
func (d *Daemon) pickFrom(p *pool, window int) {
	seen := make(map[kvtier.SlotID]bool, window)
	for _, leaf := range p.slots.Order(window, nil) {
		for id := leaf; len(seen) < window && !seen[id]; {
			b, ok := p.slots.Get(id)
			if !ok {
				break
			}
			if c, _ := p.slots.ClassOf(id); c == kvtier.ClassDead {
				break // nobody will ask for it
			}
			seen[id] = true
			d.offer(p, id, b)
			if b.Index == 0 {
				break
			}
			if id, ok = p.slots.Find(b.Parent); !ok {
				break
			}
		}
	}
}

func (d *Daemon) offer(p *pool, id kvtier.SlotID, b kvtier.Block) {
	sp := d.spill
	if sp.waiting[b.Key] || sp.store.Has(p.pool, p.block, b.Key) {
		return
	}
	_, gen := p.slots.State(id)
	it := spillItem{p: p, id: uint32(id), gen: gen, block: b, use: p.LastUse(id), epoch: sp.epoch.Load()}
	select {
	case sp.queue <- it:
		sp.waiting[b.Key] = true
	default: // full: the next look finds it again
	}
}

// runSpill writes until the daemon closes. It is the only one that waits for the disk.
func (d *Daemon) runSpill() {
	defer d.wg.Done()
	var buf []byte
	for {
		select {
		case <-d.quit:
			return
		case f := <-d.spill.tasks:
			f()
		case it := <-d.spill.queue:
			began := time.Now()
			if int64(len(buf)) != it.p.block {
				buf = make([]byte, it.p.block)
			}
			dropped, err := d.writeSpill(it, buf)
			if !d.do(func() { d.spilled(it, dropped, err) }) {
				return
			}
			least := time.Duration(it.p.block * int64(time.Second) / d.spill.rate)
			if pause := least - time.Since(began); pause > 0 {
				select {
				case <-d.quit:
					return
				case <-time.After(pause):
				}
			}
		}
	}
}

// writeSpill copies one block and writes the copy.
func (d *Daemon) writeSpill(it spillItem, buf []byte) ([]disk.Dropped, error) {
	crc, ok := it.copy(buf)
	if !ok {
		return nil, disk.ErrStale
	}
	return d.spill.store.Put(disk.Item{
		Pool: it.p.pool, Block: it.block, Data: buf, CRC: crc, Use: it.use,
		Fresh: func() bool { return d.spill.epoch.Load() == it.epoch },
	})
}

// copy reads the block out of memory; false if it is not there any more, or its bytes are
// not those that were sealed.
func (it *spillItem) copy(buf []byte) (crc uint32, ok bool) {
	it.p.mapped.Lock()
	defer it.p.mapped.Unlock()
	if it.p.mem == nil { // the pool's file is gone
		return 0, false
	}
	s := it.p.slot(it.id)
	w := word(it.gen, stSealed)
	if s.word().Load() != w {
		return 0, false
	}
	want := s.crc().Load()
	crc = copySum(buf, it.p.bytes(it.id))
	return crc, crc == want && s.word().Load() == w
}

// spilled takes the outcome of a write into the loop.
func (d *Daemon) spilled(it spillItem, dropped []disk.Dropped, err error) {
	sp := d.spill
	delete(sp.waiting, it.block.Key)
	d.notice(kvtier.EventDropped, dropped)
	if err != nil {
		return // counted where it went, or the disk has said that it is off
	}
	if _, resident := it.p.slots.Find(it.block.Key); !resident && d.serves(it.p) {
		it.p.out.add(kvtier.Event{Kind: kvtier.EventMoved, Block: it.block})
	}
}

func (d *Daemon) serves(p *pool) bool {
	for _, q := range d.pools {
		if p == q {
			return true
		}
	}
	return false
}

// notice tells of blocks that left the disk. A pool that is not served has no reader.
func (d *Daemon) notice(kind kvtier.EventKind, blocks []disk.Dropped) {
	for _, b := range blocks {
		for _, p := range d.pools {
			if p.pool == b.Pool {
				p.out.add(kvtier.Event{Kind: kind, Block: b.Block})
				break
			}
		}
	}
}

// leaves is the event for a block that leaves memory by a rule, and whether it is lost.
func (p *pool) leaves(b kvtier.Block, rule string) kvtier.EventKind {
	sp := p.spill
	if sp == nil {
		return kvtier.EventEvicted
	}
	switch rule {
	case RuleCleared, RuleChecksum, RuleErased, RuleWriter:
		return kvtier.EventEvicted
	}
	sp.look()
	switch {
	case sp.store.Has(p.pool, p.block, b.Key):
		return kvtier.EventMoved
	case rule != kvtier.ClassDead.String() && !sp.waiting[b.Key]:
		sp.late++
	}
	return kvtier.EventEvicted
}

// Disk returns the state of the disk; ok is false when there is none.
func (d *Daemon) Disk() (st DiskStats, ok bool) {
	if d.spill == nil {
		return st, false
	}
	st.Stats = d.spill.store.Stats()
	_ = d.call(func() { st.Late = d.spill.late }) // 0 once closed
	return st, true
}

// OnDisk lists the blocks on disk for which want is true, most at most; none without a
// disk.
func (d *Daemon) OnDisk(most int, want func(kvtier.Key) bool) []kvtier.Block {
	if d.spill == nil {
		return nil
	}
	return d.spill.store.List(nil, most, want)
}

// close ends the store. The writer has ended.
func (sp *spill) close() error {
	if sp == nil {
		return nil
	}
	return sp.store.Close()
}

// clearDisk empties the disk; what was copied before is not written.
func (d *Daemon) clearDisk() error {
	if d.spill == nil {
		return nil
	}
	d.spill.epoch.Add(1)
	dropped, err := d.spill.store.Clear()
	return errors.Join(err, d.call(func() { d.notice(kvtier.EventDropped, dropped) }))
}
