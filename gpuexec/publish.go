package gpuexec

import (
	"strconv"

	"github.com/weir-dev/weir/schemas"
)

// frame collects what is not sent yet. Its tokens are the last n of the job's.
type frame struct {
	first    int
	n        int
	text     []byte
	textAt   int
	logprobs []jsonRaw
	at       schemas.Time // when the oldest token came
}

func (f *frame) pending() bool { return f.n > 0 || len(f.text) > 0 }

func (f *frame) add(r *schemas.DecodeRow) {
	if !f.pending() {
		f.first, f.textAt = r.First, r.TextAt
	}
	f.n += len(r.Tokens)
	f.text = append(f.text, r.Text...)
	if len(r.Logprobs) == 0 {
		return
	}
	// Log-probabilities of delivered tokens come too; frames hold those of new ones.
	for _, lp := range r.Logprobs[max(0, len(r.Logprobs)-len(r.Tokens)):] {
		f.logprobs = append(f.logprobs, lp)
	}
}

// sent remembers what this attempt has sent, to send it once more when NATS may
// have lost it.
type sent struct {
	text   []byte
	textAt int
	again  int // how often it is still to be sent
}

// resends is how often frames are sent again after NATS was away: at once, and
// with the next heartbeats, because readers and the stream may come back later
// than this executor does.
const resends = 3

// maxResend bounds the tokens of one such frame; a longer answer comes with its result.
const maxResend = 32768

// resend sends all frames of this attempt once more, as one.
func (e *Executor) resend(j *job, out []schemas.Msg) []schemas.Msg {
	if j.sent.again == 0 {
		return out
	}
	j.sent.again--
	out = e.flush(j, out)
	first := len(j.delivered)
	if len(j.held) > 0 || j.Stage != schemas.StageDecode || len(j.tokens) <= first || len(j.tokens) > maxResend {
		return out
	}
	f := &schemas.Frame{
		Header: schemas.H(), Attempt: j.Attempt, First: first, Tokens: append(schemas.Tokens(nil), j.tokens[first:]...),
		Text: string(j.sent.text), TextAt: j.sent.textAt, Parse: j.Ready.Parse,
	}
	if len(j.logprobs) == len(j.tokens) {
		f.Logprobs = append([]jsonRaw(nil), j.logprobs[first:]...)
	}
	r := j.Ready
	return append(out, schemas.Msg{
		Kind: schemas.KindFrame, Subject: schemas.OutSubject(r.Tenant, r.Session, r.Turn), Core: true, Trace: j.trace, Frame: f,
	})
}

// flush sends the pending tokens of a job.
func (e *Executor) flush(j *job, out []schemas.Msg) []schemas.Msg {
	f := &j.frame
	if !f.pending() {
		return out
	}
	r := j.Ready
	var tokens schemas.Tokens // the job's are only ever added to
	if end := len(j.tokens); f.n > 0 {
		tokens = j.tokens[end-f.n : end : end]
	}
	msg := schemas.Msg{
		Kind: schemas.KindFrame, Subject: schemas.OutSubject(r.Tenant, r.Session, r.Turn), Core: true, Trace: j.trace,
		Frame: &schemas.Frame{
			Header: schemas.H(), Attempt: j.Attempt, First: f.first, Tokens: tokens, Text: string(f.text), TextAt: f.textAt, Logprobs: f.logprobs,
			Parse: r.Parse,
		},
	}
	if e.cfg.Inexact {
		j.ckptLen = len(j.tokens)
		j.held = append(j.held, heldFrame{msg})
		out = append(out, e.checkpointMsg(j))
	} else {
		out = append(out, msg)
	}
	if len(j.sent.text) == 0 {
		j.sent.textAt = f.textAt
	}
	j.sent.text = append(j.sent.text, f.text...)
	if e.frameAt == f.at+schemas.Time(e.cfg.FrameNS) {
		e.frameAt = 0
	}
	*f = frame{}
	return out
}

