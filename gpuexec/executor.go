package gpuexec

import (
	"fmt"
	"strings"

	"github.com/weir-dev/weir/schemas"
)

// Config of an executor. Durations are nanoseconds.
type Config struct {
	Cell     string
	Executor string
	Node     string // tier node whose memory it uses
	Pool     string
	Boot     string // identifies this life of the process
	Limits   Limits
	Format   schemas.KVFormat
	Devices  []string // what the engine computes on, for reports

	// FrameTokens and FrameNS bound a frame: it is sent when it holds that many
	// tokens or its first token is that old. 4 tokens, 5 ms.
	FrameTokens int
	FrameNS     int64
	// CkptTokens and CkptNS bound what a checkpoint may lack. 32 tokens, 500 ms.
	CkptTokens int
	CkptNS     int64
	// CkptMinNS: a checkpoint holds all tokens, so one every 32 tokens would be
	// quadratic on an engine that makes thousands per second. 50 ms.
	CkptMinNS int64
	// Inexact: the engine may sample other tokens when it computes the same again.
	// A frame is then sent only after a checkpoint that holds its tokens is stored.
	Inexact bool
	// Health: somebody answers for the devices' health, which is asked before each report.
	Health bool
	// Lower: there is a place below the host's memory, such as a disk, in which to
	// look for blocks of every prompt. Other nodes are asked when a job names them.
	Lower bool
	// HeartbeatNS: the router takes an executor for dead after six of them. 500 ms.
	HeartbeatNS int64
	ReportNS    int64 // 2 s
	// SliceNS bounds one prefill operation: how long a cancel or a role change
	// waits at most, besides one block. 20 ms.
	SliceNS int64
	// MaxQueue bounds jobs that wait here; more are returned. The router's
	// credits keep it far below. 1,024.
	MaxQueue int
	// SealShare bounds the time spent on exporting generated blocks while a turn
	// decodes, as a share of its decode time. 0.02.
	SealShare float64
	// LocalMax is the most missing prompt tokens that a decode job computes here
	// without being asked to, where the assignment does not say (Absorb). 512, the upper
	// bound of size class S.
	LocalMax int
	// SealTokens is the fewest generated tokens between two such exports. 64.
	SealTokens int
	// RunNS bounds one decode operation of an engine that can be interrupted: reports
	// count its work when it ends. 1 s. MixSteps bounds its steps while prompts wait for
	// the engine too. 4.
	RunNS    int64
	MixSteps int
	// Size is the number of accelerators, TierBlocks how many of the engine's blocks the
	// node's memory can hold; both for heartbeats, 0 when not known.
	Size, TierBlocks int
	// FinishNS: a decode that will end within this time finishes before a role
	// change instead of being handed over. 250 ms.
	FinishNS int64
}

func (c *Config) defaults() {
	set(&c.FrameTokens, 4)
	set(&c.FrameNS, 5_000_000)
	set(&c.CkptTokens, 32)
	set(&c.CkptNS, 500_000_000)
	set(&c.CkptMinNS, 50_000_000)
	set(&c.HeartbeatNS, 500_000_000)
	set(&c.ReportNS, 2_000_000_000)
	set(&c.SliceNS, 20_000_000)
	set(&c.MaxQueue, 1024)
	set(&c.SealShare, 0.02)
	set(&c.LocalMax, schemas.SizeSMax)
	set(&c.SealTokens, BlockTokens)
	set(&c.RunNS, 1_000_000_000)
	set(&c.MixSteps, 4)
	set(&c.FinishNS, 250_000_000)
}

func set[T int | int64 | float64](p *T, v T) {
	if *p == 0 {
		*p = v
	}
}

// phase of a job inside the executor.
//
//	queued -> asking -> opening -> prefilling -> sealing -> (done: prefilled)
//	             ^         |   \-> decoding --> sealing -> publishing -> (result)
//	             +- head --+
type phase uint8

const (
	phaseQueued     phase = iota // waits for a sequence
	phaseAsking                  // waits for delivered tokens, for tokens of the prompt's head, or for blocks from elsewhere
	phaseReady                   // has all it needs to be opened
	phaseOpening                 // an OpenOp is under way
	phasePrefilling              // whole prompt blocks are missing
	phaseDecoding                // takes part in decode operations
	phaseSealing                 // blocks are to be exported before it leaves
	phasePublishing              // waits for the acknowledgement of its result
)

