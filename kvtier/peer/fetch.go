package peer

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/kvtier/crc32c"
	"github.com/weir-dev/weir/kvtier/hostmem"
)

const (
	// readPiece is how much is read at once: it is summed while it is in the cache.
	readPiece = 256 << 10
	// ahead is how many batches are asked for on a stream before the first of them has
	// arrived, so that the node never waits for a request.
	ahead = 2
	// reserveWait bounds the wait for room: what comes from elsewhere should not make
	// much fall out here.
	reserveWait = 100 * time.Millisecond
)

// fetch is one transfer: one goroutine makes batches of keys and slots, streams take
// them. A stream that asked the daemon for room itself would not read meanwhile.
type fetch struct {
	c       *Client
	ctx     context.Context
	per     int        // blocks in one batch
	batches chan batch // closed when there are no more

	mu   sync.Mutex
	back []batch // that a stream could not use
	// held keeps what came in memory until all has: a transfer that is too large stops
	// instead of evicting its own blocks.
	held []hostmem.Ref
	res  Result
	err  error // the first of a stream
}

// Fetch brings those of keys that this node's memory lacks and the node at addr holds.
// It returns when all have come or are known not to, when ctx or Options.Timeout ends,
// when nothing arrives for Options.ReadTimeout, or when there is no room. The error
// says why a transfer ended early, or could not begin; blocks may have come even so.
func (c *Client) Fetch(ctx context.Context, addr string, keys []kvtier.Key) (Result, error) {
	res := Result{Asked: len(keys)}
	ctx, end, err := c.begin(ctx, addr)
	if err != nil {
		res.Lost = len(keys)
		return res, err
	}
	defer end()
	mine, joined := c.claim(keys, &res)
	if len(mine) > 0 {
		got, ferr := c.run(ctx, addr, mine)
		res.add(got)
		err = ferr
		c.settle(ctx, addr, err)
	}
	for _, ch := range joined {
		select {
		case <-ch:
		case <-ctx.Done():
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Fetches++
	c.stats.add(res)
	return res, err
}

// claim sorts out what is here and what another Fetch brings. The rest is announced
// as on its way.
func (c *Client) claim(keys []kvtier.Key, res *Result) (mine []kvtier.Key, joined []chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range keys {
		if ch := c.flights[keys[i]]; ch != nil {
			res.Joined++
			joined = append(joined, ch)
			continue
		}
		if c.mem.Match(keys[i:i+1]) == 1 {
			res.Present++
			continue
		}
		c.flights[keys[i]] = make(chan struct{})
		mine = append(mine, keys[i])
	}
	return mine, joined
}

func (c *Client) landed(keys []kvtier.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range keys {
		close(c.flights[keys[i]])
		delete(c.flights, keys[i])
	}
}

// run moves blocks over as many streams as the work is worth.
func (c *Client) run(ctx context.Context, addr string, keys []kvtier.Key) (Result, error) {
	defer c.landed(keys)
	streams := c.opt.Streams
	per := int(min(max(1, c.opt.Window/int64(streams*ahead)/c.mem.BlockBytes()), maxGet))
	// A stream must be worth its connection, and small transfers should not be one batch.
	streams = min(streams, (len(keys)+per-1)/per)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	f := &fetch{c: c, ctx: ctx, per: per, batches: make(chan batch, streams)}
	var maker, wg sync.WaitGroup
	maker.Go(func() { f.make(keys) })
	for range streams {
		wg.Go(func() {
			if err := c.with(ctx, addr, f.stream); err != nil {
				f.mu.Lock()
				defer f.mu.Unlock()
				if f.err == nil {
					f.err = err
				}
			}
		})
	}
	wg.Wait()
	stop()
	maker.Wait()
	c.mem.Release(f.held)
	for b := range f.batches {
		f.back = append(f.back, b)
	}
	for _, b := range f.back {
		c.mem.Abandon(b.slots)
		f.res.Lost += len(b.keys)
	}
	return f.res, f.err
}

// batch is keys that are asked for together and the slots for them.
type batch struct {
	keys  []kvtier.Key
	slots []hostmem.Slot
}

// make reserves slots ahead of the streams, until all keys have one, there is no room,
// or the transfer ends.
func (f *fetch) make(keys []kvtier.Key) {
	defer close(f.batches)
	for len(keys) > 0 {
		slots := f.reserve(min(f.per, len(keys)))
		ended := f.ctx.Err() != nil
		if len(slots) == 0 || ended {
			f.c.mem.Abandon(slots)
			f.count(func(r *Result) {
				if ended {
					r.Lost += len(keys)
				} else {
					r.Full += len(keys)
				}
			})
			return
		}
		b := batch{keys[:len(slots)], slots}
		keys = keys[len(slots):]
		select {
		case f.batches <- b:
		case <-f.ctx.Done():
			f.c.mem.Abandon(b.slots)
			f.count(func(r *Result) { r.Lost += len(b.keys) + len(keys) })
			return
		}
	}
}

// reserve takes n slots, or as many as there are.
func (f *fetch) reserve(n int) []hostmem.Slot {
	ctx, cancel := context.WithTimeout(f.ctx, reserveWait)
	defer cancel()
	for ; n > 0 && ctx.Err() == nil; n /= 2 {
		slots, err := f.c.mem.Reserve(ctx, n)
		if err == nil {
			return slots
		}
	}
	return nil
}

// next takes a batch. ok is false when there are no more, or, unless wait is set, none
// is ready.
func (f *fetch) next(wait bool) (b batch, ok bool) {
	f.mu.Lock()
	if n := len(f.back); n > 0 {
		b, f.back = f.back[n-1], f.back[:n-1]
		f.mu.Unlock()
		return b, true
	}
	f.mu.Unlock()
	if wait {
		b, ok = <-f.batches
		return b, ok
	}
	select {
	case b, ok = <-f.batches:
	default:
	}
	return b, ok
}

func (f *fetch) count(change func(*Result)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.res)
}

// stream asks for batches and reads what comes until nothing is left. What was asked
// for and did not come is tried again when the connection had not answered at all,
// because it is then replaced, and is lost otherwise.
func (f *fetch) stream(cn *conn) error {
	var asked []batch
	for {
		for len(asked) < ahead {
			b, ok := f.next(len(asked) == 0)
			if !ok {
				break
			}
			asked = append(asked, b)
			if err := cn.ask(request{op: opGet, n: len(b.keys), keys: b.keys}); err != nil {
				return f.fail(cn, asked, 0, err)
			}
		}
		if len(asked) == 0 {
			return nil
		}
		if at, err := f.read(cn, asked[0]); err != nil {
			return f.fail(cn, asked, at, err)
		}
		asked = asked[1:]
	}
}

// fail gives up what was asked for. at is how many blocks of the first batch came.
func (f *fetch) fail(cn *conn, asked []batch, at int, err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if cn.used && !cn.answered {
		f.back = append(f.back, asked...)
		return err
	}
	for _, b := range asked {
		f.c.mem.Abandon(b.slots[at:])
		f.res.Lost += len(b.keys) - at
		at = 0
	}
	return err
}

// read reads the answer to one batch into its slots. On an error, at is the number of
// blocks that are settled.
func (f *fetch) read(cn *conn, b batch) (at int, err error) {
	var unused []hostmem.Slot
	defer func() { f.c.mem.Abandon(unused) }()
	for i := range b.keys {
		var head [blockBytes]byte
		if _, err := io.ReadFull(reader{cn}, head[:]); err != nil {
			return i, err
		}
		k, err := parseBlock(&head, b.keys[i])
		if err != nil {
			return i, err
		}
		if k.status == statusMissing {
			unused = append(unused, b.slots[i])
			f.count(func(r *Result) { r.Missing++ })
			continue
		}
		got, err := readData(cn, b.slots[i].Data())
		if err != nil {
			return i, err
		}
		if got != k.sum {
			unused = append(unused, b.slots[i])
			f.count(func(r *Result) { r.Corrupt++ })
			continue
		}
		f.seal(b.slots[i], k)
	}
	return len(b.keys), nil
}

// seal publishes a block whose bytes are right.
func (f *fetch) seal(s hostmem.Slot, k block) {
	dup, err := f.c.mem.SealSum(s, k.Block, k.sum)
	if err != nil { // the slot was taken away, or the block cannot be one
		f.c.mem.Abandon([]hostmem.Slot{s})
	}
	refs := f.c.mem.Lease([]kvtier.Key{k.Key})
	f.count(func(r *Result) {
		f.held = append(f.held, refs...)
		switch {
		case err != nil:
			r.Lost++
		case dup:
			r.Duplicate++
		default:
			r.Brought++
			r.Bytes += f.c.mem.BlockBytes()
		}
	})
}

var errClosedMemory = errors.New("peer: the local memory was closed")

// readData fills a slot from the connection and returns the checksum of what came. The
// sum is made piece by piece behind the reads, while the bytes are in the cache.
func readData(cn *conn, dst []byte) (crc uint32, err error) {
	if dst == nil {
		return 0, errClosedMemory
	}
	r := reader{cn}
	for len(dst) > 0 {
		n, err := r.Read(dst[:min(readPiece, len(dst))])
		crc = crc32c.Update(crc, dst[:n])
		dst = dst[n:]
		if err != nil && len(dst) > 0 {
			return crc, err
		}
	}
	return crc, nil
}
