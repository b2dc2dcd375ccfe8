package llamacpp

import (
	"unsafe"

	"github.com/ebitengine/purego"
)

// caller makes the calls that run on every step. They go through SyscallN with
// arguments in a reused array: no reflection, no allocation. It belongs to the
// goroutine of its Engine. Pointers that it passes lead into arenas, never to
// memory that the garbage collector may move or free.
type caller struct {
	api  *api
	args [13]uintptr // context, five unused registers, seven words of a batch
}

// invoke calls f with the first n words of args.
func (c *caller) invoke(f uintptr, n int) uintptr {
	r, _, _ := purego.SyscallN(f, c.args[:n]...)
	return r
}

// decode calls llama_decode and returns its code: 0 done, 1 no room, -1 refused,
// others failed. How a batch is passed by value depends on the architecture
// (passBatch in call_amd64.go and call_arm64.go).
func (c *caller) decode(context uintptr, b *batch) int32 {
	c.args[0] = context
	return int32(c.invoke(c.api.decode, c.passBatch(b)))
}

// logitsRow gives n logits of row i of the last batch. The memory belongs to the
// context. It waits for the device. nil when the row did not ask for logits.
func (c *caller) logitsRow(context uintptr, i, n int) []float32 {
	c.args[0], c.args[1] = context, uintptr(i)
	r := c.invoke(c.api.logits, 2)
	if r == 0 {
		return nil
	}
	// r is C memory; the detour keeps vet's unsafeptr check meaningful elsewhere.
	return unsafe.Slice(*(**float32)(unsafe.Pointer(&r)), n)
}

// exportState writes the state of seq to buf and returns the bytes written.
func (c *caller) exportState(context uintptr, buf []byte, seq int32) int {
	return c.state(c.api.stateGet, context, buf, seq)
}

// importState replaces the state of seq by buf and returns the bytes read; 0 means
// that the library refused them.
func (c *caller) importState(context uintptr, buf []byte, seq int32) int {
	return c.state(c.api.stateSet, context, buf, seq)
}

func (c *caller) state(f, context uintptr, buf []byte, seq int32) int {
	c.args[0], c.args[1], c.args[2], c.args[3], c.args[4] = context, address(buf), uintptr(len(buf)), uintptr(seq), 0
	return int(c.invoke(f, 5))
}

// applySampler lets a sampler change the logits of candidates.
func (c *caller) applySampler(sampler uintptr, candidates []tokenDataArray) {
	c.args[0], c.args[1] = sampler, address(candidates)
	c.invoke(c.api.samplerApply, 2)
}

// acceptToken advances a sampler. A grammar throws on a token it forbids.
func (c *caller) acceptToken(sampler uintptr, token int32) {
	c.args[0], c.args[1] = sampler, uintptr(token)
	c.invoke(c.api.samplerAccept, 2)
}
