//go:build !amd64

package goengine

// bestKernels are the fastest ones of this processor.
func bestKernels() *kernels { return scalarKernels() }
