package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/weir-dev/weir/kvtier"
)

const (
	lockName     = "disk.lock"
	segPrefix    = "seg-"
	segSuffix    = ".kvd"
	makingSuffix = ".making"
	folderMode   = 0o700
	fileMode     = 0o600
)

// Store is the one writer of a folder. All methods may be called concurrently.
//
// Lock order: io before mu. io is held while files are written or removed and while
// tables change; mu while they change or are looked at, for times of use and for the
// order of eviction. So looking and ordering never wait for the disk, and whoever holds io
// may look without mu at all but times of use and order.
type Store struct {
	cfg  Config
	lock *os.File

	io sync.Mutex
	mu sync.Mutex

	pools    []*pool
	branches map[kvtier.BranchID]branch
	used     int64 // bytes of all segments
	full     bool  // the filesystem gave no more
	off      error // why nothing is written any more
	closed   bool
	count    counters
}

type counters struct {
	writes, written, hits, replaced, corrupt, torn, erased uint64
}

// Open takes the folder over, however its last owner ended: it reads the headers of all
// segments, a sequential read of 128 bytes per block, and keeps what is sealed. Files
// that are no segments of this version are removed if they have a segment's name. It
// returns ErrBusy when another process owns the folder.
func Open(cfg Config) (*Store, error) {
	cfg.fill()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Dir, folderMode); err != nil {
		return nil, fmt.Errorf("disk: folder: %w", err)
	}
	lock, err := lockFolder(cfg.Dir)
	if err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg, lock: lock, branches: map[kvtier.BranchID]branch{}}
	if err := s.load(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func lockFolder(dir string) (*os.File, error) {
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return nil, fmt.Errorf("disk: lock file: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: %s; give every node a folder of its own", ErrBusy, path)
		}
		return nil, fmt.Errorf("disk: lock %s: %w", path, err)
	}
	return f, nil
}

// load finds the segments of earlier lives, and makes them fit into the budget.
func (s *Store) load() error {
	entries, err := os.ReadDir(s.cfg.Dir) // sorted by name: by pool, then by number
	if err != nil {
		return fmt.Errorf("disk: folder: %w", err)
	}
	for _, e := range entries {
		path := filepath.Join(s.cfg.Dir, e.Name())
		switch {
		case !strings.HasPrefix(e.Name(), segPrefix):
		case strings.HasSuffix(e.Name(), makingSuffix): // its maker died
			err = os.Remove(path)
		case strings.HasSuffix(e.Name(), segSuffix):
			err = s.loadSegment(path)
		}
		if err != nil {
			return fmt.Errorf("disk: %w", err)
		}
	}
	for _, p := range s.pools {
		s.rebuild(p)
	}
	for s.used > s.cfg.Bytes { // the budget was larger once
		p, seg := s.coldest(nil, 1<<63-1)
		if p == nil {
			break
		}
		if _, err := s.release(p, seg); err != nil {
			return err
		}
	}
	return nil
}

// loadSegment opens a segment, or removes a file that cannot be one.
func (s *Store) loadSegment(path string) error {
	f, l, name, number, err := openSegment(path, os.O_RDWR)
	if err != nil && !errors.Is(err, ErrSegment) {
		return err
	}
	var p *pool
	if err == nil {
		p = s.poolOf(name, l)
	}
	if p == nil || p.path(s.cfg.Dir, number) != path || number < len(p.segs) && p.segs[number] != nil {
		if f != nil {
			_ = f.Close()
		}
		s.cfg.Logger.Warn("file of the KV disk removed: it is no segment that this version can use", "file", path, "error", err)
		return os.Remove(path)
	}
	for len(p.segs) <= number {
		p.segs = append(p.segs, nil)
	}
	p.segs[number] = &segment{f: f, path: path}
	s.used += l.file
	return nil
}

// poolOf finds or makes the pool of a segment that lies there; nil if its other segments
// are cut differently, or there are too many pools.
func (s *Store) poolOf(name string, l layout) *pool {
	for _, p := range s.pools {
		if p.name == name && p.layout.block == l.block {
			if p.layout != l {
				return nil
			}
			return p
		}
	}
	if len(s.pools) == maxPools {
		return nil
	}
	p := newPool(name, l, s.cfg.Bytes)
	s.pools = append(s.pools, p)
	return p
}

