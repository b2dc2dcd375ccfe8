package llamacpp

import (
	"fmt"
	"syscall"
	"unsafe"
)

// arena is anonymous memory outside the Go heap. The library keeps no pointer
// into it after a call, but batches hold pointers to arrays, and pinning those on
// every step would cost more than the memory is worth; outside the heap nothing
// needs pinning and large scratch buffers are no work for the collector.
type arena struct{ mem []byte }

// grow makes at least n bytes available and returns them. Content is lost when
// the memory had to be replaced.
func (a *arena) grow(n int) ([]byte, error) {
	if n <= len(a.mem) {
		return a.mem[:n], nil
	}
	if err := a.free(); err != nil {
		return nil, err
	}
	// A quarter more: a sequence that grows by a block at each seal then replaces
	// its scratch buffer a few times, not every time.
	size := (n + n/4 + hugePage - 1) / hugePage * hugePage
	mem, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("llama: %d bytes of scratch memory: %w", size, err)
	}
	adviseHuge(mem)
	a.mem = mem
	return mem[:n], nil
}

func (a *arena) free() error {
	if a.mem == nil {
		return nil
	}
	mem := a.mem
	a.mem = nil
	return syscall.Munmap(mem)
}

// hugePage is the step in which arenas grow: the usual size of a huge page.
const hugePage = 2 << 20

// carve cuts count values of T from the front of mem and returns the rest. mem
// must be aligned for T and long enough; sizes are computed by the caller.
func carve[T any](mem []byte, count int) (values []T, rest []byte) {
	var zero T
	n := count * int(unsafe.Sizeof(zero))
	_ = mem[:n]
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(mem))), count), mem[(n+7)/8*8:]
}

// address is the C address of the first value of s, which lies in an arena.
func address[T any](s []T) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(s))) }
