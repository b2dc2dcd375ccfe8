package gpuexec_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/schemas"
)

const ms = schemas.Time(1_000_000)

// fakeEngine completes operations without an engine, and refuses what no executor
// may ask for. Token i of every answer is 100+i, its text one letter.
type fakeEngine struct {
	t       fatal
	seqs    map[int32]*fakeSeq
	resid   map[string]int    // whole prompt blocks in the tier, by job
	heads   map[string]bool   // jobs whose head is not in the tier
	fail    map[string]string // jobs that the engine refuses when they are opened
	took    int64             // nanoseconds that an operation takes
	slice   int               // blocks that one prefill operation computes; 0 means all
	problem string            // what the engine says when it is verified
	fullAt  int               // blocks that the tier has room for; negative for any number
	gone    *schemas.Gone     // what the tier says of blocks that are missing
}

type fatal interface{ Fatalf(string, ...any) }

type fakeSeq struct {
	job       *schemas.Ready
	stage     schemas.Stage
	blocks    int
	delivered int
	out       int
	started   bool // the prompt's tail is computed
}

func newFake(t fatal) *fakeEngine {
	return &fakeEngine{
		t: t, seqs: map[int32]*fakeSeq{}, resid: map[string]int{}, heads: map[string]bool{}, fail: map[string]string{}, took: int64(ms), fullAt: -1,
	}
}

func wholeBlocks(r *schemas.Ready) int { return (r.Prompt.N - 1) / gpuexec.BlockTokens }

func letter(i int) string { return string(rune('a' + i%26)) }

// do completes one operation.
func (f *fakeEngine) do(op *schemas.Op) schemas.OpDone {
	d := schemas.OpDone{ID: op.ID, TookNS: f.took}
	switch {
	case op.Open != nil:
		f.open(op.Open, &d)
	case op.Prefill != nil:
		s := f.seq(op.Prefill.Seqs[0], "prefill")
		n := wholeBlocks(s.job) - s.blocks
		if f.slice > 0 {
			n = min(n, f.slice)
		}
		if n <= 0 {
			f.t.Fatalf("prefill of a prompt that is complete")
		}
		s.blocks += n
		d.Prefill = &schemas.PrefillDone{Rows: []schemas.PrefillRow{{Computed: n * gpuexec.BlockTokens, Missing: wholeBlocks(s.job) - s.blocks}}}
	case op.Decode != nil:
		d.Decode = f.decode(op.Decode)
	case op.Seal != nil:
		s := f.seq(op.Seal.Seq, "seal")
		d.Seal = &schemas.SealDone{Blocks: s.blocks}
		if f.fullAt >= 0 && s.blocks > f.fullAt {
			d.Seal.Skipped = s.blocks - f.fullAt
		}
		f.resid[s.job.Job] = max(f.resid[s.job.Job], s.blocks-d.Seal.Skipped)
	case op.Drop != nil:
		delete(f.seqs, op.Drop.Seq)
	case op.Verify != nil:
		d.Verify = &schemas.VerifyDone{Problem: f.problem}
		if len(op.Verify.Open) != len(f.seqs) {
			f.t.Fatalf("verify with open sequences %v, the engine has %d", op.Verify.Open, len(f.seqs))
		}
	default:
		f.t.Fatalf("an operation for the engine that it does not have: %+v", op)
	}
	return d
}

func (f *fakeEngine) seq(id int32, what string) *fakeSeq {
	s := f.seqs[id]
	if s == nil {
		f.t.Fatalf("%s on sequence %d, which is not open", what, id)
	}
	return s
}

func (f *fakeEngine) open(o *schemas.OpenOp, d *schemas.OpDone) {
	if f.seqs[o.Seq] != nil {
		f.t.Fatalf("sequence %d is opened twice", o.Seq)
	}
	if why := f.fail[o.Ready.Job]; why != "" {
		d.Err, d.Code = why, schemas.CodeEngine
		return
	}
	if f.heads[o.Ready.Job] && len(o.Head) == 0 {
		d.Open = &schemas.OpenDone{NeedHead: true}
		return
	}
	have := min(f.resid[o.Ready.Job], wholeBlocks(o.Ready))
	f.seqs[o.Seq] = &fakeSeq{job: o.Ready, stage: o.Stage, blocks: have, delivered: len(o.Delivered)}
	d.Open = &schemas.OpenDone{Cached: have * gpuexec.BlockTokens, Missing: wholeBlocks(o.Ready) - have, Gone: f.gone}
}

