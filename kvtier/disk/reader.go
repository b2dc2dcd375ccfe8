package disk

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/weir-dev/weir/kvtier"
)

// Reader reads blocks of a folder, in any process. It keeps files open until Close, which
// is due when a few blocks have been read: a deleted segment's bytes stay taken while
// somebody has it open. Read may be called concurrently.
type Reader struct {
	dir string

	mu    sync.Mutex
	files map[string]*reading
}

type reading struct {
	seg    segment
	layout layout
	pool   string
}

// NewReader opens nothing yet.
func NewReader(dir string) *Reader { return &Reader{dir: dir, files: map[string]*reading{}} }

// Read copies the block of key in a pool into dst, which is one block long, and checks
// it. On ErrNotThere, ErrCorrupt and any other error dst holds nothing of use.
func (r *Reader) Read(pool string, key kvtier.Key, pl Place, dst []byte) (b kvtier.Block, crc uint32, err error) {
	f, err := r.open(pl.Segment)
	if err != nil {
		return b, 0, err
	}
	if f.pool != pool || f.layout.block != int64(len(dst)) || pl.Slot < 0 || pl.Slot >= f.layout.slots {
		return b, 0, fmt.Errorf("%w: %s holds pool %q with blocks of %d bytes, wanted %q with %d, slot %d",
			ErrSegment, f.seg.path, f.pool, f.layout.block, pool, len(dst), pl.Slot)
	}
	h, err := f.seg.read(f.layout, pl.Slot, key, pl.Gen, dst)
	return h.block, h.crc, err
}

func (r *Reader) open(name string) (*reading, error) {
	if name != filepath.Base(name) || !strings.HasPrefix(name, segPrefix) || !strings.HasSuffix(name, segSuffix) {
		return nil, fmt.Errorf("%w: name %q", ErrSegment, name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if f, ok := r.files[name]; ok {
		return f, nil
	}
	f, l, pool, _, err := openSegment(filepath.Join(r.dir, name), os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", ErrNotThere, err)
	}
	if err != nil {
		return nil, err
	}
	r.files[name] = &reading{seg: segment{f: f, path: filepath.Join(r.dir, name)}, layout: l, pool: pool}
	return r.files[name], nil
}

// Close closes the files. No Read may be under way.
func (r *Reader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for name, f := range r.files {
		errs = append(errs, f.seg.f.Close())
		delete(r.files, name)
	}
	return errors.Join(errs...)
}

// read copies a block and checks that it is that of key and generation before and after:
// a slot in work says so in its header before its bytes change.
func (seg *segment) read(l layout, slot int64, key kvtier.Key, gen uint64, dst []byte) (slotHeader, error) {
	var head, again [slotBytes]byte
	at := headerBytes + slot*slotBytes
	if _, err := seg.f.ReadAt(head[:], at); err != nil {
		return slotHeader{}, fmt.Errorf("disk: reading %s: %w", seg.path, err)
	}
	h, ok := decodeSlot(head[:])
	if !ok {
		return slotHeader{}, fmt.Errorf("%w: header of slot %d in %s", ErrCorrupt, slot, seg.path)
	}
	if h.state != stSealed || h.block.Key != key || h.gen != gen {
		return slotHeader{}, fmt.Errorf("%w: slot %d in %s holds another block", ErrNotThere, slot, seg.path)
	}
	if _, err := seg.f.ReadAt(dst, l.data+slot*l.stride); err != nil {
		return slotHeader{}, fmt.Errorf("disk: reading %s: %w", seg.path, err)
	}
	sum := Checksum(dst)
	if _, err := seg.f.ReadAt(again[:], at); err != nil {
		return slotHeader{}, fmt.Errorf("disk: reading %s: %w", seg.path, err)
	}
	if !bytes.Equal(head[:], again[:]) {
		return slotHeader{}, fmt.Errorf("%w: slot %d in %s was given to another block meanwhile", ErrNotThere, slot, seg.path)
	}
	if sum != h.crc {
		return slotHeader{}, fmt.Errorf("%w: %s in slot %d of %s", ErrCorrupt, key.Short(), slot, seg.path)
	}
	return h, nil
}
