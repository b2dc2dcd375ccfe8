package hostmem

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-dev/weir/kvtier"
)

// Options say who attaches to what.
type Options struct {
	Dir        string // the daemon's folder
	Writer     string // this client, [A-Za-z0-9_-]{1,64}; one living client per id
	Pool       string // everything that must be equal for blocks to be shared: model, engine, KV format
	BlockBytes int64  // bytes of one block
	// Existing: be a guest, who joins the pool only if it is there, instead of making it
	// (ErrRefused when it is not), and does not keep it from giving way to another pool
	// (Err is then ErrRefused).
	Existing bool
	// Cache is how many unused slots may be kept reserved, so that Reserve rarely
	// asks the daemon. 0 means 16, negative none; the daemon caps it to 1/128 of the pool.
	Cache int
	// Wait bounds Reserve when the pool is full or the daemon is away. 0 means 250 ms.
	// Negative: do not wait for room, only (at most 2 s) for the daemon's answer.
	Wait time.Duration
	// Now is the clock of last use in unix nanoseconds; nil means the wall clock.
	Now func() int64
}

func (o *Options) fill() {
	if o.Cache == 0 {
		o.Cache = 16
	}
	if o.Wait == 0 {
		o.Wait = 250 * time.Millisecond
	}
	if o.Now == nil {
		o.Now = func() int64 { return time.Now().UnixNano() }
	}
}

// Client is one process's access to a pool. All methods may be called
// concurrently. Slices from Data stay valid until Close.
type Client struct {
	opt   Options
	lock  *os.File // the writer's lock, held for life
	nonce nonce
	stop  context.CancelFunc
	wg    sync.WaitGroup

	life   sync.RWMutex // held for reading while the mapping is used; Close takes it for writing
	closed bool
	*arena
	bit  uint64 // this client's lease bit
	disk bool   // the daemon had one when this client attached

	leaseMu sync.Mutex
	leases  []uint32 // this client's leases per slot

	out outgoing
}

// Attach takes the writer's lock, joins the pool (the first client of a pool
// makes it), and maps it. It tries until ctx ends if the daemon does not answer,
// and fails at once with ErrBusy (the writer id lives elsewhere), ErrBudget, or
// ErrRefused.
func Attach(ctx context.Context, opt Options) (*Client, error) {
	opt.fill()
	if err := errors.Join(checkWriterID(opt.Writer), checkPool(opt.Pool, opt.BlockBytes), checkSocket(opt.Dir)); err != nil {
		return nil, err
	}
	lock, err := lockWriter(ctx, filepath.Join(opt.Dir, writersFolder, opt.Writer))
	if err != nil {
		return nil, err
	}
	c := &Client{opt: opt, lock: lock, nonce: newNonce()}
	c.out.init()
	if _, err := lock.WriteAt(c.nonce[:], 0); err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("hostmem: writer lock: %w", err)
	}
	l, m, err := c.dialUntil(ctx)
	if err == nil {
		if err = c.open(m); err != nil {
			_ = l.nc.Close()
		}
	}
	if err != nil {
		_ = lock.Close()
		return nil, err
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	c.stop = stop
	c.wg.Add(1)
	go c.run(run, l)
	return c, nil
}

// lockWriter takes the lock. A held one is tried for a second: the daemon holds it
// for the moment in which it reclaims an earlier life of the same id. A folder
// that is not there yet is waited for until ctx ends.
func lockWriter(ctx context.Context, path string) (*os.File, error) {
	for busy := 0; ; {
		f, err := lockFile(path)
		if err == nil {
			return f, nil
		}
		switch {
		case errors.Is(err, ErrBusy):
			if busy++; busy >= 40 {
				return nil, fmt.Errorf("writer id is in use by another living process: %w", err)
			}
		case errors.Is(err, os.ErrNotExist):
			err = fmt.Errorf("%w: no tier folder: %w", ErrDown, err)
		default:
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w (%w)", err, ctx.Err())
		case <-time.After(25 * time.Millisecond):
		}
	}
}

// open maps the pool that the daemon named.
func (c *Client) open(m message) error {
	if m.No < 0 || m.No >= maxWriters || m.File != filepath.Base(m.File) {
		return fmt.Errorf("%w: daemon sent number %d, file %q", ErrRefused, m.No, m.File)
	}
	a, err := openArena(filepath.Join(c.opt.Dir, m.File))
	if err != nil {
		return err
	}
	if a.pool != c.opt.Pool || a.block != c.opt.BlockBytes || nonce(a.id).String() != m.Arena {
		_ = a.close()
		return fmt.Errorf("%w: %s holds pool %q with blocks of %d bytes, wanted %q with %d",
			ErrLayout, a.path, a.pool, a.block, c.opt.Pool, c.opt.BlockBytes)
	}
	c.arena = a
	c.bit = 1 << m.No
	c.leases = make([]uint32, a.slots)
	c.out.cacheMax = max(0, min(c.opt.Cache, m.Cache))
	c.disk = m.Disk
	return nil
}

// Close gives back what is reserved and leased and unmaps the pool. The daemon
// does the rest when it sees the lock free, also if Close is never called.
func (c *Client) Close() error {
	c.life.Lock()
	if c.closed {
		c.life.Unlock()
		return nil
	}
	c.closed = true
	c.life.Unlock()
	err := c.lock.Close() // before the connection ends: the daemon then finds it free at once
	c.stop()
	c.wg.Wait()
	return errors.Join(err, c.arena.close())
}

// use enters a section in which the mapping must stay; false once closed.
func (c *Client) use() bool {
	c.life.RLock()
	if c.closed {
		c.life.RUnlock()
		return false
	}
	return true
}

// BlockBytes is the size of a block.
func (c *Client) BlockBytes() int64 { return c.opt.BlockBytes }

// Capacity is the number of slots in the pool.
func (c *Client) Capacity() int { return int(c.arena.slots) }

// Connected reports whether the daemon answers.
func (c *Client) Connected() bool { return c.out.connected() }

// Err returns ErrReplaced once the daemon serves another file under this pool's
// name: then nothing more can be stored, and the owner should attach again.
func (c *Client) Err() error {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	return c.out.broken
}

// underPressure tells that somebody waits for room.
func (c *Client) underPressure() bool { return c.pressure().Load() != 0 }

// touch records a use. A later time of another reader may be overwritten by a
// slightly earlier one: last use is an estimate.
func touch(u *atomic.Int64, now int64) {
	if u.Load() < now {
		u.Store(now)
	}
}

// Slot is a reserved slot of this client.
type Slot struct {
	c   *Client
	id  uint32
	gen uint64
}

// Data is the memory to write the block into, BlockBytes long. It belongs to the
// caller until Seal or Abandon; nil once the client is closed.
func (s Slot) Data() []byte {
	if s.c == nil || !s.c.use() {
		return nil
	}
	defer s.c.life.RUnlock()
	return s.c.bytes(s.id)
}

// Ref is a leased block. It stays in memory until Release.
type Ref struct {
	Key kvtier.Key
	id  uint32
	gen uint64
}
