package gpuexec_test

import (
	"strings"
	"testing"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/schemas"
)

// TestTurn: prefill here, hand-over, decode here, result, nothing left.
func TestTurn(t *testing.T) {
	h := newHost(t, nil)
	h.pass(ms)
	if h.role != schemas.RoleStandby {
		t.Errorf("role %s before an assignment", h.role)
	}
	h.job(job("u1", schemas.StagePrefill, 1, 300, 10))
	want(t, "without a role", h.dones(), "returned prefill 1: role is standby")
	h.assign(1, schemas.RoleMixed)
	j := job("u1", schemas.StagePrefill, 1, 300, 10)
	j.DecodeOn = "e0"
	h.job(j)
	h.run()
	want(t, "prefill", h.dones(), "prefilled prefill 1 to e0")
	next := h.take(schemas.KindJob)
	if len(next) != 1 || next[0].Job.Stage != schemas.StageDecode || next[0].Job.PrefillOn != "e0" || next[0].Subject != schemas.JobSubject(schemas.StageDecode, "c0", "e0", j.Ready.Job) ||
		next[0].ID != j.Ready.MsgID("job")+":decode:1" {
		t.Fatalf("handed over: %+v", next)
	}
	h.job(next[0].Job)
	h.job(next[0].Job) // twice
	h.job(j)           // and the prefill, late
	h.run()
	if len(h.results) != 1 {
		t.Fatalf("%d results", len(h.results))
	}
	h.pass(1000 * ms)
	if len(h.held) != 1 {
		t.Errorf("held %v while the result is not confirmed", h.held)
	}
	r := h.confirm(0, "")
	if r.Text != answerText(10) || len(r.Tokens) != 10 || r.Finish != "length" || r.Usage.Prompt != 300 || r.DecodeOn != "e0" {
		t.Errorf("result %+v", r)
	}
	h.pass(1000 * ms)
	if len(h.held) != 0 || len(h.eng.seqs) != 0 || h.dones() != "" {
		t.Errorf("left: held %v, sequences %v", h.held, h.eng.seqs)
	}
	// The frames of the answer: the first token at once, then at most 4 tokens.
	var sizes []int
	for _, m := range h.take(schemas.KindFrame) {
		sizes = append(sizes, len(m.Frame.Tokens))
		if !m.Core {
			t.Error("a frame waits for an acknowledgement")
		}
	}
	if len(sizes) != 4 || sizes[0] != 1 {
		t.Errorf("frames of %v tokens", sizes)
	}
}

// TestFrameAge: a token is not held back for longer than 5 ms.
func TestFrameAge(t *testing.T) {
	h := newHost(t, func(c *gpuexec.Config) { c.FrameTokens = 100 })
	h.assign(1, schemas.RoleDecode)
	h.eng.took = 1
	h.job(job("u1", schemas.StageDecode, 1, 10, 150))
	h.complete() // open
	h.complete() // first token
	h.take(schemas.KindFrame)
	d := schemas.OpDone{ID: h.op.ID, TookNS: 1, Decode: &schemas.DecodeDone{Steps: 1, Rows: []schemas.DecodeRow{{First: 1, TextAt: 1, Tokens: []int32{101}, Text: "b"}}}}
	h.op = nil
	h.step(schemas.Msg{Kind: schemas.KindOpDone, OpDone: &d})
	if f := h.take(schemas.KindFrame); len(f) != 0 {
		t.Fatalf("sent at once: %+v", f)
	}
	at := h.now
	for h.now < at+20*ms && len(h.take(schemas.KindFrame)) == 0 {
		h.now = h.x.Next()
		h.step(schemas.Msg{Kind: schemas.KindTick})
	}
	if h.now != at+5*ms {
		t.Errorf("the frame was sent after %d µs", (h.now-at)/1000)
	}
}

// TestCheckpoints: 32 tokens or 500 ms, but not more often than every 50 ms, and
// never ahead of the frames.
func TestCheckpoints(t *testing.T) {
	for _, c := range []struct {
		took schemas.Time
		most int // tokens between two checkpoints
	}{{6 * ms, 40}, {200 * ms, 16}} {
		h := newHost(t, nil)
		h.assign(1, schemas.RoleDecode)
		h.eng.took = int64(c.took)
		h.job(job("u1", schemas.StageDecode, 1, 10, 200))
		h.run()
		fast := newHost(t, nil) // thousands of tokens per second
		fast.assign(1, schemas.RoleDecode)
		fast.job(job("u1", schemas.StageDecode, 1, 10, 2000))
		fast.run()
		if n, most := len(fast.take(schemas.KindCheckpoint)), int((fast.now-1000*1000*ms)/(50*ms))+1; n > most {
			t.Errorf("%d checkpoints, at most %d", n, most)
		}
		framed, last, n := 0, 0, 0
		for _, m := range h.sent {
			switch m.Kind {
			case schemas.KindFrame:
				framed += len(m.Frame.Tokens)
			case schemas.KindCheckpoint:
				k := len(m.Checkpoint.Tokens)
				if k > framed || k-last > c.most {
					t.Errorf("a checkpoint of %d tokens after one of %d, %d were sent", k, last, framed)
				}
				last = k
				n++
			default:
			}
		}
		if n < 4 {
			t.Errorf("%d checkpoints", n)
		}
	}
}

