package peer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weir-dev/weir/kvtier/hostmem"
)

// attachTime bounds joining a pool: a request waits for it.
const attachTime = time.Second

// pools are the pools that a server has joined. A joined pool is used by requests, and
// left when there was none for a while.
type pools struct {
	cfg ServerConfig

	mu     sync.Mutex
	closed bool
	next   int // number of the next writer id
	open   map[poolID]*joined
}

type poolID struct {
	name  string
	block int64
}

// joined is one pool. mu serialises joining and leaving; pools.mu guards the rest.
type joined struct {
	mu     sync.Mutex
	mem    *hostmem.Client
	writer string
	users  int
	timer  *time.Timer
}

func (p *pools) init(cfg ServerConfig) {
	p.cfg = cfg
	// A server that was killed leaves its ids locked for a moment.
	n := newNonce()
	p.cfg.Writer = fmt.Sprintf("%s-%x", cfg.Writer, n[:4])
	p.open = map[poolID]*joined{}
}

func (p *pools) joined() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.open)
}

// use joins a pool for one request. leave ends it; the memory must not be used
// afterwards.
func (p *pools) use(ctx context.Context, id poolID) (mem *hostmem.Client, leave func(), err error) {
	j, err := p.seat(id)
	if err != nil {
		return nil, nil, err
	}
	leave = func() { p.leave(id, j) }
	if mem, err = j.attach(ctx, p.cfg.Dir, id); err != nil {
		leave()
		return nil, nil, err
	}
	return mem, leave, nil
}

// seat counts one more user of a pool. An unused pool gives its place to a new one.
func (p *pools) seat(id poolID) (*joined, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, ErrClosed
	}
	j := p.open[id]
	if j != nil && j.users == 0 && j.mem != nil && j.mem.Err() != nil {
		p.drop(id, j) // the pool gave way to another one, or its file was replaced
		j = nil
	}
	if j == nil {
		if len(p.open) >= p.cfg.MaxPools && !p.dropUnused() {
			return nil, fmt.Errorf("%w: %d pools are in use", ErrBusy, len(p.open))
		}
		p.next++
		j = &joined{writer: fmt.Sprintf("%s-%d", p.cfg.Writer, p.next)}
		p.open[id] = j
	}
	if j.timer != nil {
		j.timer.Stop()
		j.timer = nil
	}
	j.users++
	return j, nil
}

func (p *pools) dropUnused() bool {
	for id, j := range p.open {
		if j.users == 0 {
			p.drop(id, j)
			return true
		}
	}
	return false
}

// drop leaves a pool without users; p.mu is held.
func (p *pools) drop(id poolID, j *joined) {
	if j.timer != nil {
		j.timer.Stop()
	}
	delete(p.open, id)
	if j.mem != nil {
		_ = j.mem.Close()
	}
}

// leave counts one user less, and drops a pool that could not be joined or that
// nobody uses for a while.
func (p *pools) leave(id poolID, j *joined) {
	p.mu.Lock()
	defer p.mu.Unlock()
	j.users--
	if j.users > 0 || p.open[id] != j {
		return
	}
	if p.closed || j.mem == nil || j.mem.Err() != nil {
		p.drop(id, j)
		return
	}
	j.timer = time.AfterFunc(p.cfg.Linger, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if j.users == 0 && p.open[id] == j {
			p.drop(id, j)
		}
	})
}

// attach joins the pool if that has not been done. A pool that was replaced by a new
// file is joined anew once its present users are done.
func (j *joined) attach(ctx context.Context, dir string, id poolID) (*hostmem.Client, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.mem != nil {
		return j.mem, nil
	}
	ctx, cancel := context.WithTimeout(ctx, attachTime)
	defer cancel()
	mem, err := hostmem.Attach(ctx, hostmem.Options{
		Dir: dir, Writer: j.writer, Pool: id.name, BlockBytes: id.block, Existing: true, Cache: -1, Wait: -1,
	})
	if errors.Is(err, hostmem.ErrRefused) {
		return nil, fmt.Errorf("%w: %w", ErrNoPool, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBusy, err)
	}
	j.mem = mem
	return mem, nil
}

// close leaves all pools. No request is under way.
func (p *pools) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for id, j := range p.open {
		p.drop(id, j)
	}
}