// job is one turn's stage in the executor's hands.
type job struct {
	*schemas.Job
	trace   schemas.Trace
	id      string
	phase   phase
	seq     int32 // engine sequence, -1 without one
	order   uint64
	arrived schemas.Time
	begun   schemas.Time // first engine operation
	first   schemas.Time // first token computed
	resumed schemas.Time // first token that no earlier attempt delivered
	joins   bool         // it has begun elsewhere and takes part from the next step on
	filled  schemas.Time // the prompt's blocks are complete, where a decode job computed some
	ended   schemas.Time // last token computed
	miss    *schemas.Miss
	busy    int64 // engine time in nanoseconds
	prefill int64 // the part of it before the decode stage
	toFirst int64 // engine time up to the first token, all executors

	head      schemas.Tokens
	delivered schemas.Tokens // by earlier attempts, not sent again
	forced    schemas.Tokens // likewise, but sent again: see Config.Inexact
	asked     bool           // delivered tokens are known
	brought   bool           // what is known of the prompt was looked for below the host's memory
	cached    int
	computed  int
	missing   int // whole prompt blocks still to be computed

	tokens   schemas.Tokens // generated
	text     string         // the whole answer, once it is finished
	logprobs []jsonRaw
	finish   string
	end      string
	message  jsonRaw // what the answer means, where there is a parser
	frame    frame
	sent     sent
	held     []heldFrame // behind checkpoints that are not stored yet, see Inexact
	ckptLen  int
	ckptAt   schemas.Time
	sealedAt int   // tokens in the sequence at the last seal
	sealNS   int64 // time of the last seal
	leave    leave // what happens after sealing
	reason   string
	dropped  bool // cancelled or superseded while an operation was under way
}

// leave says how a job leaves the executor once its blocks are sealed.
type leave uint8

const (
	leaveNot       leave = iota
	leavePrefilled       // done: prefilled
	leaveResult          // publish the result
	leaveReturned        // done: returned
)

// Executor is the actor that turns jobs into engine operations and obeys its
// role. One engine operation is under way at any time.
type Executor struct {
	cfg Config

	role  roleState
	jobs  map[string]*job
	order []*job // in order of arrival
	slots []*job // by engine sequence
	next  uint64 // order of the next job

	waiting []*job       // in phaseQueued
	found   survey       // the last one; its lists are used again
	rows    []*job       // of the operation under way
	frameAt schemas.Time // when the next pending frame is due; 0 when that is to be found out

	op        opInFlight
	opID      uint64
	asks      map[uint64]*job // outstanding questions outside the engine
	drops     []int32
	decodeNow bool // whose turn it is when both phases have work
	freshLast bool // the last decode operation was a turn's first

	device         schemas.DeviceState // what the engine keeps without a turn
	health         schemas.HealthDone
	hbAt, reportAt schemas.Time
	hbSeq          uint64
	bus            bool
	stats          stats
	now            schemas.Time // of the step under way
}

// opInFlight is the engine operation under way.
type opInFlight struct {
	id   uint64 // 0: none
	job  *job
	rows []*job
	// verify: the operation belongs to a role change.
	verify bool
	decode bool
	// stopping: it was interrupted. dropped: one of its jobs has left meanwhile.
	stopping, dropped bool
}

type stats struct {
	prefillTokens, decodeTokens, cachedTokens uint64
	busyNS, prefillNS, decodeNS               int64
	decodeSteps, decodeRows                   uint64
	prefillTPS, decodeTPS, bringTPS           float64
	bringAt                                   schemas.Time // of the last sample of bringTPS
	flipNS                                    int64
}

// NewExecutor makes an executor without a role: it takes nothing until an
// assignment arrives.
func NewExecutor(cfg Config) *Executor {
	cfg.defaults()
	return &Executor{
		cfg: cfg, jobs: map[string]*job{}, slots: make([]*job, cfg.Limits.Slots), asks: map[uint64]*job{}, bus: true,
		role: roleState{current: schemas.RoleStandby},
	}
}

var _ schemas.Actor = (*Executor)(nil)

// Step handles one message.
func (e *Executor) Step(now schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
	e.now = now
	switch in.Kind {
	case schemas.KindJob:
		out = e.take(now, in, out)
	case schemas.KindAssignment:
		out = e.assign(now, in, out)
	case schemas.KindCancel:
		out = e.cancel(in.Cancel, out)
	case schemas.KindOpDone:
		out = e.opDone(now, in.OpDone, out)
	case schemas.KindPublished:
		out = e.published(now, in, out)
	case schemas.KindBus:
		out = e.busChanged(in.Err == "", out)
	case schemas.KindTick:
	default:
		// Everything else on the bus is for others.
	}
	out = e.timers(now, out)
	out = e.advanceRole(now, out)
	return e.schedule(now, out)
}