// TestSecondAttempt: delivered tokens are asked for, forced along and not sent
// again; a turn that has a result is only reported.
func TestSecondAttempt(t *testing.T) {
	h := newHost(t, nil)
	h.assign(1, schemas.RoleDecode)
	h.job(job("u1", schemas.StageDecode, 2, 10, 20))
	if h.op != nil || len(h.asks) != 1 {
		t.Fatalf("operation %v, %d questions", h.op, len(h.asks))
	}
	h.answer(0, 7, false)
	h.run()
	if s := h.frames[schemas.OutSubject("t", "s", "u1")]; s.from != 7 || s.tokens != 20 {
		t.Errorf("frames from %d to %d", s.from, s.tokens)
	}
	if r := h.confirm(0, ""); len(r.Tokens) != 20 || r.Attempt != 2 {
		t.Errorf("result %+v", r)
	}
	h.job(job("u2", schemas.StageDecode, 2, 10, 20))
	h.answer(0, 0, true)
	want(t, "a result exists", h.dones(), "decoded decode 2: the result existed already")
	// Attempt 3 arrives while 2 runs; 2 comes again, late.
	h.job(job("u3", schemas.StageDecode, 2, 10, 20))
	h.answer(0, 0, false)
	h.complete()
	h.complete()
	h.job(job("u3", schemas.StageDecode, 3, 10, 20))
	h.job(job("u3", schemas.StageDecode, 2, 10, 20))
	for len(h.asks) == 0 {
		h.complete()
	}
	h.answer(0, 3, false)
	h.run()
	if r := h.confirm(0, ""); r.Attempt != 3 || len(h.results) != 0 {
		t.Errorf("result of attempt %d, %d more", r.Attempt, len(h.results))
	}
	want(t, "superseded", h.dones(), "")
}

// TestMovedFirstToken: the time to the first token is that of the executor which
// computed it, also when another one finishes the turn.
func TestMovedFirstToken(t *testing.T) {
	h := newHost(t, nil)
	h.assign(1, schemas.RoleDecode)
	j := job("u1", schemas.StageDecode, 2, 10, 20)
	j.FirstNS = j.Ready.AdmittedNS + 1234
	h.job(j)
	h.answer(0, 7, false)
	h.run()
	if r := h.confirm(0, ""); r.Timing.TTFTNS != 1234 || r.Timing.EngineTTFTNS != 0 {
		t.Errorf("timing %+v", r.Timing)
	}
}

// TestBusBack: what was sent is sent again, as one frame and three times, when NATS
// comes back: it may have lost its memory streams, and readers may come back later.
func TestBusBack(t *testing.T) {
	h := newHost(t, nil)
	h.assign(1, schemas.RoleDecode)
	h.job(job("u1", schemas.StageDecode, 1, 10, 40))
	for range 6 {
		h.complete()
	}
	before := h.frames[schemas.OutSubject("t", "s", "u1")].tokens
	if before == 0 {
		t.Fatal("nothing was sent yet")
	}
	h.step(schemas.Msg{Kind: schemas.KindBus, Err: "gone"})
	h.again = 3
	h.step(schemas.Msg{Kind: schemas.KindBus})
	if h.again != 2 {
		t.Errorf("%d repeats left after the first, want 2", h.again)
	}
	h.pass(1100 * ms)
	if h.again != 0 {
		t.Errorf("%d repeats left after two heartbeats", h.again)
	}
	h.run()
	if r := h.confirm(0, ""); len(r.Tokens) != 40 {
		t.Errorf("result %+v", r)
	}
}

