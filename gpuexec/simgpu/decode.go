package simgpu

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/schemas"
)

// run is a decode operation under way, in closed form. Where rows have not begun, its
// first step computes their prompts' tails beside the rows that run:
//
//	|-- tails --|-- step --|-- step --| …  steps of all rows, each AL tokens per row
//	start     first                        end
type run struct {
	id     uint64
	rows   []*seq
	seqs   []int32
	start  schemas.Time
	fresh  bool
	first  time.Duration // of the step with tails; 0 without one
	k      float64       // context tokens of all rows before the other steps
	steps  int           // of all
	most   int           // that it would do without an interruption
	failed *seq          // the engine has no room for a step of this one
	stop   func()
	done   func(schemas.OpDone)
}

// eps absorbs rounding where steps of AL tokens are counted.
const eps = 1e-9

// gained is how many whole tokens so many steps add.
func (d *Device) gained(steps int) int { return int(d.al*float64(steps) + eps) }

// stepsFor is the fewest steps that add so many tokens.
func (d *Device) stepsFor(tokens int) int {
	if tokens <= 0 {
		return 0
	}
	n := int(math.Ceil(float64(tokens)/d.al - eps))
	for d.gained(n) < tokens {
		n++
	}
	return n
}

// left is how many steps a row still takes.
func (d *Device) left(s *seq) int {
	if !s.started {
		return 1 + d.stepsFor(s.target-1)
	}
	return max(0, d.stepsFor(s.target-s.base)-s.steps)
}

// decode begins a run that ends when a row ends, or at a bound of the operation.
func (d *Device) decode(now schemas.Time, op *schemas.Op, done func(schemas.OpDone)) error {
	r := &run{id: op.ID, seqs: op.Decode.Seqs, rows: make([]*seq, len(op.Decode.Seqs)), start: now, done: done}
	b, tails := 0, 0 // rows that run; what the tails count for
	rows := 0.0      // context of the rows that run
	begin := 0.0     // and of those that begin
	steps := max(op.Decode.MaxSteps, 1)
	for i, id := range op.Decode.Seqs {
		s, err := d.get(id)
		if err != nil {
			return err
		}
		if s.have < s.prompt {
			return fmt.Errorf("simgpu: decode of %s before its prompt is complete: %d of %d blocks", s.r.Turn, s.have, s.prompt)
		}
		r.rows[i] = s
		steps = min(steps, d.left(s))
		if s.started {
			b++
			rows += d.context(s)
			continue
		}
		r.fresh = true
		begin += float64(s.r.Prompt.N)
		// A step verifies k+1 tokens of each row; a tail is as many rows as it has of those.
		width := d.cfg.Cal.Spec.K + 1
		tails += (s.r.Prompt.N - s.prompt*blockTokens + width - 1) / width
	}
	n := len(r.rows)
	// Room for a step of all rows: the contexts that are kept give way.
	if grow := d.al * float64(n); float64(d.mem.free()) < grow*float64(steps) {
		steps = int(float64(d.mem.free()) / grow)
		if steps < 1 && d.left(r.rows[n-1]) > 0 {
			r.failed, steps = r.rows[n-1], 0
		}
	}
	var err error
	r.k = rows
	if r.fresh {
		batch := max(n, min(b+tails, d.cfg.Cal.Decode.MaxB))
		if r.first, err = d.cfg.Cal.DecodeStep(batch, rows+begin); err != nil {
			return fmt.Errorf("simgpu: %w", err)
		}
		r.k = rows + d.al*float64(b) + begin + float64(n-b)
	}
	r.most = steps
	if limit := time.Duration(op.Decode.MaxNS) - r.first; steps > 0 && limit > 0 {
		r.most = min(steps, max(1, d.within(r, limit)))
	} else if steps > 0 {
		r.most = 1
	}
	if _, err = d.took(r, r.most); err != nil {
		return fmt.Errorf("simgpu: %w", err)
	}
	d.run = r
	d.endRun(now, r.most)
	return nil
}

// context is how many tokens a step of a row attends to.
func (d *Device) context(s *seq) float64 {
	return float64(s.r.Prompt.N+s.base) + d.al*float64(s.steps)
}

// took is how long so many steps of a run take.
func (d *Device) took(r *run, steps int) (time.Duration, error) {
	if r.fresh {
		if steps == 0 {
			return 0, nil
		}
		t, err := d.cfg.Cal.DecodeRun(len(r.rows), r.k, steps-1)
		return r.first + t, err
	}
	return d.cfg.Cal.DecodeRun(len(r.rows), r.k, steps)
}

// within is how many steps of a run fit into a time that follows its step with tails.
func (d *Device) within(r *run, t time.Duration) int {
	n := d.cfg.Cal.StepsWithin(len(r.rows), r.k, t)
	if r.fresh {
		n++
	}
	return n
}

// endRun sets the end of the run behind so many steps.
func (d *Device) endRun(now schemas.Time, steps int) {
	r := d.run
	if r.stop != nil {
		r.stop()
	}
	r.steps = steps
	t, _ := d.took(r, steps) // cannot fail: more steps did not
	at := max(now, r.start+schemas.Time(t))
	r.stop = d.cfg.Later(at, func() {
		d.run, d.busy = nil, false
		out := schemas.OpDone{ID: r.id, TookNS: int64(at - r.start), Decode: d.advance(r)}
		r.done(d.telling(at, out))
	})
}

// interrupt ends the run at the end of the step under way, at least one.
func (d *Device) interrupt(now schemas.Time, id uint64) {
	r := d.run
	if r == nil || r.id != id {
		return
	}
	steps := 1
	if past := time.Duration(now-r.start) - r.first; past > 0 {
		steps = max(1, d.within(r, past))
		if t, _ := d.took(r, steps); t < time.Duration(now-r.start) {
			steps++
		}
	}
	if steps < r.steps {
		d.endRun(now, steps)
	}
}

// advance gives every row the tokens of the steps that were done.
func (d *Device) advance(r *run) *schemas.DecodeDone {
	if cap(d.rows) < len(r.rows) {
		d.rows = make([]schemas.DecodeRow, max(len(r.rows), 64))
	}
	out := &schemas.DecodeDone{Rows: d.rows[:len(r.rows)], Steps: r.steps}
	clear(out.Rows)
	for i, s := range r.rows {
		row := &out.Rows[i]
		row.First = max(s.out, s.delivered)
		switch {
		case r.steps == 0:
		case s.started:
			s.steps += r.steps
		default:
			s.started, s.base, s.steps = true, 1, r.steps-1
		}
		if s.started {
			s.out = min(s.target, s.base+d.gained(s.steps))
		}
		if grown := s.r.Prompt.N + s.out - s.held; grown > 0 {
			s.held += grown
			d.mem.used += grown
		}
		row.All = d.tokens(s.out)
		row.Tokens = row.All[min(row.First, s.out):]
		switch {
		case s == r.failed:
			row.Err, row.Code = "simgpu: the KV memory has no room for another step", schemas.CodeBusy
		case s.started && s.out >= s.target && s.out >= s.r.MaxNew:
			row.Finish = "length"
		case s.started && s.out >= s.target:
			row.Finish = "stop"
		}
	}
	d.mem.shrink()
	return out
}

func codeOf(err error) string {
	switch {
	case errors.Is(err, gpuexec.ErrUnsupported):
		return schemas.CodeInvalid
	case errors.Is(err, gpuexec.ErrNoRoom):
		return schemas.CodeBusy
	}
	return schemas.CodeEngine
}
