package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weir-dev/weir/kvtier"
)

// segment is one file, allocated as a whole.
type segment struct {
	f      *os.File
	path   string
	newest int64 // last use of any block in it; never falls
}

// pool is the blocks of one pool: a table of all slots that it could ever have, of which
// those in existing segments can hold a block.
type pool struct {
	name   string
	layout layout
	slots  *kvtier.Slots
	segs   []*segment // by number; nil where there is no file
	most   int        // segments that fit into the budget
	free   int        // free slots that have a file
	use    []int64    // last use, by slot
}

func newPool(name string, l layout, budget int64) *pool {
	return &pool{name: name, layout: l, most: int(max(1, min(budget/l.file, maxBlocks/l.slots)))}
}

// open makes an empty table.
func (p *pool) open() *pool {
	p.segs = make([]*segment, p.most)
	p.slots, p.use = kvtier.NewSlots(p.total()), make([]int64, p.total())
	return p
}

// total is the number of slots in the table. Segments of a time with a larger budget
// count until they are released.
func (p *pool) total() int { return len(p.segs) * int(p.layout.slots) }

// at is the segment of a slot and its place there.
func (p *pool) at(id kvtier.SlotID) (seg int, i int64) {
	return int(int64(id) / p.layout.slots), int64(id) % p.layout.slots
}

func (p *pool) segOf(id kvtier.SlotID) *segment {
	n, _ := p.at(id)
	return p.segs[n]
}

func (p *pool) path(dir string, number int) string {
	return filepath.Join(dir, p.file(number))
}

func (p *pool) file(number int) string {
	return fmt.Sprintf("%s%s-%06d%s", segPrefix, poolName(p.name, p.layout.block), number, segSuffix)
}

func (p *pool) fileBytes() (n int64) {
	for _, seg := range p.segs {
		if seg != nil {
			n += p.layout.file
		}
	}
	return n
}

// Leased is false: readers find out by the header that a block went.
func (p *pool) Leased(kvtier.SlotID) bool         { return false }
func (p *pool) LastUse(id kvtier.SlotID) int64    { return p.use[id] }
func (p *pool) touch(id kvtier.SlotID, now int64) { p.setUse(id, max(now, p.use[id])) }

func (p *pool) setUse(id kvtier.SlotID, use int64) {
	p.use[id] = use
	if seg := p.segOf(id); seg != nil {
		seg.newest = max(seg.newest, use)
	}
}

// reserve gives a free slot that has a file; there must be one.
func (p *pool) reserve() (kvtier.Reservation, bool) {
	var bare []kvtier.Reservation
	defer func() {
		for i := len(bare) - 1; i >= 0; i-- { // they go back in the order in which they lay
			_ = p.slots.Abandon(0, bare[i]) // reserved a moment ago
		}
	}()
	for {
		got := p.slots.Reserve(0, 1, nil)
		if len(got) == 0 {
			return kvtier.Reservation{}, false
		}
		if p.segOf(got[0].Slot) != nil {
			p.free--
			return got[0], true
		}
		bare = append(bare, got[0])
	}
}

// giveBack returns a reserved slot.
func (p *pool) giveBack(r kvtier.Reservation) {
	if p.slots.Abandon(0, r) == nil {
		p.free++
	}
}

// absent is the lowest number without a file; false if all are there.
func (p *pool) absent() (int, bool) {
	for n := range p.most {
		if p.segs[n] == nil {
			return n, true
		}
	}
	return 0, false
}

func (p *pool) writeHead(id kvtier.SlotID, h slotHeader) error {
	n, i := p.at(id)
	_, err := p.segs[n].f.WriteAt(h.encode(), headerBytes+i*slotBytes)
	return err
}

// write stores a block. The header says that the slot is in work until the data is there,
// so a reader or a later life never takes a part of it for the whole.
func (p *pool) write(r kvtier.Reservation, h slotHeader, data []byte) error {
	if err := p.writeHead(r.Slot, slotHeader{state: stFree, gen: r.Gen}); err != nil {
		return err
	}
	n, i := p.at(r.Slot)
	if _, err := p.segs[n].f.WriteAt(data, p.layout.data+i*p.layout.stride); err != nil {
		return err
	}
	h.state, h.gen = stSealed, r.Gen
	return p.writeHead(r.Slot, h)
}

// wipe overwrites a slot's data, then its header: one that is all zeros says that no
// bytes of a block are left.
func (p *pool) wipe(id kvtier.SlotID) error {
	n, i := p.at(id)
	seg := p.segs[n]
	if seg == nil {
		return nil
	}
	_, gen := p.slots.State(id)
	if err := p.writeHead(id, slotHeader{state: stFree, gen: max(1, gen)}); err != nil {
		return err
	}
	zero := make([]byte, min(p.layout.block, 1<<20))
	for at := int64(0); at < p.layout.block; at += int64(len(zero)) {
		piece := zero[:min(int64(len(zero)), p.layout.block-at)]
		if _, err := seg.f.WriteAt(piece, p.layout.data+i*p.layout.stride+at); err != nil {
			return err
		}
	}
	_, err := seg.f.WriteAt(make([]byte, slotBytes), headerBytes+i*slotBytes)
	return err
}

// makeSegment allocates a file under another name first, so that one which lies there is
// whole.
func (p *pool) makeSegment(dir string, number int) (*segment, error) {
	path := p.path(dir, number)
	f, err := os.OpenFile(path+makingSuffix, os.O_RDWR|os.O_CREATE|os.O_TRUNC, fileMode)
	if err != nil {
		return nil, err
	}
	if err = allocate(f, p.layout.file); err == nil {
		if _, err = f.WriteAt(encodeHeader(p.layout, p.name, number), 0); err == nil {
			err = os.Rename(path+makingSuffix, path)
		}
	}
	if err != nil {
		_ = f.Close()
		_ = os.Remove(path + makingSuffix) // half a segment helps nobody
		return nil, err
	}
	return &segment{f: f, path: path}, nil
}

// openSegment opens a file and checks its header.
func openSegment(path string, flag int) (f *os.File, l layout, pool string, number int, err error) {
	f, err = os.OpenFile(path, flag, 0)
	if err != nil {
		return nil, layout{}, "", 0, err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			f = nil
		}
	}()
	st, err := f.Stat()
	if err != nil {
		return f, layout{}, "", 0, err
	}
	head := make([]byte, headerBytes)
	if _, err = f.ReadAt(head, 0); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("%w: %s: %d bytes", ErrSegment, path, st.Size())
	}
	if err != nil {
		return f, layout{}, "", 0, err
	}
	l, pool, number, err = decodeHeader(head, st.Size())
	return f, l, pool, number, err
}

// remove deletes a segment's file.
func (seg *segment) remove() error {
	err := os.Remove(seg.path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, seg.f.Close())
}
