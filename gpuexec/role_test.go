package gpuexec_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weir-dev/weir/schemas"
)

// TestRoleEpochs: newer assignments win, older and repeated ones change nothing,
// and the router hears at once that an executor drains and that it is done.
func TestRoleEpochs(t *testing.T) {
	h := newHost(t, nil)
	h.assign(5, schemas.RoleDecode)
	h.assign(3, schemas.RolePrefill)
	h.assign(5, schemas.RolePrefill)
	if h.role != schemas.RoleDecode || h.epoch != 5 {
		t.Fatalf("role %s, epoch %d", h.role, h.epoch)
	}
	h.job(job("u1", schemas.StageDecode, 1, 10, 1000))
	h.complete()
	h.complete()
	h.assign(6, schemas.RolePrefill)
	if h.role != schemas.RoleDraining || h.epoch != 5 {
		t.Errorf("while draining: role %s, epoch %d", h.role, h.epoch)
	}
	h.job(job("u2", schemas.StageDecode, 1, 10, 10))
	h.job(job("u3", schemas.StagePrefill, 1, 10, 10))
	want(t, "while draining", h.dones(), "returned decode 1: role is draining; returned prefill 1: role is draining")
	h.assign(7, schemas.RoleStandby) // another change of mind
	h.run()
	want(t, "handed over", h.dones(), "returned decode 1: role changes")
	if h.role != schemas.RoleStandby || h.epoch != 7 {
		t.Errorf("role %s, epoch %d", h.role, h.epoch)
	}
	if c := h.take(schemas.KindCheckpoint); len(c) == 0 {
		t.Error("a decode was handed over without a checkpoint")
	}
}

// TestRolePhases: a change in every phase of a prefill and of a decode hands the
// job back with what was computed sealed; nothing is left.
func TestRolePhases(t *testing.T) {
	for _, stage := range []schemas.Stage{schemas.StagePrefill, schemas.StageDecode} {
		for ops := range 9 {
			h := newHost(t, nil)
			h.assign(1, schemas.RoleMixed)
			h.eng.slice = 1
			j := job("u1", stage, 1, 300, 3000)
			h.job(j)
			for range ops {
				h.complete()
			}
			framed := 0
			to := schemas.RoleDecode
			if stage == schemas.StageDecode {
				to = schemas.RolePrefill
			}
			ended := h.dones()
			h.assign(2, to)
			h.run()
			if ended == "" {
				ended = h.dones()
			}
			wanted := fmt.Sprintf("returned %s 1: role changes", stage)
			if stage == schemas.StagePrefill && ops >= 5 {
				wanted = "prefilled prefill 1"
			}
			want(t, fmt.Sprintf("after %d operations", ops), ended, wanted)
			if h.role != to || h.epoch != 2 || len(h.eng.seqs) != 0 {
				t.Errorf("after %d operations: role %s, epoch %d, sequences %v", ops, h.role, h.epoch, h.eng.seqs)
			}
			// A prefill that runs stops at the next block boundary.
			if got, most := h.eng.resid[j.Ready.Job], max(0, ops); got > most {
				t.Errorf("after %d operations: %d blocks were computed", ops, got)
			}
			for _, m := range h.take(schemas.KindFrame) {
				framed += len(m.Frame.Tokens)
			}
			kept := 0
			for _, m := range h.take(schemas.KindCheckpoint) {
				kept = len(m.Checkpoint.Tokens)
			}
			if kept != framed {
				t.Errorf("after %d operations: %d tokens were sent, %d are in the checkpoint", ops, framed, kept)
			}
		}
	}
}

// TestRoleFinishSooner: a decode that is nearly done finishes here.
func TestRoleFinishSooner(t *testing.T) {
	h := newHost(t, nil)
	h.assign(1, schemas.RoleDecode)
	h.job(job("u1", schemas.StageDecode, 1, 10, 200))
	for range 40 { // 4,000 tokens per second; 50 are left, for 12 ms
		h.complete()
	}
	h.assign(2, schemas.RolePrefill)
	if h.role != schemas.RoleDraining {
		t.Errorf("role %s", h.role)
	}
	h.run()
	if len(h.results) != 1 || h.role != schemas.RolePrefill || h.dones() != "" {
		t.Errorf("%d results, role %s", len(h.results), h.role)
	}
	h.confirm(0, "")
}

