package simgpu

import (
	_ "embed"
	"fmt"
	"math"
	"time"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/schemas/calib"
)

//go:embed round.json
var roundNumbers []byte

// RoundNumbers is a calibration file of an accelerator that does not exist: a default
// where none is given.
func RoundNumbers() []byte { return roundNumbers }

// Pace says how long a device would take for operations that another engine does, whose
// decode steps yield one token each. It follows the executor's sequences.
type Pace struct {
	cal   *calib.Calibration
	chunk int
	seqs  map[int32]*paced
	ranks [][]chunk
	load  []int // by rank: prompt blocks to be computed
}

// paced is one open sequence.
type paced struct {
	have    int // prompt blocks in the engine
	missing int
	rank    int
	tail    int // tokens behind the prompt's whole blocks
	context int // tokens, once the prompt is complete
	decodes bool
}

// NewPace follows an executor from its start.
func NewPace(cal *calib.Calibration) *Pace {
	n := max(cal.Layout.AttnDP, 1)
	return &Pace{cal: cal, chunk: chunkTokens, seqs: map[int32]*paced{}, ranks: make([][]chunk, n), load: make([]int, n)}
}

// Limits changes those of the engine that does the work into those of the device.
func (p *Pace) Limits(l gpuexec.Limits) gpuexec.Limits {
	l.PrefillRanks, l.PrefillChunk, l.KVTokens = max(p.cal.Layout.AttnDP, 1), p.chunk, int(p.cal.Mem.KVTokens)
	return l
}

// Blocks is how many blocks each sequence of a prefill operation may advance: one step of
// the device. A sequence without room in its rank's chunk waits.
func (p *Pace) Blocks(op *schemas.PrefillOp) []int {
	out := make([]int, len(op.Seqs))
	room := make([]int, len(p.load))
	for i := range room {
		room[i] = p.chunk / blockTokens
	}
	for i, id := range op.Seqs {
		if s := p.seqs[id]; s != nil {
			out[i] = min(s.missing, room[s.rank])
			room[s.rank] -= out[i]
		}
	}
	return out
}

// Missing is how many whole prompt blocks a sequence still lacks.
func (p *Pace) Missing(seq int32) int {
	if s := p.seqs[seq]; s != nil {
		return s.missing
	}
	return 0
}

// Took is the time of an operation that was done, and 0 for one that failed. The error
// says that the calibration does not cover it.
func (p *Pace) Took(op *schemas.Op, d *schemas.OpDone) (time.Duration, error) {
	switch {
	case op.Drop != nil:
		if s := p.seqs[op.Drop.Seq]; s != nil {
			p.load[s.rank] -= s.missing
			delete(p.seqs, op.Drop.Seq)
		}
	case d.Err != "":
	case op.Open != nil && !d.Open.NeedHead:
		p.open(op.Open, d.Open)
	case op.Prefill != nil:
		return p.prefill(op.Prefill, d.Prefill)
	case op.Decode != nil:
		return p.decode(op.Decode, d.Decode)
	case op.Verify != nil:
		return time.Duration(flipMS(p.cal, op.Verify) * 1e6), nil
	}
	return 0, nil
}

func (p *Pace) open(op *schemas.OpenOp, d *schemas.OpenDone) {
	n := op.Ready.Prompt.N
	s := &paced{have: d.Cached / blockTokens, missing: d.Missing, tail: n - promptBlocks(op.Ready)*blockTokens, context: n + len(op.Delivered)}
	for i := range p.load {
		if p.load[i] < p.load[s.rank] {
			s.rank = i
		}
	}
	p.load[s.rank] += s.missing
	p.seqs[op.Seq] = s
}

func (p *Pace) prefill(op *schemas.PrefillOp, d *schemas.PrefillDone) (time.Duration, error) {
	for i := range p.ranks {
		p.ranks[i] = p.ranks[i][:0]
	}
	for i, id := range op.Seqs {
		s := p.seqs[id]
		if s == nil || i >= len(d.Rows) || d.Rows[i].Computed == 0 {
			continue
		}
		n := d.Rows[i].Computed / blockTokens
		p.ranks[s.rank] = append(p.ranks[s.rank], chunk{Tokens: n * blockTokens, Prefix: s.have * blockTokens})
		s.have += n
		s.missing -= n
		p.load[s.rank] -= n
	}
	return p.cal.PrefillStep(p.ranks...)
}

// decode: a step of the device yields Spec.AL tokens. The tail of a prompt that begins by
// itself is computed beside the rows that run, in one of their steps, so that it takes
// what it adds to that step.
func (p *Pace) decode(op *schemas.DecodeOp, d *schemas.DecodeDone) (time.Duration, error) {
	rows, context, tails, fresh := 0, 0, 0, 0
	tokens := d.Steps
	for i, id := range op.Seqs {
		s := p.seqs[id]
		if s == nil {
			return 0, fmt.Errorf("simgpu: decode of sequence %d, which is not open", id)
		}
		if !s.decodes {
			s.decodes = true
			fresh++
			width := p.cal.Spec.K + 1
			tails += (s.tail + width - 1) / width
		}
		rows++
		context += s.context
		s.context += len(d.Rows[i].Tokens)
	}
	var took time.Duration
	if fresh > 0 {
		running := 0
		for _, s := range p.seqs {
			if s.decodes {
				running++
			}
		}
		others := running - fresh
		with, err := p.cal.DecodeStep(min(others+max(tails, fresh), p.cal.Decode.MaxB), float64(context))
		if err != nil {
			return 0, err
		}
		without, err := p.cal.DecodeStep(min(others, p.cal.Decode.MaxB), 0)
		if err != nil {
			return 0, err
		}
		took = with - without
	}
	if tokens == 0 {
		return took, nil
	}
	step, err := p.cal.DecodeStep(rows, float64(context)+float64(rows*tokens)/2)
	return took + time.Duration(float64(step)*float64(tokens)/max(p.cal.Spec.AL, 1)), err
}

// Brings is how long a turn's context takes into the engine: from the executor that had
// the turn before, or from the host's memory.
func (p *Pace) Brings(op *schemas.BringOp) time.Duration {
	name, blocks := LinkLocal, gpuexec.KnownBlocks(op.Ready)
	if op.From != "" {
		name, blocks = LinkHand, promptBlocks(op.Ready)
	}
	l, ok := p.cal.Link(name)
	if !ok || blocks == 0 {
		return 0
	}
	return l.Time(int64(blocks) * blockTokens * p.cal.Mem.KVBytesTok)
}

// ShortestStep is the shortest step that the device takes: nothing that it does can be
// told apart in less time.
func ShortestStep(cal *calib.Calibration) time.Duration {
	least := time.Duration(math.MaxInt64)
	if t, err := cal.DecodeStep(1, 0); err == nil {
		least = min(least, t)
	}
	if t, err := cal.PrefillStep([]chunk{{Tokens: blockTokens}}); err == nil {
		least = min(least, t)
	}
	return least
}
