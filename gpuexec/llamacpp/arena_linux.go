package llamacpp

import "syscall"

// adviseHuge asks for huge pages: state copies touch megabytes, and faulting them
// in 4 KiB at a time took longer than the copy. It is advice; refusal is harmless.
func adviseHuge(mem []byte) {
	_ = syscall.Madvise(mem, 14) // MADV_HUGEPAGE
}