// TestInexact: an engine that may sample other tokens stores a checkpoint before it
// sends a frame, and the next attempt sends everything again along the checkpoint.
func TestInexact(t *testing.T) {
	h := newHost(t, func(c *gpuexec.Config) { c.Inexact = true })
	h.assign(1, schemas.RoleDecode)
	h.job(job("u1", schemas.StageDecode, 1, 10, 12))
	for len(h.take(schemas.KindCheckpoint)) == 0 {
		h.complete()
	}
	subject := schemas.OutSubject("t", "s", "u1")
	if h.frames[subject] != nil {
		t.Fatal("a frame was sent before its checkpoint is stored")
	}
	stored := func(err string) {
		h.step(schemas.Msg{Kind: schemas.KindPublished, Subject: schemas.CkptSubject("t", "s", "u1"), Err: err})
	}
	stored(schemas.ErrTextFull)
	if again := h.take(schemas.KindCheckpoint); len(again) != 1 || h.frames[subject] != nil {
		t.Fatalf("%d checkpoints after one was refused", len(again))
	}
	stored("")
	if s := h.frames[subject]; s == nil || s.tokens == 0 {
		t.Fatal("no frame after its checkpoint is stored")
	}
	h.job(job("u1", schemas.StageDecode, 2, 10, 12))
	for len(h.asks) == 0 {
		h.complete()
	}
	h.onOpen = func(o *schemas.OpenOp) {
		if !o.Again || len(o.Delivered) != 5 {
			t.Errorf("opened with %d delivered tokens, again %v", len(o.Delivered), o.Again)
		}
	}
	h.answer(0, 5, false)
	h.complete()
}

// TestHead: a prompt whose head is gone from the tier is asked for, and when
// lineage does not know it the job goes back.
func TestHead(t *testing.T) {
	h := newHost(t, nil)
	h.assign(1, schemas.RoleDecode)
	j := job("u1", schemas.StageDecode, 1, 200, 5)
	j.Ready.Prompt.TailFrom = 128
	h.eng.heads[j.Ready.Job] = true
	h.job(j)
	h.complete()
	if len(h.asks) != 1 || h.asks[0].Tokens == nil || h.asks[0].Tokens.To != 128 {
		t.Fatalf("asked %+v", h.asks)
	}
	h.answer(0, 0, false)
	h.run()
	h.confirm(0, "")
	h.job(func() *schemas.Job { k := *j; k.Attempt = 2; return &k }())
	h.answer(0, 0, false)
	h.complete()
	d := schemas.OpDone{ID: h.asks[0].ID, Tokens: &schemas.TokensReply{Header: schemas.H(), Error: "the turn is not known here"}}
	h.step(schemas.Msg{Kind: schemas.KindOpDone, OpDone: &d})
	want(t, "not known", h.dones(), "returned decode 2: the prompt's first tokens are not known: the turn is not known here")
}

// TestLocal: a decode job computes a few missing blocks itself, and hands back
// more, unless it is told to.
func TestLocal(t *testing.T) {
	for _, c := range []struct {
		n     int
		role  schemas.Role
		local bool
		want  string
	}{
		{512 + 1, schemas.RoleDecode, false, ""},
		{576 + 1, schemas.RoleDecode, false, "returned decode 1: prompt blocks are missing"},
		{576 + 1, schemas.RoleDecode, true, ""},
		{576 + 1, schemas.RoleMixed, false, ""},
	} {
		h := newHost(t, nil)
		h.assign(1, c.role)
		j := job("u1", schemas.StageDecode, 1, c.n, 5)
		j.Local = c.local
		h.job(j)
		h.run()
		want(t, "done", h.dones(), c.want)
		if (len(h.results) == 1) != (c.want == "") {
			t.Errorf("%+v: %d results", c, len(h.results))
		}
	}
}

// TestFullTier: what the tier could not take is computed by the decode side.
func TestFullTier(t *testing.T) {
	h := newHost(t, nil)
	h.assign(1, schemas.RolePrefill)
	h.eng.fullAt = 2
	j := job("u1", schemas.StagePrefill, 1, 1000, 5)
	j.DecodeOn = "e1"
	h.job(j)
	h.run()
	if next := h.take(schemas.KindJob); len(next) != 1 || !next[0].Job.Local {
		t.Errorf("handed over: %+v", next)
	}
}