func (f *fakeEngine) decode(op *schemas.DecodeOp) *schemas.DecodeDone {
	done := &schemas.DecodeDone{Rows: make([]schemas.DecodeRow, len(op.Seqs)), Steps: op.MaxSteps}
	for i, id := range op.Seqs {
		s, row := f.seq(id, "decode"), &done.Rows[i]
		if s.blocks < wholeBlocks(s.job) || s.stage != schemas.StageDecode {
			f.t.Fatalf("decode of %s before its prompt is complete", s.job.Turn)
		}
		row.First, row.TextAt = max(s.out, s.delivered), max(s.out, s.delivered)
		steps := op.MaxSteps
		if !s.started {
			s.started = true
			steps++ // the prompt's tail yields a token too
		}
		for n := 0; n < steps && row.Finish == ""; n++ {
			if s.out >= s.delivered {
				row.Tokens = append(row.Tokens, int32(100+s.out))
				row.Text += letter(s.out)
			}
			s.out++
			if s.out >= s.job.MaxNew {
				row.Finish, row.Answer = "length", answerText(s.job.MaxNew)
			}
		}
	}
	return done
}

func answerText(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(letter(i))
	}
	return b.String()
}

// host runs one executor with the fake engine and keeps what it sent.
type host struct {
	t       fatal
	x       *gpuexec.Executor
	eng     *fakeEngine
	now     schemas.Time
	op      *schemas.Op   // the engine operation under way
	drops   []*schemas.Op // after it
	asks    []*schemas.Op
	results []schemas.Msg // publishes without an answer
	sent    []schemas.Msg // everything else, oldest first
	held    []schemas.Held
	role    schemas.Role
	epoch   uint64
	frames  map[string]*stream
	again   int // repeats of all frames that are expected
	onOpen  func(*schemas.OpenOp)
}

// stream is what a reader of one attempt has.
type stream struct {
	attempt int
	tokens  int
	from    int
}

func newHost(t fatal, change func(*gpuexec.Config)) *host {
	cfg := gpuexec.Config{
		Cell: "c0", Executor: "e0", Node: "n0", Pool: "m", Boot: "b1", Limits: gpuexec.Limits{Slots: 3, Context: 4096, BatchRows: 64, Vocab: 1000},
	}
	if change != nil {
		change(&cfg)
	}
	return &host{t: t, x: gpuexec.NewExecutor(cfg), eng: newFake(t), now: 1000 * 1000 * ms, frames: map[string]*stream{}, role: schemas.RoleStandby}
}

func (h *host) step(m schemas.Msg) {
	for _, o := range h.x.Step(h.now, &m, nil) {
		h.out(o)
	}
}

func (h *host) out(m schemas.Msg) {
	switch m.Kind {
	case schemas.KindOp:
		switch {
		case m.Op.Tokens != nil || m.Op.Delivered != nil || m.Op.Bring != nil || m.Op.Health != nil:
			h.asks = append(h.asks, m.Op)
		case m.Op.Drop != nil:
			h.drops = append(h.drops, m.Op)
			h.settleDrops()
		case h.op != nil:
			h.t.Fatalf("a second engine operation while one is under way")
		default:
			h.op = m.Op
			if m.Op.Open != nil && h.onOpen != nil {
				h.onOpen(m.Op.Open)
			}
		}
		return
	case schemas.KindResult:
		h.results = append(h.results, m)
		return
	case schemas.KindHeartbeat:
		if m.Heartbeat.Epoch < h.epoch {
			h.t.Fatalf("the epoch went back from %d to %d", h.epoch, m.Heartbeat.Epoch)
		}
		h.held, h.role, h.epoch = m.Heartbeat.Held, m.Heartbeat.Role, m.Heartbeat.Epoch
	case schemas.KindFrame:
		h.frame(&m)
	case schemas.KindReport:
		if m.Report.Queued < 0 {
			h.t.Fatalf("a report of %d queued jobs", m.Report.Queued)
		}
	default:
	}
	h.sent = append(h.sent, m)
}

// settleDrops: the engine's goroutine does operations in order.
func (h *host) settleDrops() {
	if h.op != nil {
		return
	}
	for _, op := range h.drops {
		h.eng.do(op)
	}
	h.drops = nil
}

// frame checks that indexes, texts and attempts go on without gap or repeat
// (invariant 2).
func (h *host) frame(m *schemas.Msg) {
	f := m.Frame
	s := h.frames[m.Subject]
	if s == nil || s.attempt < f.Attempt {
		s = &stream{attempt: f.Attempt, tokens: f.First, from: f.First}
		h.frames[m.Subject] = s
	}
	if f.Attempt < s.attempt {
		h.t.Fatalf("a frame of attempt %d after one of %d", f.Attempt, s.attempt)
	}
	if h.again > 0 && f.First == s.from && f.TextAt == s.from && f.First+len(f.Tokens) == s.tokens && len(f.Text) == len(f.Tokens) {
		h.again-- // NATS was away, so all that was sent is sent once more
		return
	}
	if f.First != s.tokens || f.TextAt != s.tokens || len(f.Text) != len(f.Tokens) {
		h.t.Fatalf("frame at token %d, text at %d, %d bytes; %d tokens came before: %+v", f.First, f.TextAt, len(f.Text), s.tokens, f)
	}
	for i, tok := range f.Tokens {
		if int(tok) != 100+f.First+i || f.Text[i:i+1] != letter(f.First+i) {
			h.t.Fatalf("token %d is %d %q", f.First+i, tok, f.Text[i:i+1])
		}
	}
	s.tokens += len(f.Tokens)
}