// checkpoint stores the delivered tokens when enough of them are not stored. What
// is pending is sent first: a later attempt does not send again what a checkpoint
// holds.
func (e *Executor) checkpoint(now schemas.Time, j *job, force bool, out []schemas.Msg) []schemas.Msg {
	if j.ckptAt == 0 {
		j.ckptAt = now
	}
	n := len(j.tokens) - j.ckptLen
	since := int64(now - j.ckptAt)
	due := n >= e.cfg.CkptTokens && since >= e.cfg.CkptMinNS || since >= e.cfg.CkptNS
	if n <= 0 || j.Stage != schemas.StageDecode || !force && !due {
		return out
	}
	j.ckptAt = now
	out = e.flush(j, out)
	if e.cfg.Inexact {
		return out // flushing made one
	}
	j.ckptLen = len(j.tokens)
	return append(out, e.checkpointMsg(j))
}

func (e *Executor) checkpointMsg(j *job) schemas.Msg {
	r := j.Ready
	return schemas.Msg{
		Kind: schemas.KindCheckpoint, Subject: schemas.CkptSubject(r.Tenant, r.Session, r.Turn), Trace: j.trace, Confirm: e.cfg.Inexact,
		Checkpoint: &schemas.Checkpoint{
			Header: schemas.H(), Attempt: j.Attempt, Tokens: append(schemas.Tokens(nil), j.tokens...), Seed: r.Sampling.Seed,
		},
	}
}

// heldFrame waits for the checkpoint that holds its tokens.
type heldFrame struct{ msg schemas.Msg }

// checkpointed sends the frame whose checkpoint is stored. One that was refused is
// tried again; its frame waits, and comes with the result at the latest.
func (e *Executor) checkpointed(j *job, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
	if len(j.held) == 0 {
		return out
	}
	if in.Err != "" {
		return append(out, e.checkpointMsg(j))
	}
	out = append(out, j.held[0].msg)
	j.held = j.held[1:]
	return out
}

// result publishes the answer. It is confirmed: the job stays in the heartbeats
// until the server has it.
func (e *Executor) result(now schemas.Time, j *job, out []schemas.Msg) []schemas.Msg {
	r := j.Ready
	cached := j.cached
	if j.PrefillOn != "" {
		cached = j.Cached
	}
	prefillOn := j.PrefillOn
	if prefillOn == "" {
		prefillOn = e.cfg.Executor
	}
	since := func(t schemas.Time) int64 { return int64(t) - r.AdmittedNS }
	res := &schemas.Result{
		Header: schemas.H(), Tenant: r.Tenant, Session: r.Session, Turn: r.Turn, Branch: r.Branch, Job: r.Job, Attempt: j.Attempt,
		Status: schemas.StatusOK, Model: r.Pool, Text: j.text, Tokens: j.tokens, Finish: j.finish, End: j.end,
		Usage:  schemas.Usage{Prompt: r.Prompt.N, Cached: cached, Completion: len(j.tokens)},
		Replay: len(r.Force) > 0, PrefillOn: prefillOn, DecodeOn: e.cfg.Executor, Seed: r.Sampling.Seed, Logprobs: j.keptLogprobs(),
		Timing: schemas.Timing{AdmittedNS: r.AdmittedNS, PrefillNS: j.prefill, DecodeNS: int64(now - j.begun), TTFTNS: since(j.first), EngineTTFTNS: j.toFirst, TotalNS: since(now), Spans: e.spans(j)},
		Miss:   j.miss, Message: j.keptMessage(), Parse: r.Parse,
	}
	res.KnownAs = res.Known()
	return append(out, schemas.Msg{
		Kind: schemas.KindResult, Subject: schemas.ResultSubject(r.Tenant, r.Session, r.Turn), Trace: j.trace,
		ID: r.MsgID("result"), ExpectSet: true, Confirm: true, Result: res,
	})
}

// keptLogprobs are the logprobs as far as a result may carry them. With many
// alternatives they outgrow a message; the frames had them all.
func (j *job) keptLogprobs() []jsonRaw {
	n := 0
	for _, lp := range j.logprobs {
		if n += len(lp) + 1; n > schemas.MaxMessage/2 {
			return nil
		}
	}
	return j.logprobs
}

