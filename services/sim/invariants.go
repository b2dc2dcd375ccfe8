package sim

import (
	"fmt"

	"github.com/weir-dev/weir/schemas"
)

// checker watches what passes for broken invariants (their numbers are those of the
// design) and for the roles over time.
type checker struct {
	w      *world
	broke  []string
	splits []Split
	flips  int
	flipMS []float64
	ops    int
}

const maxBroken = 20

func (c *checker) broken(number int, what string) {
	if len(c.broke) < maxBroken {
		c.broke = append(c.broke, fmt.Sprintf("%.3f s: invariant %d: %s", c.w.since(c.w.sim.Now()), number, what))
	}
}

// stageOf is where a turn is, as far as messages tell.
type stageOf uint8

const (
	waitsPrefill stageOf = iota // READY is out, no job is
	inPrefill
	waitsDecode // prefilled, no job is out
	inDecode
)

// answer is invariant 2, as far as tokens without content show it: the answer is as
// long as it is to be, and frames had no gap.
func (c *checker) answer(x *flight, res *schemas.Result) {
	if len(res.Tokens) != x.s.output {
		c.broken(2, fmt.Sprintf("the answer of %s %s has %d tokens, not %d", res.Session, res.Turn, len(res.Tokens), x.s.output))
	}
	if x.got != len(res.Tokens) {
		c.broken(2, fmt.Sprintf("frames of %s %s brought %d tokens, the result %d", res.Session, res.Turn, x.got, len(res.Tokens)))
	}
}

// routed looks at what the router sends.
func (c *checker) routed(m *schemas.Msg) {
	if m.Kind != schemas.KindJob {
		return
	}
	if x := c.w.front.flights[m.Job.Ready.Job]; x != nil {
		x.since = c.w.sim.Now()
		x.stage = inDecode
		if m.Job.Stage == schemas.StagePrefill {
			x.stage = inPrefill
		}
	}
}

// sent looks at what an executor sends.
func (c *checker) sent(e *exec, m *schemas.Msg) {
	switch m.Kind {
	case schemas.KindHeartbeat:
		c.heartbeat(e, m.Heartbeat)
	case schemas.KindReport:
		e.report = m.Report
	case schemas.KindFrame:
		c.frame(m)
	case schemas.KindCheckpoint:
		if s, err := schemas.ParseSubject(m.Subject); err == nil {
			if x := c.w.front.flights[schemas.JobID(s.Get("tenant"), s.Get("session"), s.Get("turn"))]; x != nil {
				x.saved = max(x.saved, len(m.Checkpoint.Tokens))
			}
		}
	case schemas.KindJob: // passed on by a prefill executor
		if x := c.w.front.flights[m.Job.Ready.Job]; x != nil {
			x.stage, x.since = inDecode, c.w.sim.Now()
		}
	case schemas.KindDone:
		x := c.w.front.flights[m.Done.Job]
		if x == nil {
			return
		}
		now := c.w.sim.Now()
		switch {
		case m.Done.Outcome == schemas.OutcomePrefilled && m.Done.PassedTo == "":
			x.stage, x.since = waitsDecode, now
		case m.Done.Outcome == schemas.OutcomeReturned, m.Done.Outcome == schemas.OutcomeFailed:
			x.since = now
			if x.stage = waitsPrefill; m.Done.Stage == schemas.StageDecode {
				x.stage = waitsDecode
			}
		}
	}
}

func (c *checker) frame(m *schemas.Msg) {
	s, err := schemas.ParseSubject(m.Subject)
	if err != nil {
		c.broken(2, err.Error())
		return
	}
	x := c.w.front.flights[schemas.JobID(s.Get("tenant"), s.Get("session"), s.Get("turn"))]
	if x == nil {
		return
	}
	f := m.Frame
	if f.First > x.got {
		c.broken(2, fmt.Sprintf("a frame of %s begins at token %d, those before it end at %d", m.Subject, f.First, x.got))
	}
	x.got = max(x.got, f.First+len(f.Tokens))
}

