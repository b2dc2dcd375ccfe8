package tierchaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/kvtier/hostmem"
)

// flipBlocks flips single bits in blocks, one at a time. Each must be seen by a
// reader, the block must go, and it must be possible to store it anew.
func (r *run) flipBlocks(ctx context.Context) error {
	for i, u := range r.universes {
		n := r.opt.Flips
		if u.block > 1<<18 {
			n /= 8
		}
		blocks := u.all()[:8]
		for k := range n {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err := r.flipBlock(i, blocks[k%len(blocks)], k); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *run) flipBlock(class int, b kvtier.Block, k int) error {
	u, mem := r.universes[class], r.observers[class]
	if err := r.ensure(class, b); err != nil {
		return err
	}
	refs := mem.Lease([]kvtier.Key{b.Key})
	if len(refs) != 1 {
		return fmt.Errorf("tierchaos: block %s is not found after it was stored", b.Key.Short())
	}
	mem.Data(refs[0])[r.place(u.block, k)] ^= 1 << (k % 8)
	r.res.Flips++
	seen := !mem.Verify(refs[0])
	if k%2 == 0 {
		seen = !mem.Copy(refs[0], make([]byte, u.block))
	}
	mem.Release(refs)
	if !seen {
		r.res.FlipsMissed++
		return nil
	}
	if !wait(func() bool { return mem.Match([]kvtier.Key{b.Key}) == 0 }) {
		return fmt.Errorf("tierchaos: damaged block %s was not removed", b.Key.Short())
	}
	return nil
}

// place is the byte whose bit is flipped: the ends, where pieces of a copy meet, and
// anywhere.
func (r *run) place(block int64, k int) int64 {
	switch edge := int64(1+r.rng.IntN(8)) * 64; k / 8 % 6 {
	case 0:
		return 0
	case 1:
		return block - 1
	case 2:
		return min(16<<10+edge, block-1)
	case 3:
		return min(3*(16<<10)+edge, block-1)
	case 4:
		return min(32<<10-1+int64(k%2), block-1)
	default:
		return r.rng.Int64N(block)
	}
}

// ensure stores a block that is not there.
func (r *run) ensure(class int, b kvtier.Block) error {
	u, mem := r.universes[class], r.observers[class]
	if mem.Match([]kvtier.Key{b.Key}) == 1 {
		return nil
	}
	var slots []hostmem.Slot
	var err error
	if !wait(func() bool { // a busy machine answers late
		slots, err = mem.Reserve(context.Background(), 1)
		return err == nil
	}) {
		return fmt.Errorf("tierchaos: reserve for %s: %w", b.Key.Short(), err)
	}
	fill(slots[0].Data(), u.owner[b.Key], &b.Key)
	_, err = mem.Seal(slots[0], b)
	return err
}

// tryStore stores a block if there is room at once.
func (r *run) tryStore(class int, b kvtier.Block) {
	u, mem := r.universes[class], r.observers[class]
	slots, err := mem.Reserve(context.Background(), 1)
	if err != nil {
		return
	}
	fill(slots[0].Data(), u.owner[b.Key], &b.Key)
	_, _ = mem.Seal(slots[0], b) // refused when the slot's header is damaged
}

// flipHeaders flips single bits in slot headers and indexes, one after the other and
// without repair. What is served must be right all the time, and a daemon must be
// able to start on what is left of it.
func (r *run) flipHeaders(ctx context.Context) error {
	pools, _ := r.stats()
	for i, u := range r.universes {
		path, from, to, err := r.headers(pools, i)
		if err != nil {
			return err
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		blocks := u.all()
		buf := make([]byte, u.block)
		for k := range r.opt.Flips {
			if err := errors.Join(ctx.Err(), flipAt(f, from+r.rng.Int64N(to-from), k)); err != nil {
				_ = f.Close()
				return err
			}
			r.res.HeaderFlips++
			for range 8 {
				r.judge(i, blocks[r.rng.IntN(len(blocks))], buf)
			}
		}
		if err := f.Close(); err != nil {
			return err
		}
		for range 64 { // storing goes on as far as it can; what is damaged may refuse
			r.tryStore(i, blocks[r.rng.IntN(len(blocks))])
		}
	}
	r.daemon.kill()
	if err := r.startDaemon(); err != nil {
		return fmt.Errorf("tierchaos: start on damaged headers: %w", err)
	}
	for i, u := range r.universes {
		if !wait(r.observers[i].Connected) {
			return fmt.Errorf("tierchaos: observer %s was not connected again", classes[i].name)
		}
		buf := make([]byte, u.block)
		for _, b := range u.all() {
			r.judge(i, b, buf)
		}
		for _, b := range u.all()[:8] {
			if err := r.ensure(i, b); err != nil {
				return err
			}
			r.judge(i, b, buf)
		}
	}
	if !wait(func() bool { pools, _ = r.stats(); return pools[0].Reserved+pools[1].Reserved <= 64 }) {
		r.problem("reservations stay after headers were damaged")
	}
	if _, err := r.daemon.ask(cmdCheck); err != nil {
		r.problem("integrity after damage to headers: %v", err)
	}
	return nil
}

// judge reads a block and its description; not to be served is right.
func (r *run) judge(class int, b kvtier.Block, buf []byte) {
	if wrong, ok := readBlock(r.observers[class], r.universes[class], b, buf); ok && wrong > 0 {
		r.res.HeaderWrong++
	}
	if got, ok := r.observers[class].Block(b.Key); ok && got != b {
		r.res.HeaderWrong++
	}
}

// headers is the part of a pool's file that is neither its own header nor data.
func (r *run) headers(pools []hostmem.PoolStats, class int) (path string, from, to int64, err error) {
	files, err := filepath.Glob(filepath.Join(r.dir, "pool-*.kv"))
	if err != nil {
		return "", 0, 0, err
	}
	for _, p := range pools {
		if p.BlockBytes != classes[class].block {
			continue
		}
		for _, path := range files {
			if st, err := os.Stat(path); err == nil && st.Size() == p.FileBytes {
				return path, headersAt, p.FileBytes - int64(p.Total)*p.BlockBytes, nil
			}
		}
	}
	return "", 0, 0, fmt.Errorf("tierchaos: no file of pool %s", classes[class].name)
}

// headersAt is where the slot headers of a pool's file begin.
const headersAt = 12 << 10

func flipAt(f *os.File, off int64, k int) error {
	var b [1]byte
	if _, err := f.ReadAt(b[:], off); err != nil {
		return err
	}
	b[0] ^= 1 << (k % 8)
	_, err := f.WriteAt(b[:], off)
	return err
}
