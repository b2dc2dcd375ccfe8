package gpuexec_test

import (
	"testing"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/schemas"
)

// brought answers the question that is oldest, which must be for blocks.
func (h *host) brought(n int) *schemas.BringOp {
	if len(h.asks) == 0 || h.asks[0].Bring == nil {
		h.t.Fatalf("no blocks are asked for: %+v", h.asks)
	}
	op := h.asks[0]
	h.asks = h.asks[1:]
	h.step(schemas.Msg{Kind: schemas.KindOpDone, OpDone: &schemas.OpDone{ID: op.ID, Bring: &schemas.BringDone{Brought: n}}})
	return op.Bring
}

// TestBring: what a job's sources hold is brought in before it is opened, other turns
// run meanwhile, and it is tried again once the prompt's first tokens are known.
func TestBring(t *testing.T) {
	h := newHost(t, nil)
	h.assign(1, schemas.RoleDecode)
	h.job(job("u1", schemas.StageDecode, 1, 10, 12))
	j := job("u2", schemas.StageDecode, 1, 200, 5)
	j.Ready.Prompt.TailFrom = 128
	j.Sources = []schemas.Source{{Node: "n1", Peer: "127.0.0.1:1", Extent: schemas.Extent{N: 2}}}
	h.eng.heads[j.Ready.Job] = true
	var opened []string
	h.onOpen = func(o *schemas.OpenOp) { opened = append(opened, o.Ready.Turn) }
	h.job(j)
	h.run() // the other turn ends while the blocks are on their way
	h.confirm(0, "")
	if len(opened) > 1 || len(h.asks) != 1 {
		t.Fatalf("opened %v, asked %d questions while blocks are on their way", opened, len(h.asks))
	}
	if op := h.brought(0); len(op.Sources) != 1 || len(op.Head) != 0 {
		t.Fatalf("asked with %d sources and %d tokens of the head", len(op.Sources), len(op.Head))
	}
	h.complete()
	h.answer(0, 0, false)
	if op := h.brought(2); len(op.Head) != 128 {
		t.Fatalf("asked again with %d tokens of the head, want 128", len(op.Head))
	}
	h.run()
	if len(h.asks) != 0 {
		t.Fatalf("asked a third time: %+v", h.asks[0])
	}
	h.confirm(0, "")
}

// TestBringLower: with a place below memory every job is looked for, and one that is
// cancelled meanwhile is not opened.
func TestBringLower(t *testing.T) {
	h := newHost(t, func(c *gpuexec.Config) { c.Lower = true })
	h.assign(1, schemas.RoleDecode)
	h.onOpen = func(o *schemas.OpenOp) { t.Errorf("%s is opened", o.Ready.Turn) }
	h.job(job("u1", schemas.StageDecode, 1, 10, 12))
	id := schemas.JobID("t", "s", "u1")
	h.step(schemas.Msg{Kind: schemas.KindCancel, Cancel: &schemas.Cancel{Header: schemas.H(), Job: id, Attempt: 1}})
	h.brought(0)
	h.run()
}

// TestBringRate: heartbeats say how fast blocks came in, and forget it after a minute,
// so that a slow minute does not stop it for ever.
func TestBringRate(t *testing.T) {
	h := newHost(t, func(c *gpuexec.Config) { c.Lower = true })
	h.assign(1, schemas.RoleDecode)
	h.job(job("u1", schemas.StageDecode, 1, 2000, 5))
	op := h.asks[0]
	h.asks = h.asks[1:]
	h.step(schemas.Msg{Kind: schemas.KindOpDone, OpDone: &schemas.OpDone{ID: op.ID, TookNS: 100_000_000, Bring: &schemas.BringDone{Brought: 10}}})
	h.cancel("u1", 1)
	for _, c := range []struct {
		after schemas.Time
		want  float64
	}{{1_000_000_000, 6400}, {61_000_000_000, 0}} {
		h.take(schemas.KindHeartbeat)
		h.pass(c.after)
		if hbs := h.take(schemas.KindHeartbeat); len(hbs) == 0 || hbs[len(hbs)-1].Heartbeat.BringTPS != c.want {
			t.Errorf("after %d s: %d heartbeats, want a rate of %v", c.after/1_000_000_000, len(hbs), c.want)
		}
	}
}
