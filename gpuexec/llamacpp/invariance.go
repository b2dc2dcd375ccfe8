package llamacpp

import (
	"bytes"
	"fmt"
	"math"
	"slices"

	"github.com/weir-dev/weir/gpuexec"
)

// Invariance tells whether a row's result depends on the rows computed beside it.
type Invariance struct {
	// Decode: decode rows beside other sequences give the logits and KV bytes that
	// they give alone.
	Decode bool
	// Prefill: two whole prefill steps that share one call give the KV bytes that
	// they give alone.
	Prefill bool
	// Detail says in one line what was compared and what differed.
	Detail string
}

// Sizes of the measurement. The main sequence crosses 256 tokens, where the library
// lets attention look at another stretch of cells.
const (
	invariancePrompt = 250
	invarianceSteps  = 24
	// companionTokens is the prompt length of the sequences beside the main one.
	companionTokens = 40
)

// BatchInvariant measures invariance on an idle engine with at least two slots; it
// takes the time of about 600 prefill and 50 decode steps of tokens, and leaves the
// engine empty. Errors: gpuexec.ErrUnsupported when the engine is not idle or too
// small, or an engine error.
func BatchInvariant(e *Engine) (Invariance, error) {
	if e.limits.Slots < 2 || e.limits.Context < 2*gpuexec.BlockTokens {
		return Invariance{}, fmt.Errorf("%w: batch invariance needs 2 slots of %d tokens, the engine has %d of %d",
			gpuexec.ErrUnsupported, 2*gpuexec.BlockTokens, e.limits.Slots, e.limits.Context)
	}
	if slices.Max(e.lengths) > 0 {
		return Invariance{}, fmt.Errorf("%w: batch invariance is measured on an idle engine", gpuexec.ErrUnsupported)
	}
	defer e.dropAll()
	var inv Invariance
	logits, kv, err := e.compareDecode()
	if err != nil {
		return inv, err
	}
	e.dropAll()
	pairs, err := e.comparePrefill()
	if err != nil {
		return inv, err
	}
	inv.Decode, inv.Prefill = logits == 0 && kv == 0, pairs == 0
	inv.Detail = fmt.Sprintf("decode beside 1 to %d other sequences: %d of %d logit rows and %d of %d KV tokens differ; two prefill steps in one call: %d of %d KV tokens differ",
		e.limits.Slots-1, logits, invarianceSteps, kv, invarianceSteps, pairs, 2*gpuexec.BlockTokens)
	return inv, nil
}

// dropAll empties the engine.
func (e *Engine) dropAll() {
	for s := range e.lengths {
		e.Drop(gpuexec.SeqID(s))
	}
}

// probeToken spreads probe tokens over the vocabulary.
func (e *Engine) probeToken(seq, pos int) int32 {
	x := uint32(seq*7919+pos+1) * 2654435761
	return int32(x>>8) % int32(e.limits.Vocab)
}

// probePrefill computes n probe tokens of seq in block-aligned steps.
func (e *Engine) probePrefill(seq, n int) error {
	for at := 0; at < n; at += gpuexec.BlockTokens {
		if err := e.Step(gpuexec.PhasePrefill, e.probeRows(nil, seq, at, min(gpuexec.BlockTokens, n-at))); err != nil {
			return err
		}
	}
	return nil
}

// probeRows appends n rows of seq from position from on.
func (e *Engine) probeRows(rows []gpuexec.Row, seq, from, n int) []gpuexec.Row {
	for pos := from; pos < from+n; pos++ {
		rows = append(rows, gpuexec.Row{Seq: gpuexec.SeqID(seq), Token: e.probeToken(seq, pos), Pos: int32(pos)})
	}
	return rows
}

// compareDecode decodes the main sequence alone and beside a changing number of
// others, and counts logit rows and KV tokens whose bits differ.
func (e *Engine) compareDecode() (logits, kv int, err error) {
	start := min(invariancePrompt, e.limits.Context-invarianceSteps)
	var alone [][]float32
	run := func(companions func(step int) int, see func(step int, row []float32)) ([]byte, error) {
		if err := e.probePrefill(0, start); err != nil {
			return nil, err
		}
		for step := range invarianceSteps {
			rows := e.probeRows(nil, 0, start+step, 1)
			rows[0].Logits = true
			for s := 1; s <= companions(step); s++ {
				rows = e.probeRows(rows, s, e.lengths[s], 1)
			}
			if err := e.Step(gpuexec.PhaseDecode, rows); err != nil {
				return nil, err
			}
			see(step, e.Logits(0))
		}
		return e.kvRows(0, start)
	}
	want, err := run(func(int) int { return 0 }, func(_ int, row []float32) { alone = append(alone, slices.Clone(row)) })
	if err != nil {
		return 0, 0, err
	}
	e.dropAll()
	others := e.limits.Slots - 1
	for s := 1; s <= others; s++ {
		if err := e.probePrefill(s, companionTokens+s%7); err != nil {
			return 0, 0, err
		}
	}
	got, err := run(func(step int) int { return 1 + step%others }, func(step int, row []float32) {
		if !sameBits(row, alone[step]) {
			logits++
		}
	})
	if err != nil {
		return 0, 0, err
	}
	return logits, differingTokens(want, got, e.layout.tokenBytes()), nil
}

