package llamacpp

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"syscall"

	"github.com/weir-dev/weir/gpuexec/gguf"
)

// Bounds that the library asserts instead of reporting. A value outside of them in
// a model file ends the process (llama.cpp v0.4.0; found by changing every field
// of a model file to odd values).
const (
	maxModelLayers = 512 // LLAMA_MAX_LAYERS
	dataAlignment  = 32  // TENSOR_ALIGNMENT of ggml
)

// checkFile reads a model file's header and refuses what would abort the library,
// or what it would only hint at. Errors wrap ErrModel. Tensor data is not read.
func checkFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: no file %s", ErrModel, path)
		}
		return fmt.Errorf("%w: %w", ErrModel, err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrModel, err)
	}
	if !st.Mode().IsRegular() {
		return fmt.Errorf("%w: %s is not a file", ErrModel, path)
	}
	if st.Size() == 0 {
		return fmt.Errorf("%w: %s is empty", ErrModel, path)
	}
	// Mapped, not read: the header is a small part of what may be many gigabytes.
	mem, err := syscall.Mmap(int(f.Fd()), 0, int(st.Size()), syscall.PROT_READ, syscall.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("%w: map %s: %w", ErrModel, path, err)
	}
	err = checkModelBytes(mem)
	if unmapErr := syscall.Munmap(mem); err == nil {
		err = unmapErr
	}
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrModel, path, err)
	}
	return nil
}

// checkModelBytes checks a whole model file in memory.
func checkModelBytes(b []byte) error {
	f, err := gguf.Parse(b)
	if err != nil {
		return err
	}
	if f.Align%dataAlignment != 0 {
		return fmt.Errorf("general.alignment is %d, the library needs a multiple of %d", f.Align, dataAlignment)
	}
	arch, _, err := gguf.Get[string](f, "general.architecture")
	if err != nil {
		return err
	}
	if err := checkShape(f, arch); err != nil {
		return err
	}
	return checkTokens(f)
}

// checkShape checks layer count, norm epsilons and types of matrices.
func checkShape(f *gguf.File, arch string) error {
	layers, ok, err := f.Uint(arch + ".block_count")
	if err != nil {
		return err
	}
	if ok && (layers < 1 || layers > maxModelLayers) {
		return fmt.Errorf("%s.block_count is %d, the library takes 1 to %d layers", arch, layers, maxModelLayers)
	}
	for _, key := range []string{".attention.layer_norm_rms_epsilon", ".attention.layer_norm_epsilon", ".attention.group_norm_epsilon"} {
		eps, ok, err := gguf.Get[float32](f, arch+key)
		if err != nil {
			return err
		}
		if x := float64(eps); ok && (x < 0 || math.IsNaN(x) || math.IsInf(x, 0)) {
			return fmt.Errorf("%s%s is %v, want a number above or equal 0", arch, key, eps)
		}
	}
	for i := range f.Tensors {
		t := &f.Tensors[i]
		// Integer and double matrices have no product kernel: a call of address 0.
		if t.Type >= ggmlI8 && t.Type <= ggmlF64 && len(t.Dims) > 1 {
			return fmt.Errorf("tensor %q has %v elements, which cannot be multiplied", t.Name, t.Type)
		}
	}
	return nil
}

// ggmlI8 to ggmlF64 are the integer types and double precision.
const (
	ggmlI8  gguf.TensorType = 24
	ggmlF64 gguf.TensorType = 28
)

// checkTokens refuses vocabularies with a text that two tokens share.
func checkTokens(f *gguf.File) error {
	tokens, _, err := gguf.Get[[]string](f, "tokenizer.ggml.tokens")
	if err != nil {
		return err
	}
	seen := make(map[string]int, len(tokens))
	for id, text := range tokens {
		if first, twice := seen[text]; twice {
			return fmt.Errorf("tokens %d and %d are both %q", first, id, text)
		}
		seen[text] = id
	}
	return nil
}