// TestResultRefused: a result that a full stream refuses is sent again until it is
// stored or somebody else's is there; one that fits no message fails the turn.
func TestResultRefused(t *testing.T) {
	h := newHost(t, nil)
	h.assign(1, schemas.RoleDecode)
	h.job(job("u1", schemas.StageDecode, 1, 10, 5))
	h.run()
	for range 3 {
		h.confirm(0, schemas.ErrTextFull)
		if len(h.results) != 0 {
			t.Fatal("sent again at once")
		}
		h.pass(600 * ms)
		if len(h.results) != 1 {
			t.Fatalf("%d results after a heartbeat", len(h.results))
		}
	}
	// A role change does not wait for it.
	h.assign(2, schemas.RolePrefill)
	if h.role != schemas.RolePrefill {
		t.Errorf("role %s", h.role)
	}
	h.confirm(0, schemas.ErrTextConflict)
	want(t, "conflict", h.dones(), "decoded decode 1: the result existed already")
	h.assign(3, schemas.RoleDecode)
	h.job(job("u2", schemas.StageDecode, 1, 10, 5))
	h.run()
	h.confirm(0, schemas.ErrTooLarge.Error()+": 2000000 bytes")
	if d := h.dones(); !strings.HasPrefix(d, "failed decode 1 context_length_exceeded") {
		t.Errorf("too large: %s", d)
	}
}

// TestLogprobsOutgrowMessage: a result leaves out what would not fit.
func TestLogprobsOutgrowMessage(t *testing.T) {
	h := newHost(t, nil)
	h.assign(1, schemas.RoleDecode)
	h.job(job("u1", schemas.StageDecode, 1, 10, 2))
	h.complete()
	lp := []byte(`"` + strings.Repeat("x", schemas.MaxMessage/3) + `"`)
	d := schemas.OpDone{ID: h.op.ID, Decode: &schemas.DecodeDone{Steps: 2, Rows: []schemas.DecodeRow{{
		Tokens: []int32{100, 101}, Text: "ab", Logprobs: [][]byte{lp, lp}, Finish: "length", Answer: "ab",
	}}}}
	h.op = nil
	h.step(schemas.Msg{Kind: schemas.KindOpDone, OpDone: &d})
	h.run()
	if r := h.confirm(0, ""); r.Logprobs != nil {
		t.Errorf("%d logprobs in the result", len(r.Logprobs))
	} else if _, err := schemas.Encode(r); err != nil {
		t.Error(err)
	}
}

// TestQueueBound: what exceeds the bound is handed back at once.
func TestQueueBound(t *testing.T) {
	h := newHost(t, func(c *gpuexec.Config) { c.MaxQueue = 4 })
	h.assign(1, schemas.RoleDecode)
	for i := range 6 {
		h.job(job(string(rune('a'+i)), schemas.StageDecode, 1, 10, 50))
	}
	want(t, "beyond the bound", h.dones(), "returned decode 1: queue is full; returned decode 1: queue is full")
}

// TestEngineFails: the job is reported with its code, the others go on.
func TestEngineFails(t *testing.T) {
	h := newHost(t, nil)
	h.assign(1, schemas.RoleDecode)
	a, b := job("a", schemas.StageDecode, 1, 10, 9), job("b", schemas.StageDecode, 1, 10, 9)
	h.eng.fail[a.Ready.Job] = "no cells"
	h.job(a)
	h.job(b)
	h.run()
	want(t, "failed", h.dones(), "failed decode 1 engine_error: no cells")
	if r := h.confirm(0, ""); r.Turn != "b" || len(r.Tokens) != 9 || len(h.eng.seqs) != 0 {
		t.Errorf("result %+v", r)
	}
}

// TestCancelPhases: a cancel in every phase ends the job, keeps what was computed
// and leaves no sequence behind. Older cancels do nothing.
func TestCancelPhases(t *testing.T) {
	for ops := range 12 {
		h := newHost(t, nil)
		h.assign(1, schemas.RoleMixed)
		h.eng.slice = 1
		h.job(job("u1", schemas.StageDecode, 2, 300, 20))
		if ops > 0 {
			h.answer(0, 0, false)
		}
		for range ops - 1 {
			h.complete()
		}
		h.cancel("u1", 1)
		h.pass(600 * ms)
		if len(h.held) != 1 {
			t.Fatalf("after %d operations: held %v after an old cancel", ops, h.held)
		}
		blocks := 0
		for _, s := range h.eng.seqs {
			blocks = s.blocks
		}
		h.cancel("u1", 2)
		h.cancel("u1", 2)
		h.run()
		h.pass(600 * ms)
		if len(h.held) != 0 || len(h.eng.seqs) != 0 || len(h.results) != 0 {
			t.Errorf("after %d operations: held %v, sequences %d, results %d", ops, h.held, len(h.eng.seqs), len(h.results))
		}
		if got := h.eng.resid[schemas.JobID("t", "s", "u1")]; got < blocks {
			t.Errorf("after %d operations: %d blocks were computed, %d are in the tier", ops, blocks, got)
		}
	}
}