// Next is when a heartbeat, a report, a frame or a checkpoint is due.
func (e *Executor) Next() schemas.Time {
	return min(e.hbAt, e.reportAt, e.roleDue(), e.frameDue())
}

// Snapshot has nothing to keep: an executor that starts again has an empty engine.
func (e *Executor) Snapshot(dst []byte) ([]byte, error) { return dst, nil }

// Restore accepts any snapshot.
func (e *Executor) Restore([]byte) error { return nil }

// busChanged: when NATS is back it may have lost the frames it held.
func (e *Executor) busChanged(up bool, out []schemas.Msg) []schemas.Msg {
	if up && !e.bus {
		for _, j := range e.order {
			j.sent.again = resends
			out = e.resend(j, out)
		}
	}
	e.bus = up
	return out
}

// take accepts a job, or says at once that it cannot be done here.
func (e *Executor) take(now schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
	j := &job{Job: in.Job, trace: in.Trace, id: in.Job.Ready.Job, seq: -1, order: e.next, arrived: now}
	if old := e.jobs[j.id]; old != nil {
		if old.Attempt > j.Attempt || old.Attempt == j.Attempt && (old.Stage == j.Stage || old.Stage == schemas.StageDecode) {
			return out // a duplicate, an older attempt, or the prefill before the decode that is here
		}
		out = e.forget(old, out)
	}
	uncached := j.Ready.Prompt.N - j.Ready.Prompt.TailFrom
	switch {
	case e.role.draining || !e.role.assignment.Allows(j.Stage, uncached):
		return e.done(j, schemas.OutcomeReturned, "", fmt.Sprintf("role is %s", e.role.report()), out)
	case len(e.order) >= e.cfg.MaxQueue:
		return e.done(j, schemas.OutcomeReturned, "", "queue is full", out)
	}
	e.next++
	e.jobs[j.id] = j
	e.order = append(e.order, j)
	e.queue(j)
	return out
}

// forget removes a job from every list; its sequence is freed when no operation
// is using it.
func (e *Executor) forget(j *job, out []schemas.Msg) []schemas.Msg {
	if e.jobs[j.id] == j {
		delete(e.jobs, j.id)
	}
	for i, o := range e.order {
		if o == j {
			e.order = append(e.order[:i], e.order[i+1:]...)
			break
		}
	}
	j.dropped = true
	if j.seq >= 0 {
		if e.busyWith(j) {
			e.op.dropped = true
		} else {
			e.free(j)
		}
	}
	return out
}

func (e *Executor) busyWith(j *job) bool {
	if e.op.id == 0 {
		return false
	}
	for _, r := range e.op.rows {
		if r == j {
			return true
		}
	}
	return e.op.job == j
}

func (e *Executor) free(j *job) {
	if j.seq < 0 {
		return
	}
	e.drops = append(e.drops, j.seq)
	e.slots[j.seq] = nil
	j.seq = -1
}

// cancel stops a job. What it computed is sealed first, so that the caller's
// next try finds it.
func (e *Executor) cancel(c *schemas.Cancel, out []schemas.Msg) []schemas.Msg {
	j := e.jobs[c.Job]
	if j == nil || j.Attempt > c.Attempt {
		return out
	}
	if j.seq < 0 || j.phase == phaseOpening {
		return e.forget(j, out)
	}
	j.leave, j.reason = leaveNot, c.Reason
	j.phase = phaseSealing
	return out
}

// published ends a job whose result is stored, or finds that it was stored before.
func (e *Executor) published(now schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
	s, err := schemas.ParseSubject(in.Subject)
	if err != nil {
		return out
	}
	j := e.jobs[schemas.JobID(s.Get("tenant"), s.Get("session"), s.Get("turn"))]
	if j != nil && s.Root == schemas.RootCkpt {
		return e.checkpointed(j, in, out)
	}
	if j == nil || s.Root != schemas.RootResult || j.phase != phasePublishing {
		return out
	}
	switch {
	case in.Err == "":
		return e.forget(j, out)
	case strings.Contains(in.Err, schemas.ErrTooLarge.Error()):
		// Sending it again would not help.
		return e.fail(now, j, schemas.CodeTooLong, "the answer does not fit a message: "+in.Err, out)
	case in.Err == schemas.ErrTextConflict:
		// Another attempt was first; the router may have missed it.
		out = e.done(j, schemas.OutcomeDecoded, "", "the result existed already", out)
		return e.forget(j, out)
	}
	j.reason = in.Err // sent again at the next heartbeat: an answer is never given up here
	return out
}
