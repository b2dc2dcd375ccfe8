package llamacpp

import (
	"unsafe"

	"github.com/ebitengine/purego"
)

// The calls below run on every step. They go through SyscallN, which needs no
// reflection and allocates nothing; how a batch is passed by value depends on the
// architecture (callBatch in call_amd64.go and call_arm64.go).

// runDecode calls llama_decode and returns its code: 0 done, 1 no room,
// -1 refused, others failed.
func (a *api) runDecode(context uintptr, b *batch) int32 {
	return int32(callBatch(a.decode, context, b))
}

// logitsRow gives n logits of row i of the last batch. The memory belongs to the
// context. It waits for the device. nil when the row did not ask for logits.
func (a *api) logitsRow(context uintptr, i, n int) []float32 {
	r, _, _ := purego.SyscallN(a.logits, context, uintptr(i))
	if r == 0 {
		return nil
	}
	// r is C memory; the detour keeps vet's unsafeptr check meaningful elsewhere.
	return unsafe.Slice(*(**float32)(unsafe.Pointer(&r)), n)
}

// wait blocks until the device has finished.
func (a *api) wait(context uintptr) {
	_, _, _ = purego.SyscallN(a.synchronize, context)
}

// exportState writes the state of seq to buf, which must not be moved by the
// garbage collector (see arena.go), and returns the number of bytes written.
func (a *api) exportState(context uintptr, buf []byte, seq int32) int {
	r, _, _ := purego.SyscallN(a.stateGet, context, uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)), uintptr(seq), 0)
	return int(r)
}

// importState replaces the state of seq by buf and returns the number of bytes
// read; 0 means that the library refused them.
func (a *api) importState(context uintptr, buf []byte, seq int32) int {
	r, _, _ := purego.SyscallN(a.stateSet, context, uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)), uintptr(seq), 0)
	return int(r)
}

func (a *api) applySampler(sampler uintptr, candidates *tokenDataArray) {
	_, _, _ = purego.SyscallN(a.samplerApply, sampler, uintptr(unsafe.Pointer(candidates)))
}

func (a *api) acceptToken(sampler uintptr, token int32) {
	_, _, _ = purego.SyscallN(a.samplerAccept, sampler, uintptr(token))
}
