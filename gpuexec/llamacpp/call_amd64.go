package llamacpp

import "unsafe"

// passBatch puts *b behind the context and returns the number of words. The
// System V convention copies a struct of more than 16 bytes to the stack, after
// the integer registers, of which the context takes the first; nobody reads the
// other five.
func (c *caller) passBatch(b *batch) int {
	words := (*[unsafe.Sizeof(*b) / 8]uintptr)(unsafe.Pointer(b))
	return 6 + copy(c.args[6:], words[:])
}
