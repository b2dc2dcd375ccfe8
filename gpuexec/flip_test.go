package gpuexec_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-dev/weir/schemas"
)

// flip is the newest role change that was reported.
func (h *host) flip() *schemas.Flip {
	rs := h.take(schemas.KindReport)
	if len(rs) == 0 || rs[len(rs)-1].Report.Flip == nil {
		h.t.Fatalf("no role change is reported in %d reports", len(rs))
	}
	return rs[len(rs)-1].Report.Flip
}

// TestFlipReport: the stages follow each other and their times add up; every job is
// counted once.
func TestFlipReport(t *testing.T) {
	h := newHost(t, nil)
	h.assign(1, schemas.RoleMixed)
	h.job(job("ends", schemas.StageDecode, 1, 10, 60))
	h.job(job("moves", schemas.StageDecode, 1, 10, 3000))
	for range 10 {
		h.complete()
	}
	h.job(job("stays", schemas.StagePrefill, 1, 4000, 10))
	for range 2 {
		h.complete()
	}
	h.job(job("waits", schemas.StageDecode, 1, 10, 10))
	h.eng.slice = 1
	h.take(schemas.KindReport)
	at := h.now
	h.assign(2, schemas.RolePrefill)
	for n := 0; h.role == schemas.RoleDraining && n < 100; n++ {
		h.complete()
	}
	f := h.flip()
	if f.Epoch != 2 || f.From != schemas.RoleMixed || f.To != schemas.RolePrefill || f.AtNS != int64(at) || f.Back != "" {
		t.Errorf("%+v", f)
	}
	if f.Returned != 1 || f.Handed != 1 || f.Finished != 1 || f.Kept != 1 {
		t.Errorf("returned %d, handed %d, finished %d, kept %d, want 1 each", f.Returned, f.Handed, f.Finished, f.Kept)
	}
	if sum := f.ReturnNS + f.HandNS + f.VerifyNS; f.HandNS == 0 || f.VerifyNS == 0 || sum != int64(h.now-at) {
		t.Errorf("%d + %d + %d ns, the change took %d", f.ReturnNS, f.HandNS, f.VerifyNS, h.now-at)
	}
	h.run()
	h.confirm(0, "")
	h.run()
	want(t, "jobs", h.dones(), "returned decode 1: role changes; returned decode 1: role changes; prefilled prefill 1")
}

// TestSameRole: an assignment that changes nothing takes its epoch at once, beside the
// work in hand, and is no role change.
func TestSameRole(t *testing.T) {
	h := newHost(t, nil)
	h.assign(1, schemas.RoleDecode)
	h.job(job("u1", schemas.StageDecode, 1, 10, 400))
	for range 4 {
		h.complete()
	}
	flips := h.flip()
	h.step(schemas.Msg{
		Kind: schemas.KindAssignment, Subject: schemas.RoleSubject("c0", "e0"), Seq: 4,
		Assignment: &schemas.Assignment{Header: schemas.H(), Role: schemas.RoleDecode, Pinned: true, Plan: "p7"},
	})
	if h.role != schemas.RoleDecode || h.epoch != 4 || h.dones() != "" {
		t.Errorf("role %s, epoch %d", h.role, h.epoch)
	}
	if f := h.flip(); *f != *flips {
		t.Errorf("reported as a change: %+v", f)
	}
	h.assign(3, schemas.RolePrefill)
	if h.role != schemas.RoleDecode || h.epoch != 4 {
		t.Errorf("an older assignment is taken: role %s, epoch %d", h.role, h.epoch)
	}
	h.run()
	h.confirm(0, "")
}

// TestNewerWins: what was on its way out stays if a newer assignment allows it; the
// change back is verified like any other.
func TestNewerWins(t *testing.T) {
	for _, stage := range []schemas.Stage{schemas.StagePrefill, schemas.StageDecode} {
		h := newHost(t, nil)
		h.eng.slice = 1
		role, other := schemas.RolePrefill, schemas.RoleDecode
		if stage == schemas.StageDecode {
			role, other = other, role
		}
		h.assign(1, role)
		h.job(job("u1", stage, 1, 400, 3000))
		for range 3 {
			h.complete()
		}
		h.assign(2, other) // an operation is under way, then a seal
		h.complete()
		h.assign(3, role)
		h.complete()
		h.verify()
		if h.role != role || h.epoch != 3 || h.dones() != "" {
			t.Errorf("%s: role %s, epoch %d", stage, h.role, h.epoch)
		}
		if f := h.flip(); f.Kept != 1 || f.Handed != 0 || f.Epoch != 3 {
			t.Errorf("%s: %+v", stage, f)
		}
		h.run()
		if stage == schemas.StagePrefill {
			want(t, "the prefill goes on", h.dones(), "prefilled prefill 1")
		} else {
			h.confirm(0, "")
		}
	}
}