// TestRoleDeadline: an engine that does not come back for 10 s does not keep the
// rest from being handed back.
func TestRoleDeadline(t *testing.T) {
	h := newHost(t, nil)
	h.assign(1, schemas.RoleDecode)
	h.job(job("u1", schemas.StageDecode, 1, 10, 4000))
	h.job(job("u2", schemas.StageDecode, 1, 10, 4000))
	for range 6 {
		h.complete()
	}
	h.assign(2, schemas.RolePrefill)
	h.pass(11_000 * ms)
	if h.role != schemas.RoleDraining {
		t.Fatalf("role %s while an operation is under way", h.role)
	}
	h.complete()
	h.verify()
	if h.role != schemas.RolePrefill || h.dones() != "returned decode 1: role change ran into its deadline; returned decode 1: role change ran into its deadline" {
		t.Errorf("role %s", h.role)
	}
	h.run()
	if len(h.eng.seqs) != 0 {
		t.Errorf("sequences %v", h.eng.seqs)
	}
}

// TestRoleVerify: a role is in force only after the engine said that it holds what
// the executor believes; otherwise the old role stays, and the report says why.
func TestRoleVerify(t *testing.T) {
	h := newHost(t, nil)
	h.assign(1, schemas.RoleDecode)
	h.eng.problem = "sequence 2 should be free and holds 7 tokens"
	h.take(schemas.KindReport)
	h.assign(2, schemas.RolePrefill)
	if h.role != schemas.RoleDecode || h.epoch != 1 {
		t.Errorf("role %s, epoch %d", h.role, h.epoch)
	}
	rs := h.take(schemas.KindReport)
	if len(rs) == 0 || !strings.Contains(rs[len(rs)-1].Report.Problem, "holds 7 tokens") {
		t.Errorf("reports %+v", rs)
	}
	h.job(job("u1", schemas.StageDecode, 1, 10, 4))
	h.run()
	h.confirm(0, "")
	h.eng.problem = ""
	h.assign(3, schemas.RolePrefill)
	if h.role != schemas.RolePrefill || h.epoch != 3 {
		t.Errorf("role %s, epoch %d", h.role, h.epoch)
	}
}

// TestSizeClasses: a job of a class that the assignment leaves out is handed back.
func TestSizeClasses(t *testing.T) {
	h := newHost(t, nil)
	h.assign(1, schemas.RoleMixed, schemas.SizeS)
	h.job(job("u1", schemas.StagePrefill, 1, 512, 5))
	h.job(job("u2", schemas.StagePrefill, 1, 513, 5))
	want(t, "too large", h.dones(), "returned prefill 1: role is mixed")
}

// TestAlone: such a job gets an empty engine and keeps it to itself.
func TestAlone(t *testing.T) {
	h := newHost(t, nil)
	h.assign(1, schemas.RoleDecode)
	alone := job("alone", schemas.StageDecode, 2, 10, 30)
	alone.Alone = true
	h.job(job("before", schemas.StageDecode, 1, 10, 30))
	h.complete()
	h.job(alone)
	h.job(job("after", schemas.StageDecode, 1, 10, 30))
	h.answer(0, 0, false)
	var order []string
	for n := 0; len(order) < 3 && n < 1000; n++ {
		h.complete()
		if len(h.eng.seqs) > 1 {
			t.Fatalf("%d sequences are open", len(h.eng.seqs))
		}
		for len(h.results) > 0 {
			order = append(order, h.confirm(0, "").Turn)
		}
	}
	want(t, "order", fmt.Sprint(order), "[before alone after]")
}

