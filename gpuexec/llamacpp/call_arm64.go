package llamacpp

import (
	"unsafe"

	"github.com/ebitengine/purego"
)

// callBatch calls f(context, *b). AAPCS64 passes a struct of more than 16 bytes
// as a pointer to a copy; b is written anew before every call, so it is the copy.
// It must not lie on a Go stack, which may move (see arena.go).
func callBatch(f, context uintptr, b *batch) uintptr {
	r, _, _ := purego.SyscallN(f, context, uintptr(unsafe.Pointer(b)))
	return r
}
