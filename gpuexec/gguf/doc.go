// Package gguf reads and writes GGUF v3, the model file format that llama.cpp
// and weir's own engine share.
//
// Read file.go first (the parser and its bounds), then writer.go (what a file
// must hold), then preset.go (the seeded random models that weir makes itself).
// Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. The package
// is pure: callers pass bytes and writers.
package gguf

import "errors"

// Errors of the reader and the writer; every returned error wraps one of them.
var (
	// ErrTruncated: the file ends before the data that it announces.
	ErrTruncated = errors.New("gguf: file is truncated")
	// ErrUnsupported: well-formed, but a version or type that this package does not know.
	ErrUnsupported = errors.New("gguf: unsupported")
	// ErrFormat: the bytes contradict the format.
	ErrFormat = errors.New("gguf: malformed file")
)
