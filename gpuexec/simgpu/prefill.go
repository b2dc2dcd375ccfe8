package simgpu

import (
	"fmt"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/schemas/calib"
)

type chunk = calib.Chunk

// prefill advances prompts step by step until MaxNS have gone. A sequence belongs to one
// rank, which works on its prompts in their order, as far as one chunk reaches; a step
// takes as long as its fullest rank.
func (d *Device) prefill(now schemas.Time, op *schemas.PrefillOp) (*schemas.PrefillDone, schemas.Time, error) {
	done := &schemas.PrefillDone{Rows: make([]schemas.PrefillRow, len(op.Seqs))}
	for i, id := range op.Seqs {
		s, err := d.get(id)
		if err != nil {
			return nil, now, err
		}
		done.Rows[i].Missing = s.prompt - s.have
	}
	at := now
	for step := 0; step == 0 || step < op.MaxBlocks && int64(at-now) < op.MaxNS; step++ {
		took, err := d.prefillStep(op, done)
		if err != nil {
			return nil, at, err
		}
		if took == 0 {
			break
		}
		at += took
	}
	return done, at, nil
}

// prefillStep computes one chunk on every rank that has something to do.
func (d *Device) prefillStep(op *schemas.PrefillOp, done *schemas.PrefillDone) (schemas.Time, error) {
	for i := range d.ranks {
		d.ranks[i] = d.ranks[i][:0]
	}
	for i, id := range op.Seqs {
		s, row := d.seqs[id], &done.Rows[i]
		left := d.cfg.chunk()
		for _, c := range d.ranks[s.rank] {
			left -= c.Tokens
		}
		n := min(row.Missing, left/blockTokens)
		if n <= 0 {
			continue
		}
		d.ranks[s.rank] = append(d.ranks[s.rank], chunk{Tokens: n * blockTokens, Prefix: s.have * blockTokens})
		s.have += n
		d.load[s.rank] -= n
		row.Computed += n * blockTokens
		row.Missing -= n
		d.shares(s)
	}
	t, err := d.cfg.Cal.PrefillStep(d.ranks...)
	if err != nil {
		return 0, fmt.Errorf("simgpu: %w", err)
	}
	return schemas.Time(t), nil
}