// keptMessage is the message if it fits beside the text, which says the same. Whoever
// misses it makes it from the text.
func (j *job) keptMessage() jsonRaw {
	n := 64<<10 + 6*len(j.tokens) + jsonSize(j.text) + jsonSize(string(j.message))
	for _, lp := range j.keptLogprobs() {
		n += len(lp) + 1
	}
	if n > schemas.MaxMessage {
		return nil
	}
	return j.message
}

// jsonSize bounds what encoding/json makes of a text: it escapes some characters.
func jsonSize(text string) int {
	n := len(text)
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			n++
		case r < 0x20 || r == '<' || r == '>' || r == '&' || r == 0x2028 || r == 0x2029:
			n += 5
		}
	}
	return n
}

// passOn ends a prefill: the decode job goes straight to the executor that the
// router chose, and the router is told.
func (e *Executor) passOn(j *job, d *schemas.SealDone, out []schemas.Msg) []schemas.Msg {
	next := &schemas.Job{
		Header: schemas.H(), Stage: schemas.StageDecode, Attempt: j.Attempt, Ready: j.Ready, Router: j.Router,
		Alone: j.Alone, PrefillOn: e.cfg.Executor, Cached: j.cached, BusyNS: j.busy, Local: d != nil && d.Skipped > 0,
		PlacedNS: int64(e.now), Spans: e.spans(j), Miss: j.miss,
	}
	if j.DecodeOn != "" {
		out = append(out, JobMsg(e.cfg.Cell, j.DecodeOn, next, j.trace))
	}
	return e.done(j, schemas.OutcomePrefilled, "", "", out)
}

// JobMsg is the publish of a job to an executor. Its id makes a job that is
// placed twice in one attempt one message.
func JobMsg(cell, executor string, j *schemas.Job, trace schemas.Trace) schemas.Msg {
	return schemas.Msg{
		Kind: schemas.KindJob, Subject: schemas.JobSubject(j.Stage, cell, executor, j.Ready.Job), Trace: trace,
		ID: j.Ready.MsgID("job") + ":" + string(j.Stage) + ":" + strconv.Itoa(j.Attempt), Job: j,
	}
}

// done tells the router how a stage ended here.
func (e *Executor) done(j *job, o schemas.Outcome, code, reason string, out []schemas.Msg) []schemas.Msg {
	d := &schemas.Done{
		Header: schemas.H(), Job: j.id, Attempt: j.Attempt, Stage: j.Stage, Executor: e.cfg.Executor, Outcome: o,
		Cached: j.cached, Computed: j.computed, BusyNS: j.busy, FirstNS: max(int64(j.first), j.FirstNS), Code: code, Reason: reason,
		Spans: e.spans(j),
	}
	if o == schemas.OutcomePrefilled {
		d.PassedTo, d.Miss = j.DecodeOn, j.miss
	}
	if o == schemas.OutcomeReturned {
		e.leftForRole(j)
	}
	return append(out, schemas.Msg{Kind: schemas.KindDone, Subject: schemas.DoneSubject(e.cfg.Cell, j.id), Trace: j.trace, Done: d})
}

// timers sends what is due: frames, heartbeats, reports, and results that a full
// or absent stream refused.
func (e *Executor) timers(now schemas.Time, out []schemas.Msg) []schemas.Msg {
	if now >= e.frameDue() {
		for _, j := range e.order {
			if j.frame.pending() && int64(now-j.frame.at) >= e.cfg.FrameNS {
				out = e.flush(j, out)
			}
		}
		e.frameAt = 0
	}
	if now >= e.hbAt {
		out = e.heartbeat(now, out)
		for _, j := range e.order {
			if j.phase == phasePublishing && j.reason != "" {
				j.reason = ""
				out = e.result(now, j, out)
			}
			if j.phase == phaseDecoding {
				out = e.checkpoint(now, j, false, out)
			}
			out = e.resend(j, out)
		}
	}
	if now >= e.reportAt {
		if e.cfg.Health { // the answer comes with the next report, or makes one
			out = e.emit(&schemas.Op{Health: &schemas.HealthOp{}}, out)
		}
		out = e.report(now, out)
	}
	return out
}

