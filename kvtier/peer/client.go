package peer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/kvtier/hostmem"
)

// Options of a client. The zero value is usable.
type Options struct {
	// Token that the nodes of one cell share; empty for none. It is not sent.
	Token string
	// Streams is how many connections one Fetch uses at most. 2: one stream leaves a
	// core idle on either side; more than a few gain nothing.
	Streams int
	// Window is how many bytes are asked for ahead of what has arrived, over all
	// streams. Slots are reserved for as much again. At least one block per stream. 32 MiB.
	Window int64
	// MaxConns bounds connections in use, and as many may wait unused. 16.
	MaxConns int
	// MaxPeers bounds the nodes that are remembered as failing. 256.
	MaxPeers int
	// DialTimeout bounds connecting and the exchange before the first request. 500 ms.
	DialTimeout time.Duration
	// ReadTimeout is how long nothing may arrive before a node is taken for stuck. 500 ms.
	ReadTimeout time.Duration
	// Timeout bounds a whole Fetch or List, besides its context. 10 s.
	Timeout time.Duration
	// IdleTime is how long an unused connection is kept. It must be shorter than
	// ServerConfig.IdleTime. 30 s.
	IdleTime time.Duration
	// BackoffMin is how long a node that failed is left alone; the time doubles with each
	// further failure up to BackoffMax. 100 ms, 10 s.
	BackoffMin, BackoffMax time.Duration
}

func (o *Options) fill() {
	set(&o.Streams, 2)
	set(&o.Window, 32<<20)
	set(&o.MaxConns, 16)
	set(&o.MaxPeers, 256)
	set(&o.DialTimeout, 500*time.Millisecond)
	set(&o.ReadTimeout, 500*time.Millisecond)
	set(&o.Timeout, 10*time.Second)
	set(&o.IdleTime, 30*time.Second)
	set(&o.BackoffMin, 100*time.Millisecond)
	set(&o.BackoffMax, 10*time.Second)
}

// Client brings blocks of one pool from other nodes into this node's memory. All
// methods may be called concurrently.
type Client struct {
	opt   Options
	mem   *hostmem.Client
	conns conns
	away  away

	life   sync.RWMutex // held for reading by a Fetch or List; Close takes it for writing
	ctx    context.Context
	cancel context.CancelFunc

	mu      sync.Mutex
	flights map[kvtier.Key]chan struct{} // blocks that are on their way; closed when they have arrived or not
	stats   Stats
}

// Stats are counted since the client was made.
type Stats struct {
	Fetches uint64
	Result
	Failures uint64 // of whole connections or nodes
	Skipped  uint64 // fetches from a node that failed lately
	Conns    int    // unused connections that are kept
}

// Result says what became of the blocks of a Fetch. Asked is the sum of the counts
// before Bytes.
type Result struct {
	Asked     int
	Present   int // were here before
	Brought   int // arrived, were right, and are sealed
	Duplicate int // arrived, but somebody else had sealed them meanwhile
	Joined    int // another Fetch of this client was bringing them; see Match for the outcome
	Missing   int // the node does not hold them
	Corrupt   int // their bytes were not those that had been sealed
	Full      int // there was no room here
	Lost      int // the transfer ended before
	Bytes     int64
}

func (r *Result) add(o Result) {
	r.Asked += o.Asked
	r.Present += o.Present
	r.Brought += o.Brought
	r.Duplicate += o.Duplicate
	r.Joined += o.Joined
	r.Missing += o.Missing
	r.Corrupt += o.Corrupt
	r.Full += o.Full
	r.Lost += o.Lost
	r.Bytes += o.Bytes
}

// NewClient makes a client that seals into mem. It must be closed before mem is.
func NewClient(mem *hostmem.Client, opt Options) *Client {
	opt.fill()
	ctx, cancel := context.WithCancel(context.Background())
	c := &Client{opt: opt, mem: mem, ctx: ctx, cancel: cancel, flights: map[kvtier.Key]chan struct{}{}}
	c.conns.init(opt)
	c.away.init(opt)
	return c
}

// begin opens a section that Close ends and waits for. end must be called when err is
// nil.
func (c *Client) begin(ctx context.Context, addr string) (_ context.Context, end func(), err error) {
	c.life.RLock()
	if c.ctx.Err() != nil {
		c.life.RUnlock()
		return nil, nil, ErrClosed
	}
	if wait := c.away.wait(addr, time.Now()); wait > 0 {
		c.life.RUnlock()
		c.mu.Lock()
		c.stats.Skipped++
		c.mu.Unlock()
		return nil, nil, fmt.Errorf("%w: %s, next try in %s", ErrAway, addr, wait.Round(time.Millisecond))
	}
	ctx, cancel := context.WithTimeout(ctx, c.opt.Timeout)
	off := context.AfterFunc(c.ctx, cancel)
	return ctx, func() { off(); cancel(); c.life.RUnlock() }, nil
}

// List asks a node for the blocks of an extent: those of the n blocks from index from
// on, ending with key, that it holds without a gap before key. It is empty when the
// node does not hold key. What it says is checked when the blocks are fetched and used,
// not before.
func (c *Client) List(ctx context.Context, addr string, e kvtier.Extent) ([]kvtier.Block, error) {
	if e.N < 1 || e.N > maxList || e.From < 0 || e.From > maxIndex-e.N {
		return nil, fmt.Errorf("%w: %d blocks from %d; at most %d are listed at once", ErrProtocol, e.N, e.From, maxList)
	}
	ctx, end, err := c.begin(ctx, addr)
	if err != nil {
		return nil, err
	}
	defer end()
	var chain []kvtier.Block
	err = c.with(ctx, addr, func(cn *conn) error {
		chain, err = cn.list(e)
		return err
	})
	c.settle(ctx, addr, err)
	return chain, err
}

// with runs f on a connection. A kept connection that the node has closed meanwhile is
// replaced once: f must then be able to run again.
func (c *Client) with(ctx context.Context, addr string, f func(*conn) error) error {
	release, err := c.conns.acquire(ctx)
	if err != nil {
		return err
	}
	defer release()
	for {
		cn, err := c.conns.take(ctx, addr, c.mem)
		if err != nil {
			return err
		}
		kept := cn.used
		stop := context.AfterFunc(ctx, func() { _ = cn.nc.Close() })
		err = f(cn)
		if stop() && err == nil {
			c.conns.put(addr, cn)
			return nil
		}
		_ = cn.nc.Close()
		if err == nil {
			return nil // ctx ended after it was done
		}
		if ctx.Err() != nil {
			return fmt.Errorf("peer %s: %w", addr, ctx.Err())
		}
		if !kept || cn.answered {
			return fmt.Errorf("peer %s: %w", addr, err)
		}
	}
}

// settle remembers how a node did. A caller who gave up says nothing about it.
func (c *Client) settle(ctx context.Context, addr string, err error) {
	if err == nil {
		c.away.good(addr)
		return
	}
	if errors.Is(ctx.Err(), context.Canceled) || errors.Is(err, errCrowded) || errors.Is(err, errClosedMemory) {
		return
	}
	c.away.bad(addr, time.Now())
	c.mu.Lock()
	c.stats.Failures++
	c.mu.Unlock()
}

// Stats returns the counters.
func (c *Client) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Conns = c.conns.kept()
	return s
}

// Close ends transfers and waits for them; nothing is written into the memory
// afterwards.
func (c *Client) Close() error {
	c.cancel()
	c.life.Lock()
	defer c.life.Unlock()
	c.conns.close()
	return nil
}