// TestFlipStuck: when an operation does not come back, the old role is in force again,
// and so is its work.
func TestFlipStuck(t *testing.T) {
	h := newHost(t, nil)
	h.assign(1, schemas.RoleDecode)
	h.job(job("u1", schemas.StageDecode, 1, 10, 4000))
	for range 6 {
		h.complete()
	}
	h.assign(2, schemas.RolePrefill)
	h.pass(21_000 * ms)
	if h.role != schemas.RoleDecode || h.epoch != 1 {
		t.Fatalf("role %s, epoch %d", h.role, h.epoch)
	}
	if f := h.flip(); !strings.Contains(f.Back, "has not come back for 20 s") || f.Epoch != 2 || f.To != schemas.RolePrefill || f.HandNS < 20_000*int64(ms) {
		t.Errorf("%+v", f)
	}
	h.assign(2, schemas.RolePrefill) // delivered once more
	if h.role != schemas.RoleDecode {
		t.Errorf("an assignment that was given up is taken: role %s", h.role)
	}
	h.run()
	if h.confirm(0, ""); h.dones() != "" {
		t.Error("the job did not end here")
	}
	h.assign(3, schemas.RolePrefill)
	if h.role != schemas.RolePrefill || h.epoch != 3 {
		t.Errorf("role %s, epoch %d", h.role, h.epoch)
	}
}

// TestVerifyDeadline: an engine that does not say how it is keeps its role, also when
// its answer comes later.
func TestVerifyDeadline(t *testing.T) {
	h := newHost(t, nil)
	h.assign(1, schemas.RoleDecode)
	h.step(schemas.Msg{
		Kind: schemas.KindAssignment, Subject: schemas.RoleSubject("c0", "e0"), Seq: 2,
		Assignment: &schemas.Assignment{Header: schemas.H(), Role: schemas.RolePrefill},
	})
	h.pass(6_000 * ms)
	if f := h.flip(); h.role != schemas.RoleDecode || h.epoch != 1 || !strings.Contains(f.Back, "within 5 s") {
		t.Errorf("role %s, epoch %d, %+v", h.role, h.epoch, f)
	}
	h.complete()
	if h.role != schemas.RoleDecode || h.epoch != 1 {
		t.Errorf("role %s, epoch %d after a late answer", h.role, h.epoch)
	}
	h.job(job("u1", schemas.StageDecode, 1, 10, 4))
	h.run()
	h.confirm(0, "")
}

// TestStoodStill: an executor that was stopped finds several assignments when it wakes;
// it takes none but the newest.
func TestStoodStill(t *testing.T) {
	h := newHost(t, nil)
	h.assign(1, schemas.RoleDecode)
	h.pass(600 * ms)
	h.now += 30_000 * ms // stopped
	h.take(schemas.KindHeartbeat)
	h.assign(2, schemas.RolePrefill)
	h.pass(100 * ms)
	h.assign(3, schemas.RoleStandby)
	h.pass(50 * ms)
	h.verify()
	if h.role != schemas.RoleDraining || h.epoch != 1 {
		t.Errorf("role %s, epoch %d while more may come", h.role, h.epoch)
	}
	h.pass(200 * ms)
	h.verify()
	if h.role != schemas.RoleStandby || h.epoch != 3 {
		t.Errorf("role %s, epoch %d", h.role, h.epoch)
	}
	for _, m := range h.take(schemas.KindHeartbeat) {
		if m.Heartbeat.Epoch == 2 {
			t.Error("the assignment in between was in force")
		}
	}
}

// TestFlipInTurn: decodes leave one after the other; those that are left go on decoding
// in between, and all are gone soon.
func TestFlipInTurn(t *testing.T) {
	h := newHost(t, nil)
	h.assign(1, schemas.RoleDecode)
	for _, turn := range []string{"u1", "u2", "u3"} {
		h.job(job(turn, schemas.StageDecode, 1, 10, 4000))
	}
	for range 12 {
		h.complete()
	}
	h.take(schemas.KindCheckpoint)
	h.assign(2, schemas.RolePrefill)
	var ops []string
	for h.role == schemas.RoleDraining && len(ops) < 50 {
		switch op := h.op; {
		case op.Seal != nil:
			ops = append(ops, "seal")
		case op.Decode != nil:
			ops = append(ops, fmt.Sprint("decode ", len(op.Decode.Seqs)))
		}
		h.complete()
	}
	if n := len(ops); n > 0 && ops[0] != "seal" {
		ops = ops[1:] // it was under way
	}
	want(t, "operations", strings.Join(ops, ", "), "seal, decode 2, seal, decode 1, seal")
	want(t, "jobs", h.dones(), "returned decode 1: role changes; returned decode 1: role changes; returned decode 1: role changes")
	if c := h.take(schemas.KindCheckpoint); len(c) < 3 || h.role != schemas.RolePrefill {
		t.Errorf("%d checkpoints, role %s", len(c), h.role)
	}
}
