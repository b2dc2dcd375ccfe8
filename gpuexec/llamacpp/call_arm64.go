package llamacpp

import "unsafe"

// passBatch puts *b behind the context and returns the number of words. AAPCS64
// passes a struct of more than 16 bytes as a pointer to a copy; b is written anew
// before every call, so it is the copy.
func (c *caller) passBatch(b *batch) int {
	c.args[1] = uintptr(unsafe.Pointer(b))
	return 2
}