// comparePrefill computes one step of two sequences apart and in one call, and
// counts KV tokens that differ. The shared call goes around Step's rule of one
// sequence per prefill call; the context is made for two steps (options.go).
func (e *Engine) comparePrefill() (int, error) {
	const n = gpuexec.BlockTokens
	var apart [2][]byte
	for s := range apart {
		if err := e.probePrefill(s, n); err != nil {
			return 0, err
		}
		kv, err := e.kvRows(s, 0)
		if err != nil {
			return 0, err
		}
		apart[s] = kv
	}
	e.dropAll()
	if err := e.compute(e.probeRows(e.probeRows(nil, 0, 0, n), 1, 0, n)); err != nil {
		return 0, err
	}
	differ := 0
	for s := range apart {
		kv, err := e.kvRows(s, 0)
		if err != nil {
			return 0, err
		}
		differ += differingTokens(apart[s], kv, e.layout.tokenBytes())
	}
	return differ, nil
}

// quickInvariance is the short form that runs at open: the second token of a
// sequence, alone and beside 1, 3, 7, … first tokens of others. Kernels change with
// the number of rows, so this finds models whose matrices are computed another way
// in a batch; it does not replace BatchInvariant.
func (e *Engine) quickInvariance() (bool, error) {
	defer e.dropAll()
	var wantLogits []float32
	var wantKV []byte
	for companions := 0; companions < e.limits.Slots; companions = 2*companions + 1 {
		e.dropAll()
		if err := e.Step(gpuexec.PhaseDecode, e.probeRows(nil, 0, 0, 1)); err != nil {
			return false, err
		}
		rows := e.probeRows(nil, 0, 1, 1)
		rows[0].Logits = true
		for s := 1; s <= companions; s++ {
			rows = e.probeRows(rows, s, 0, 1)
		}
		if err := e.Step(gpuexec.PhaseDecode, rows); err != nil {
			return false, err
		}
		logits := slices.Clone(e.Logits(0))
		kv, err := e.kvRows(0, 0)
		if err != nil {
			return false, err
		}
		if companions == 0 {
			wantLogits, wantKV = logits, kv
		} else if !sameBits(logits, wantLogits) || !bytes.Equal(kv, wantKV) {
			return false, nil
		}
	}
	return true, nil
}

// kvRows copies the K and V bytes of the tokens of seq from position from on,
// gathered by token.
func (e *Engine) kvRows(seq, from int) ([]byte, error) {
	state, err := e.readState(gpuexec.SeqID(seq))
	if err != nil {
		return nil, err
	}
	n := e.lengths[seq]
	start, err := e.layout.locate(state, n)
	if err != nil {
		return nil, err
	}
	var out []byte
	for pos := from; pos < n; pos++ {
		out = e.layout.appendToken(out, state[start:], n, pos)
	}
	return out, nil
}

// appendToken appends the K and V bytes of token pos of a state of n tokens.
func (l *layout) appendToken(out, data []byte, n, pos int) []byte {
	at := 0
	for _, part := range [][]layerLayout{l.k, l.v} {
		for _, p := range part {
			if p.cols == 0 {
				out = append(out, data[at+pos*p.rowBytes:at+(pos+1)*p.rowBytes]...)
			}
			for c := range p.cols {
				i := at + (c*n+pos)*p.el
				out = append(out, data[i:i+p.el]...)
			}
			at += n*p.rowBytes + layerHeaderBytes
		}
	}
	return out
}

// differingTokens counts the runs of size bytes that differ. A length that differs
// counts every token.
func differingTokens(a, b []byte, size int) int {
	if len(a) != len(b) {
		return max(len(a), len(b)) / size
	}
	n := 0
	for i := 0; i+size <= len(a); i += size {
		if !bytes.Equal(a[i:i+size], b[i:i+size]) {
			n++
		}
	}
	return n
}

// sameBits compares two rows bit by bit: a NaN equals itself, 0 and -0 differ.
func sameBits(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
}