// TestExecutorWalk: arbitrary messages in arbitrary order. Every job that is taken
// ends exactly once: by a done, a result, a cancel or a newer attempt; what the
// fake engine is asked for is always possible; frames go on without gap or repeat
// (invariant 2); a job starts only under an assignment that allows it (invariant 6);
// nothing stays behind (invariant 8).
func TestExecutorWalk(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := func(label string, below int) int { return rapid.IntRange(0, below-1).Draw(rt, label) }
		h := newHost(rt, nil)
		roles := []schemas.Role{schemas.RoleMixed, schemas.RoleDecode, schemas.RolePrefill, schemas.RoleStandby}
		epoch := uint64(1)
		given := map[uint64]schemas.Role{1: schemas.RoleMixed}
		h.assign(1, schemas.RoleMixed)
		attempts := map[string]int{}
		delivered := map[string]int{}
		h.eng.slice = 1
		h.onOpen = func(o *schemas.OpenOp) {
			if !given[h.epoch].Takes(o.Stage) && !given[epoch].Takes(o.Stage) {
				rt.Fatalf("%s starts under role %s, which is to become %s", o.Stage, given[h.epoch], given[epoch])
			}
		}
		for range rapid.IntRange(1, 150).Draw(rt, "steps") {
			turn := fmt.Sprintf("u%d", n("turn", 6))
			switch n("action", 14) {
			case 0, 1, 2:
				stage := []schemas.Stage{schemas.StagePrefill, schemas.StageDecode}[n("stage", 2)]
				attempts[turn] += 1 + n("attempt", 2)
				j := job(turn, stage, attempts[turn], 1+n("prompt", 400), 40)
				j.Alone, j.Local = n("alone", 6) == 0, n("local", 2) == 0
				if n("then", 2) == 0 {
					j.DecodeOn = "e1"
				}
				h.eng.heads[j.Ready.Job] = n("head", 4) == 0
				if h.eng.heads[j.Ready.Job] && j.Ready.Prompt.N > 64 {
					j.Ready.Prompt.TailFrom = 64
				} else {
					h.eng.heads[j.Ready.Job] = false
				}
				h.job(j)
				for range n("again", 3) {
					again := *j
					again.Attempt -= n("older", 2)
					h.job(&again)
				}
			case 3:
				h.cancel(turn, attempts[turn]+n("cancel", 2)-1)
			case 4:
				epoch++
				given[epoch] = roles[n("role", 4)]
				h.assign(epoch, given[epoch])
			case 5:
				h.pass(schemas.Time(n("ms", 1500)) * ms)
			case 6:
				if len(h.asks) > 0 {
					i := n("ask", len(h.asks))
					if d := h.asks[i].Delivered; d != nil {
						if s := h.frames[schemas.OutSubject("t", "s", d.Turn)]; s != nil {
							delivered[d.Turn] = max(delivered[d.Turn], s.tokens)
						}
						h.answer(i, delivered[d.Turn], n("finished", 8) == 0)
					} else {
						h.answer(i, 0, false)
					}
				}
			case 7:
				if len(h.results) > 0 {
					h.confirm(n("result", len(h.results)), []string{"", "", schemas.ErrTextFull, schemas.ErrTextConflict}[n("stored", 4)])
				}
			case 8:
				job := schemas.JobID("t", "s", turn)
				h.eng.fail[job] = []string{"", "", "boom"}[n("fail", 3)]
			default:
				h.complete()
			}
		}
		h.eng.fail = map[string]string{}
		for range 3000 {
			busy := h.complete()
			for len(h.asks) > 0 {
				q := h.asks[0]
				k := 0
				if q.Delivered != nil {
					if s := h.frames[schemas.OutSubject("t", "s", q.Delivered.Turn)]; s != nil {
						k = s.tokens
					}
				}
				h.answer(0, k, false)
			}
			for len(h.results) > 0 {
				r := h.confirm(0, "")
				if len(r.Tokens) != 40 || r.Text != answerText(40) {
					rt.Fatalf("the answer of %s: %d tokens, %q", r.Turn, len(r.Tokens), r.Text)
				}
			}
			if !busy {
				h.pass(600 * ms)
				if h.op == nil && len(h.held) == 0 {
					break
				}
			}
		}
		if len(h.held) > 0 || len(h.eng.seqs) > 0 {
			rt.Fatalf("left behind: held %v, sequences %d", h.held, len(h.eng.seqs))
		}
		if h.epoch != epoch || h.role != given[epoch] {
			rt.Fatalf("role %s at epoch %d, want %s at %d", h.role, h.epoch, given[epoch], epoch)
		}
	})
}