// frameDue is when the oldest pending frame is due.
func (e *Executor) frameDue() schemas.Time {
	if e.frameAt == 0 {
		e.frameAt = schemas.Never
		for _, j := range e.order {
			if j.frame.pending() {
				e.frameAt = min(e.frameAt, j.frame.at+schemas.Time(e.cfg.FrameNS))
			}
		}
	}
	return e.frameAt
}

// bringKeptNS is how long a measured rate of bringing blocks in is reported. A slow
// one is then forgotten, or the router would never try again: 60 s.
const bringKeptNS = 60_000_000_000

func (e *Executor) heartbeat(now schemas.Time, out []schemas.Msg) []schemas.Msg {
	e.hbAt = now + schemas.Time(e.cfg.HeartbeatNS)
	e.hbSeq++
	h := &schemas.Heartbeat{
		Header: schemas.H(), Executor: e.cfg.Executor, Boot: e.cfg.Boot, Node: e.cfg.Node, Pool: e.cfg.Pool, Seq: e.hbSeq,
		Role: e.role.report(), Classes: e.role.assignment.Classes, Absorb: e.role.assignment.Absorb, Epoch: e.role.epoch,
		Size: e.cfg.Size, KVTokens: e.cfg.Limits.KVTokens, TierBlocks: e.cfg.TierBlocks, Slots: e.cfg.Limits.Slots, Context: e.cfg.Limits.Context, Format: e.cfg.Format,
		PrefillTPS: e.stats.prefillTPS, DecodeTPS: e.stats.decodeTPS, Held: make([]schemas.Held, 0, len(e.order)), Kept: e.device.Kept,
	}
	if int64(now-e.stats.bringAt) < bringKeptNS {
		h.BringTPS = e.stats.bringTPS
	}
	for _, j := range e.order {
		h.Held = append(h.Held, schemas.Held{Job: j.id, Attempt: j.Attempt, Stage: j.Stage, Alone: j.Alone})
	}
	return append(out, schemas.Msg{Kind: schemas.KindHeartbeat, Subject: schemas.HBSubject(e.cfg.Cell, e.cfg.Executor), Core: true, Heartbeat: h})
}

// queued is the number of jobs that wait for a sequence.
func (e *Executor) queued() (n int) {
	for _, j := range e.order {
		if j.seq < 0 && j.phase != phasePublishing {
			n++
		}
	}
	return n
}

func (e *Executor) report(now schemas.Time, out []schemas.Msg) []schemas.Msg {
	e.reportAt = now + schemas.Time(e.cfg.ReportNS)
	free := 0
	for _, s := range e.slots {
		if s == nil {
			free++
		}
	}
	r := &schemas.Report{
		Header: schemas.H(), Executor: e.cfg.Executor, Role: e.role.report(), Epoch: e.role.epoch, AtNS: int64(now),
		PrefillTokens: e.stats.prefillTokens, DecodeTokens: e.stats.decodeTokens, CachedTokens: e.stats.cachedTokens,
		BusyNS: e.stats.busyNS, PrefillNS: e.stats.prefillNS, DecodeNS: e.stats.decodeNS, DecodeSteps: e.stats.decodeSteps, DecodeRows: e.stats.decodeRows,
		KVUsed: e.kvUsed(false), SlotsFree: free, Running: len(e.slots) - free, Queued: e.queued(),
		FlipNS: e.stats.flipNS, Flips: e.role.flips, Flip: e.role.last, Problem: e.role.problem, DeviceBlocks: e.deviceBlocks(), Devices: e.cfg.Devices,
		GPUs: e.health.GPUs, Unfit: e.health.Unfit,
	}
	return append(out, schemas.Msg{Kind: schemas.KindReport, Subject: schemas.ReportSubject(e.cfg.Cell, e.cfg.Executor), Core: true, Report: r})
}

// deviceBlocks is the number of whole blocks that the engine holds, for open sequences
// and without a turn.
func (e *Executor) deviceBlocks() int {
	n := e.device.Blocks
	for _, j := range e.slots {
		if j == nil {
			continue
		}
		tokens := j.cached + j.computed
		if len(j.tokens) > 0 {
			tokens = j.Ready.Prompt.N + len(j.tokens) - 1
		}
		n += tokens / BlockTokens
	}
	return n
}
