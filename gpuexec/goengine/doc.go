// Package goengine runs llama-architecture GGUF models in pure Go: the fallback
// where the llama.cpp libraries are absent, and the oracle in tests, because every
// token's result is bit-identical whatever was computed beside it.
//
// Read engine.go first (slots and steps), then forward.go (the transformer), then
// kernels_scalar.go: it defines the arithmetic, operation by operation; the AVX2
// assembly repeats it bit for bit.
//
// Arithmetic rules that keep results exact:
//   - no fused multiply-add anywhere: float32(a*b) + c in Go, VMULPS and VADDPS in
//     assembly, so that arm64 and amd64 compilers cannot differ;
//   - every sum has one fixed order that depends on a token's own position only;
//   - integer dot products of Q8_0 blocks are exact in any order.
package goengine
