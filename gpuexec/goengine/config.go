package goengine

import (
	"fmt"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/gpuexec/gguf"
)

// Options are the bounds of an engine. Zero values give the defaults.
type Options struct {
	Slots   int // resident sequences; default 8
	Context int // tokens per sequence; default: the model's own
	// Blocks bounds the KV blocks held at once, over all sequences; default: enough
	// for Slots full sequences. Memory is taken as blocks fill, never up front.
	Blocks int
	// Scalar switches the assembly kernels off; results are the same bits.
	Scalar bool
}

const (
	defaultSlots = 8
	maxSlots     = 1 << 16
)

// shape is the model's dimensions, in elements.
type shape struct {
	dim, layers, heads, kvHeads, headDim, ffn, vocab, context int
	rotary                                                    int // leading elements of a head that RoPE turns
	eps                                                       float32
	ropeBase                                                  float32
}

func (s *shape) qWidth() int  { return s.heads * s.headDim }
func (s *shape) kvWidth() int { return s.kvHeads * s.headDim }

// Bounds on a model's own numbers: above them a forged header would cost more
// memory than any machine has.
const (
	maxWidth   = 1 << 17
	maxLayers  = 1 << 10
	maxContext = 1 << 22
)

func unsupported(format string, args ...any) error {
	return fmt.Errorf("go engine: "+format+": %w", append(args, gpuexec.ErrUnsupported)...)
}

// readShape reads the llama.* keys and refuses whatever this engine would compute
// wrongly.
func readShape(f *gguf.File) (*shape, error) {
	arch, _, err := gguf.Get[string](f, "general.architecture")
	if err != nil {
		return nil, err
	}
	if arch != "llama" {
		return nil, unsupported("architecture %q (only \"llama\" is known; use the llama.cpp engine)", arch)
	}
	s := &shape{}
	for _, k := range []struct {
		key  string
		to   *int
		max  int
		must bool
	}{
		{"embedding_length", &s.dim, maxWidth, true},
		{"block_count", &s.layers, maxLayers, true},
		{"feed_forward_length", &s.ffn, maxWidth, true},
		{"attention.head_count", &s.heads, maxWidth, true},
		{"attention.head_count_kv", &s.kvHeads, maxWidth, false},
		{"attention.key_length", &s.headDim, maxWidth, false},
		{"rope.dimension_count", &s.rotary, maxWidth, false},
		{"context_length", &s.context, maxContext, true},
	} {
		n, ok, err := f.Uint("llama." + k.key)
		if err != nil {
			return nil, err
		}
		if k.must && !ok || ok && (n == 0 || n > uint64(k.max)) {
			return nil, unsupported("llama.%s is %d, want 1 to %d", k.key, n, k.max)
		}
		*k.to = int(n)
	}
	return s, s.complete(f)
}

// complete fills what the file leaves out, as llama.cpp does, and checks the rest.
func (s *shape) complete(f *gguf.File) error {
	if s.kvHeads == 0 {
		s.kvHeads = s.heads
	}
	if s.headDim == 0 {
		s.headDim = s.dim / s.heads
	}
	if s.rotary == 0 {
		s.rotary = s.headDim
	}
	if s.heads%s.kvHeads != 0 || s.headDim == 0 || s.rotary > s.headDim || s.rotary%2 != 0 || s.qWidth() > maxWidth {
		return unsupported("%d heads, %d KV heads, head size %d, rotary %d", s.heads, s.kvHeads, s.headDim, s.rotary)
	}
	value, ok, err := f.Uint("llama.attention.value_length")
	if err != nil {
		return err
	}
	if ok && int(value) != s.headDim {
		return unsupported("values of %d beside keys of %d elements", value, s.headDim)
	}
	if n, ok, _ := f.Uint("llama.expert_count"); ok && n > 0 {
		return unsupported("a mixture of %d experts", n)
	}
	if kind, ok, _ := gguf.Get[string](f, "llama.rope.scaling.type"); ok && kind != "none" {
		return unsupported("RoPE scaling %q", kind)
	}
	eps, ok, err := gguf.Get[float32](f, "llama.attention.layer_norm_rms_epsilon")
	if err != nil {
		return err
	}
	if !ok || !(eps > 0 && eps < 1) {
		return unsupported("llama.attention.layer_norm_rms_epsilon is %v", eps)
	}
	s.eps, s.ropeBase = eps, 10000
	if base, ok, err := gguf.Get[float32](f, "llama.rope.freq_base"); err != nil {
		return err
	} else if ok {
		s.ropeBase = base
	}
	if !(s.ropeBase > 0 && s.ropeBase < 1e12) {
		return unsupported("llama.rope.freq_base is %v", s.ropeBase)
	}
	return nil
}