// heartbeat follows roles (invariant 7) and looks for executors that idle while there
// is work (invariant 12).
func (c *checker) heartbeat(e *exec, h *schemas.Heartbeat) {
	now := c.w.sim.Now()
	if h.Role != e.role || e.beat == 0 {
		if e.role != schemas.RoleStandby && h.Role == schemas.RoleDraining {
			e.drains = now
		}
		if e.role == schemas.RoleDraining && h.Role != schemas.RoleDraining && e.before != h.Role && now > c.w.start+startNS {
			c.flips++
			c.flipMS = append(c.flipMS, float64(now-e.drains)/1e6)
		}
		if h.Role != schemas.RoleDraining {
			e.before = h.Role
		}
		e.role = h.Role
		c.split(now)
	}
	idle := len(h.Held) == 0
	if !idle || h.Role == schemas.RoleDraining {
		e.idle = 0
	} else if e.idle == 0 {
		e.idle = now
	}
	e.beat = now
	if e.idle > 0 && now-e.idle >= idleNS {
		c.idles(now, e)
	}
}

// idleNS is how long an executor may have nothing to do while a turn waits for it: two
// heartbeats.
const idleNS = schemas.Time(1e9)

func (c *checker) idles(now schemas.Time, e *exec) {
	if c.w.sys.Admit || c.w.sys.Route.Choose != nil {
		return // turns of sessions that are not admitted wait by intent, and others' routers bind turns as they arrive
	}
	if e.role == schemas.RolePrefill && 5*c.exports(e) >= 2*int(c.w.cal.Mem.KVTokens) {
		// Decode is the bottleneck: what it computed fills its engine and waits to be handed
		// over. The router holds back at half of it; some is on its way.
		e.idle = now
		return
	}
	waits := 0
	for _, x := range c.w.front.flights {
		if now-x.since < idleNS || now-e.idle < idleNS {
			continue
		}
		if x.stage == waitsPrefill && !x.small() && e.role.Takes(schemas.StagePrefill) || x.stage == waitsDecode && e.role.Takes(schemas.StageDecode) {
			waits++
		}
	}
	if waits > 0 {
		c.broken(12, fmt.Sprintf("%s (%s) has had nothing to do for %.1f s while %d turns waited for its role", e.id, e.role, seconds(now-e.idle), waits))
		e.idle = 0
	}
}

// exports is how many tokens an executor prefilled that wait for a decode slot.
func (c *checker) exports(e *exec) (tokens int) {
	for job, x := range c.w.front.flights {
		if h, ok := c.w.mem.handed[job]; ok && h.exec == e.n && x.stage == waitsDecode {
			tokens += h.blocks * blockTokens
		}
	}
	return tokens
}

// small tells that a turn has so little to compute that it goes straight to a decode
// executor, and waits for one.
func (x *flight) small() bool { return x.s.fill <= schemas.SizeSMax+blockTokens }

// opens is invariant 6: a job starts only where the role in force allows its phase.
func (c *checker) opens(e *exec, op *schemas.OpenOp) {
	if !e.role.Takes(op.Stage) && e.role != schemas.RoleDraining {
		c.broken(6, fmt.Sprintf("%s opens a %s job while its role is %s", e.id, op.Stage, e.role))
	}
}

// split notes the roles, and that both phases are served.
func (c *checker) split(now schemas.Time) {
	s := Split{AtS: c.w.since(now)}
	for _, e := range c.w.execs {
		switch e.role {
		case schemas.RolePrefill:
			s.Prefill++
		case schemas.RoleDecode:
			s.Decode++
		case schemas.RoleMixed:
			s.Mixed++
		default:
			s.Away++
		}
	}
	c.splits = append(c.splits, s)
	if now > c.w.start+startNS && s.Mixed == 0 && (s.Prefill == 0 || s.Decode == 0) {
		c.broken(7, fmt.Sprintf("%d executors prefill and %d decode", s.Prefill, s.Decode))
	}
}
