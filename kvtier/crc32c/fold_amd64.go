package crc32c

import "golang.org/x/sys/cpu"

var wide = cpu.X86.HasAVX512F && cpu.X86.HasAVX512VPCLMULQDQ

// fold multiplies acc on by step bytes and adds the next ones, blocks times.
//
//go:noescape
func fold(acc *[step]byte, data *byte, blocks uintptr, k *[2]uint64)
