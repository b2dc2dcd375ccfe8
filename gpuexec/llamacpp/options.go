package llamacpp

import (
	"errors"
	"fmt"
	"math"

	"github.com/weir-dev/weir/gpuexec"
)

// ggml types of a KV cell.
const (
	ggmlF32  = 0
	ggmlF16  = 1
	ggmlQ8_0 = 8
)

// FlashAttention says whether attention runs fused. It decides the layout of V,
// so executors that hand blocks to each other must agree; Numerics names it.
type FlashAttention int32

// Values of FlashAttention. The zero value lets the library decide by device.
const (
	FlashAuto FlashAttention = iota
	FlashOff
	FlashOn
)

// Options are the settings of one engine. The zero value runs one sequence of the
// model's trained length on the CPU with one thread.
type Options struct {
	Slots   int // sequences that may be resident; 0 means 1
	Context int // tokens per sequence; 0 means the model's trained length
	// Threads for computing; 0 means 1. They spin while they wait: see doc.go.
	Threads int
	// GPULayers is the number of layers put on GPU devices; 0 keeps everything on
	// the CPU, -1 means all layers.
	GPULayers      int
	FlashAttention FlashAttention
	// KVType is the type of KV cells: "f16" (also ""), "f32" or "q8_0".
	KVType string
}

// Bounds of options. Slots is the library's own bound on sequences; Context keeps
// positions and cell counts well inside int32.
const (
	maxSlots   = 256
	maxContext = 1 << 24
	maxThreads = 512
)

// withDefaults fills zero values. trained is the model's trained length in tokens.
func (o Options) withDefaults(trained int) Options {
	if o.Slots == 0 {
		o.Slots = 1
	}
	if o.Context == 0 {
		o.Context = trained
	}
	if o.Threads == 0 {
		o.Threads = 1
	}
	if o.KVType == "" {
		o.KVType = "f16"
	}
	return o
}

// validate reports every option that cannot be used. trained is the model's
// trained length: beyond it a model writes noise, and no engine option of weir
// stretches it.
func (o Options) validate(trained int) error {
	var errs []error
	add := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if o.Slots < 1 || o.Slots > maxSlots {
		add("slots %d is outside 1..%d", o.Slots, maxSlots)
	}
	switch {
	case o.Context < 1 || o.Context > maxContext:
		add("context %d is outside 1..%d tokens", o.Context, maxContext)
	case o.Context > trained:
		add("context %d is longer than the %d tokens the model was trained for; ask for at most that", o.Context, trained)
	}
	if cells := o.Slots * o.Context; len(errs) == 0 && cells > math.MaxInt32 {
		add("slots %d of %d tokens are %d cells, at most %d are possible", o.Slots, o.Context, cells, math.MaxInt32)
	}
	if o.Threads < 1 || o.Threads > maxThreads {
		add("threads %d is outside 1..%d", o.Threads, maxThreads)
	}
	if o.GPULayers < -1 {
		add("GPU layers %d is below -1 (all)", o.GPULayers)
	}
	if o.FlashAttention < FlashAuto || o.FlashAttention > FlashOn {
		add("flash attention %d is unknown", o.FlashAttention)
	}
	if _, ok := kvTypes[o.KVType]; !ok {
		add("KV type %q is not f16, f32 or q8_0", o.KVType)
	}
	if len(errs) > 0 {
		return fmt.Errorf("%w: llama options: %w", gpuexec.ErrUnsupported, errors.Join(errs...))
	}
	return nil
}

// kvTypes maps names of KV types to ggml types.
var kvTypes = map[string]int32{"f32": ggmlF32, "f16": ggmlF16, "q8_0": ggmlQ8_0}

// contextParams translates options to the library's parameters.
func (o Options) contextParams(p contextParams) contextParams {
	rows := uint32(o.contextRows())
	// One stream per sequence: only then are KV bytes independent of what else is
	// resident. n_ctx is the sum over all streams.
	p.KVUnified = 0
	p.NSeqMax = uint32(o.Slots)
	p.NCtx = uint32(o.Slots * o.Context)
	// More rows than n_batch, or more outputs than n_outputs_max, abort the process.
	// The limits are what Step allows and more, so neither can happen.
	p.NBatch, p.NUbatch = rows, rows
	p.NOutputsMax, p.NOutputsMaxPerSeq = uint32(o.batchRows()), gpuexec.BlockTokens
	p.NThreads, p.NThreadsBatch = int32(o.Threads), int32(o.Threads)
	p.FlashAttn = int32(o.FlashAttention) - 1
	p.TypeK, p.TypeV = kvTypes[o.KVType], kvTypes[o.KVType]
	if o.GPULayers == 0 {
		p.OffloadKQV, p.OpOffload = 0, 0
	}
	return p
}

// batchRows is the most rows of one call: a whole prefill step, or a decode row
// for every slot.
func (o Options) batchRows() int { return max(gpuexec.BlockTokens, o.Slots) }

// contextRows is what the context is made for: twice a prefill step, so that
// BatchInvariant can put two of them into one call.
func (o Options) contextRows() int { return max(2*gpuexec.BlockTokens, o.Slots) }
