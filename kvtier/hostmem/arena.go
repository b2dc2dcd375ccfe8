package hostmem

import (
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// arena is one mapped pool file. All processes of the host that use the pool map
// the same pages.
type arena struct {
	layout
	path string
	pool string
	id   [16]byte // drawn when the file was made: tells it from a later file of the same name
	mem  []byte
}

// openArena maps a pool file and checks its header.
func openArena(path string) (*arena, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("hostmem: open pool: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("hostmem: pool %s: %w", path, err)
	}
	if st.Size() < headerBytes {
		return nil, fmt.Errorf("%w: %s: %d bytes; delete it or choose another folder", ErrLayout, path, st.Size())
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("hostmem: map %d bytes of %s: %w", st.Size(), path, err)
	}
	adviseHuge(mem)
	a := &arena{path: path, mem: mem}
	if a.layout, a.pool, a.id, err = readHeader(mem, st.Size(), path); err != nil {
		_ = unix.Munmap(mem)
		return nil, err
	}
	return a, nil
}

// close unmaps the file. No slice of it may be used afterwards.
func (a *arena) close() error {
	mem := a.mem
	a.mem = nil
	if mem == nil {
		return nil
	}
	return unix.Munmap(mem)
}

func (a *arena) epoch() *atomic.Uint64    { return ptr[atomic.Uint64](a.mem, offEpoch) }
func (a *arena) pressure() *atomic.Uint32 { return ptr[atomic.Uint32](a.mem, offPressure) }

// data is the block's bytes in slot i.
func (a *arena) bytes(i uint32) []byte {
	off := a.data + int64(i)*a.stride
	return a.mem[off : off+a.block : off+a.block]
}

// leases has one bit per client that reads slot i. They lie side by side, so that a
// client that ended is cleared from a million slots within milliseconds.
func (a *arena) leases(i uint32) *atomic.Uint64 {
	return ptr[atomic.Uint64](a.mem, offLeases+int64(i)*leaseBytes)
}

func (a *arena) slot(i uint32) slot {
	return slot{mem: a.mem, off: a.headers + int64(i)*slotBytes}
}
