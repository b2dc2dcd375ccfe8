package llamacpp

import (
	"unsafe"

	"github.com/ebitengine/purego"
)

// callBatch calls f(context, *b). The System V convention copies a struct of more
// than 16 bytes to the stack, after the integer registers, of which the context
// takes the first; the other five are filled with zeros that nobody reads.
func callBatch(f, context uintptr, b *batch) uintptr {
	w := (*[unsafe.Sizeof(*b) / 8]uintptr)(unsafe.Pointer(b))
	r, _, _ := purego.SyscallN(f, context, 0, 0, 0, 0, 0, w[0], w[1], w[2], w[3], w[4], w[5], w[6])
	return r
}