// rebuild makes the table of a pool from its slot headers. Slots in which a write had
// begun, or whose header is damaged, are overwritten: nobody could find their bytes to
// erase them.
func (s *Store) rebuild(p *pool) {
	var dirty []kvtier.SlotID
	heads := make([]byte, p.layout.slots*slotBytes)
	loaded := -1
	var broken error
	p.segs = append(p.segs, make([]*segment, max(0, p.most-len(p.segs)))...)
	p.use = make([]int64, p.total())
	var refused []kvtier.SlotID
	p.slots, refused = kvtier.Restore(p.total(), func(id kvtier.SlotID) kvtier.Saved {
		n, i := p.at(id)
		seg := p.segs[n]
		if seg == nil {
			return kvtier.Saved{}
		}
		if loaded != n {
			loaded = n
			if _, broken = seg.f.ReadAt(heads, headerBytes); broken != nil {
				clear(heads)
				s.cfg.Logger.Warn("blocks of the KV disk given up: their headers cannot be read", "file", seg.path, "error", broken)
			}
		}
		h, ok := decodeSlot(heads[i*slotBytes:])
		switch {
		case !ok:
			s.count.torn++
			dirty = append(dirty, id)
		case h.state == stSealed:
			p.use[id], seg.newest = h.use, max(seg.newest, h.use)
			return kvtier.Saved{State: kvtier.SlotSealed, Gen: h.gen, Block: h.block, Use: h.use}
		case h.gen > 0:
			dirty = append(dirty, id)
		}
		p.free++
		return kvtier.Saved{Gen: h.gen}
	})
	p.free += len(refused)
	for _, id := range append(dirty, refused...) {
		if err := p.wipe(id); err != nil {
			s.fail(fmt.Errorf("overwriting a slot of %s: %w", p.segOf(id).path, err))
		}
	}
}

// fail switches writing off and says so once. What was written may still be read.
func (s *Store) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.off == nil && !s.closed {
		s.off = err
		s.cfg.Logger.Error("the KV disk is switched off: nothing more is written to it until the next start; the tier goes on without", "dir", s.cfg.Dir, "error", err)
	}
}

// Close ends the store. What is written stays for the next one.
func (s *Store) Close() error {
	s.io.Lock()
	defer s.io.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	var errs []error
	for _, p := range s.pools {
		for _, seg := range p.segs {
			if seg != nil {
				errs = append(errs, seg.f.Close())
			}
		}
	}
	return errors.Join(append(errs, s.lock.Close())...)
}

// PoolStats is what one pool has on the disk.
type PoolStats struct {
	Pool       string
	BlockBytes int64
	FileBytes  int64
	Blocks     int
}

// Stats is the state of a store. Counters are those since it was opened.
type Stats struct {
	Dir      string
	Capacity int64 // bytes configured
	Used     int64 // bytes of all files; at most Capacity
	Blocks   int
	Pools    []PoolStats

	Writes   uint64 // blocks written
	Written  uint64 // bytes of them
	Hits     uint64 // blocks that readers were sent to
	Replaced uint64 // blocks that gave way to others
	Corrupt  uint64 // blocks dropped because their bytes were wrong
	Torn     uint64 // headers that were damaged when the store was opened
	Erased   uint64 // blocks overwritten on request

	Full bool   // the filesystem gave no more room before Capacity was reached
	Off  string // why nothing is written any more; empty while all is well
}

// Stats returns the state and the counters.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := Stats{
		Dir: s.cfg.Dir, Capacity: s.cfg.Bytes, Used: s.used, Full: s.full,
		Writes: s.count.writes, Written: s.count.written, Hits: s.count.hits, Replaced: s.count.replaced,
		Corrupt: s.count.corrupt, Torn: s.count.torn, Erased: s.count.erased,
	}
	if s.off != nil {
		out.Off = s.off.Error()
	}
	for _, p := range s.pools {
		n := p.slots.Counts().Sealed
		out.Blocks += n
		out.Pools = append(out.Pools, PoolStats{Pool: p.name, BlockBytes: p.layout.block, FileBytes: p.fileBytes(), Blocks: n})
	}
	return out
}
