package executor

import (
	"context"
	"sync"
	"time"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/gpuexec/simgpu"
	"github.com/weir-dev/weir/gpuexec/worker"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/schemas/calib"
)

// Device makes an executor take the time of a device that is not here: the engine does
// each operation, and its completion comes when the device would have been done.
type Device struct {
	Cal   *calib.Calibration
	Speed float64 // times faster than the device
}

// coarse makes checkpoints of a simulated device rarer: each holds all tokens of an answer,
// and a few such devices generate as many tokens per second as a cluster. Frames stay as
// they are, because a decode operation is as long as a frame, and nothing interrupts it.
func coarse(c *gpuexec.Config, d *Device) {
	if d != nil {
		c.CkptTokens, c.CkptMinNS, c.CkptNS = 512, 2_000_000_000, 5_000_000_000
	}
}

// pacer waits for the device. Its operations follow each other on the engine's
// goroutine; only transfers run beside them.
type pacer struct {
	mu    sync.Mutex // of pace
	pace  *simgpu.Pace
	speed float64
	until time.Time // when the device is done with what came before
}

func newPacer(d *Device) *pacer {
	if d == nil {
		return nil
	}
	return &pacer{pace: simgpu.NewPace(d.Cal), speed: d.Speed}
}

// limits are those of the device.
func (p *pacer) limits(l gpuexec.Limits) gpuexec.Limits {
	if p == nil {
		return l
	}
	return p.pace.Limits(l)
}

// slack is how late an operation may begin behind the one before and still count as
// following it at once: timers and the bus are late, and that must not add up.
const slack = 2 * time.Millisecond

// do does an operation and waits until the device would be done.
func (p *pacer) do(ctx context.Context, w *worker.Worker, op *schemas.Op) schemas.OpDone {
	begun := time.Now()
	var d schemas.OpDone
	if op.Prefill != nil {
		d = p.prefill(w, op)
	} else {
		d = w.Do(op)
	}
	p.mu.Lock()
	took, err := p.pace.Took(op, &d)
	p.mu.Unlock()
	if err != nil {
		return schemas.OpDone{ID: op.ID, Err: err.Error(), Code: schemas.CodeInvalid, Device: d.Device}
	}
	if took <= 0 {
		return d
	}
	from := begun
	if late := begun.Sub(p.until); late > 0 && late < slack {
		from = p.until
	}
	p.until = from.Add(time.Duration(float64(took) / p.speed))
	pause(ctx, time.Until(p.until))
	d.TookNS = time.Since(begun).Nanoseconds()
	return d
}

// prefill advances each prompt by what the device computes in one step.
func (p *pacer) prefill(w *worker.Worker, op *schemas.Op) schemas.OpDone {
	all := schemas.OpDone{ID: op.ID, Prefill: &schemas.PrefillDone{Rows: make([]schemas.PrefillRow, len(op.Prefill.Seqs))}}
	for i, n := range p.pace.Blocks(op.Prefill) {
		row := &all.Prefill.Rows[i]
		if n == 0 {
			row.Missing = p.pace.Missing(op.Prefill.Seqs[i])
			continue
		}
		one := &schemas.Op{ID: op.ID, Prefill: &schemas.PrefillOp{Seqs: op.Prefill.Seqs[i : i+1], MaxBlocks: n, MaxNS: int64(time.Hour)}}
		d := w.Do(one)
		if d.Device != nil {
			all.Device = d.Device
		}
		if d.Err != "" {
			row.Err, row.Code = d.Err, d.Code
			continue
		}
		*row = d.Prefill.Rows[0]
	}
	return all
}

// brings waits as long as the device's transfer takes; the engine works on.
func (p *pacer) brings(ctx context.Context, op *schemas.BringOp) {
	p.mu.Lock()
	t := p.pace.Brings(op)
	p.mu.Unlock()
	pause(ctx, time.Duration(float64(t)/p.speed))
}

func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