// complete lets the engine finish what is under way.
func (h *host) complete() bool {
	op := h.op
	if op == nil {
		return false
	}
	h.op = nil
	d := h.eng.do(op)
	h.settleDrops()
	h.now += schemas.Time(d.TookNS)
	h.step(schemas.Msg{Kind: schemas.KindOpDone, OpDone: &d})
	return true
}

// answer answers the i-th question with that many delivered tokens.
func (h *host) answer(i, delivered int, finished bool) {
	q := h.asks[i]
	h.asks = append(h.asks[:i:i], h.asks[i+1:]...)
	d := schemas.OpDone{ID: q.ID}
	if q.Tokens != nil {
		d.Tokens = &schemas.TokensReply{Header: schemas.H(), Tokens: make(schemas.Tokens, q.Tokens.To)}
	} else {
		toks := make(schemas.Tokens, delivered)
		for k := range toks {
			toks[k] = int32(100 + k)
		}
		d.Delivered = &schemas.DeliveredDone{Tokens: toks, Finished: finished}
	}
	h.step(schemas.Msg{Kind: schemas.KindOpDone, OpDone: &d})
}

// confirm tells how the i-th publish of a result ended.
func (h *host) confirm(i int, err string) *schemas.Result {
	m := h.results[i]
	h.results = append(h.results[:i:i], h.results[i+1:]...)
	h.step(schemas.Msg{Kind: schemas.KindPublished, Subject: m.Subject, ID: m.ID, Err: err})
	return m.Result
}

// pass lets time go by.
func (h *host) pass(d schemas.Time) {
	for end := h.now + d; h.now < end; {
		h.now = min(end, max(h.now+1, h.x.Next()))
		h.step(schemas.Msg{Kind: schemas.KindTick})
	}
}

func (h *host) assign(epoch uint64, role schemas.Role, classes ...schemas.SizeClass) {
	h.step(schemas.Msg{
		Kind: schemas.KindAssignment, Subject: schemas.RoleSubject("c0", "e0"), Seq: epoch,
		Assignment: &schemas.Assignment{Header: schemas.H(), Role: role, Classes: classes},
	})
	h.verify()
}

// verify lets the engine answer when a role change asks it.
func (h *host) verify() {
	if h.op != nil && h.op.Verify != nil {
		h.complete()
	}
}

func job(turn string, stage schemas.Stage, attempt, n, maxNew int) *schemas.Job {
	return &schemas.Job{
		Header: schemas.H(), Stage: stage, Attempt: attempt,
		Ready: &schemas.Ready{
			Header: schemas.H(), Tenant: "t", Session: "s", Turn: turn, Branch: "main", Job: schemas.JobID("t", "s", turn), Pool: "m", MaxNew: maxNew,
			Prompt: schemas.Prompt{N: n, Tail: make(schemas.Tokens, n)},
		},
	}
}

func (h *host) job(j *schemas.Job) {
	h.step(schemas.Msg{Kind: schemas.KindJob, Subject: schemas.JobSubject(j.Stage, "c0", "e0", j.Ready.Job), Job: j})
}

func (h *host) cancel(turn string, attempt int) {
	h.step(schemas.Msg{Kind: schemas.KindCancel, Cancel: &schemas.Cancel{Header: schemas.H(), Job: schemas.JobID("t", "s", turn), Attempt: attempt, Reason: "gone"}})
}

// take returns what was sent since the last call, of that kind.
func (h *host) take(k schemas.Kind) (out []schemas.Msg) {
	rest := h.sent[:0]
	for _, m := range h.sent {
		if m.Kind == k {
			out = append(out, m)
		} else {
			rest = append(rest, m)
		}
	}
	h.sent = rest
	return out
}

// dones lists the done messages since the last call.
func (h *host) dones() string {
	var b []string
	for _, m := range h.take(schemas.KindDone) {
		d := m.Done
		s := fmt.Sprintf("%s %s %d", d.Outcome, d.Stage, d.Attempt)
		if d.PassedTo != "" {
			s += " to " + d.PassedTo
		}
		if d.Code != "" {
			s += " " + d.Code
		}
		if d.Reason != "" {
			s += ": " + d.Reason
		}
		b = append(b, s)
	}
	return strings.Join(b, "; ")
}

// run lets the engine work until it has nothing to do.
func (h *host) run() {
	for n := 0; h.complete(); n++ {
		if n > 10_000 {
			h.t.Fatalf("the engine never rests")
		}
	}
}

func want(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n got %q\nwant %q", what, got, want)
	}
}
