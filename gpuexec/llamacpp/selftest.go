package llamacpp

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/weir-dev/weir/gpuexec"
)

// learnLayout computes one token, reads how its state is laid out, and proves that
// the layout says it all: writing the state anew gives the same bytes. Models with
// other state (sliding windows, recurrent layers, several numbers per position)
// fail here and are refused.
func (e *Engine) learnLayout() error {
	if err := e.compute([]gpuexec.Row{{Token: 0}}); err != nil {
		return err
	}
	defer e.clearSeq(0)
	size := int(e.lib.api.stateSize(e.context, 0, 0))
	if size <= 0 {
		return fmt.Errorf("%w: the library exports no state of a sequence", gpuexec.ErrUnsupported)
	}
	state, err := e.scratch.grow(size)
	if err != nil {
		return err
	}
	if got := e.call.exportState(e.context, state, 0); got != size {
		return fmt.Errorf("%w: the library wrote %d of %d bytes of state", gpuexec.ErrUnsupported, got, size)
	}
	l, err := parseLayout(state, 1)
	if err != nil {
		return fmt.Errorf("%w: the model's state is not one row per token and layer (sliding window, recurrent or multi-dimensional positions?): %w",
			gpuexec.ErrUnsupported, err)
	}
	again := bytes.Clone(state)
	l.writeHeader(again, 0, 1)
	if len(again) != l.stateBytes(1) || !bytes.Equal(again, state) {
		return fmt.Errorf("%w: the model's state has bytes that this binding does not know", gpuexec.ErrUnsupported)
	}
	e.layout = l
	return nil
}

// proveBlocks imports made-up blocks and exports them again: the bytes must be
// equal, or an engine on the other side would compute with something else than
// what was stored. Nothing is computed on the made-up bytes.
func (e *Engine) proveBlocks() error {
	count := min(2, e.limits.Context/gpuexec.BlockTokens)
	if count == 0 {
		return nil // no whole block fits: nothing can be exported or imported
	}
	in, out := make([][]byte, count), make([][]byte, count)
	x := uint32(1)
	for i := range in {
		in[i], out[i] = make([]byte, e.limits.BlockBytes), make([]byte, e.limits.BlockBytes)
		for j := range in[i] {
			x = x*1664525 + 1013904223
			in[i][j] = byte(x>>24) & 0x3f // f16, f32 and q8_0 scales below 2
		}
	}
	seq := gpuexec.SeqID(e.limits.Slots - 1)
	defer e.clearSeq(seq)
	if err := e.Import(seq, in); err != nil {
		return err
	}
	if err := e.Export(seq, 0, out); err != nil {
		return err
	}
	if !slices.EqualFunc(in, out, bytes.Equal) {
		return fmt.Errorf("%w: exported blocks differ from imported ones", gpuexec.ErrUnsupported)
	}
	e.clearSeq(seq)
	for i := range in {
		clear(in[i])
	}
	return e.Import(seq, in)
}
