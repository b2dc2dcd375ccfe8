//go:build !amd64

package crc32c

const wide = false

func fold(*[step]byte, *byte, uintptr, *[2]uint64) {}
