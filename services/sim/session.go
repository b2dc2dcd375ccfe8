package sim

import (
	"encoding/hex"
	"math/rand/v2"
	"strconv"

	"github.com/weir-dev/weir/schemas"
)

const blockTokens = 64

// tenant of every session.
const tenant = schemas.DefaultTenant

// session is one agent task: turns of one branch, each begun a tool's time after the
// answer before.
type session struct {
	w     *Workload
	id    string
	uid   uint64 // names its blocks
	phase int
	rnd   *rand.Rand

	turn, turns int // the turn in work, from 0, and how many there are
	tries       int // of the turn in work that were refused
	context     int // tokens: the last prompt and its answer
	epoch       uint32
	chain       chain
	began       schemas.Time
	asked       schemas.Time // when the agent first asked for the turn in work
	served      int64        // tokens of its turns
	fresh       bool         // the context was compacted before the turn in work
	branch      *branch

	prompt, fill, output int // of the turn in work: tokens, of those new, answer
}

// newSession draws from a source of its own, so what one session does never depends on
// what happened to another one, and so not on the system that serves it.
func newSession(seed uint64, w *Workload, phase, n int) *session {
	s := &session{w: w, phase: phase, id: w.Name + "-" + strconv.Itoa(n)}
	s.uid = w.seedOfClass ^ uint64(n+1)*0x9e3779b97f4a7c15
	s.rnd = rand.New(rand.NewPCG(seed^w.seedOfClass, uint64(n)))
	s.turns = w.Turns[0] + s.rnd.IntN(w.Turns[1]-w.Turns[0]+1)
	s.chain.init(s)
	return s
}

// draw makes the next turn. The first one begins with the class's shared prefix; a
// context that outgrows its limit is compacted: the prompt is then a summary and what
// is new, and repeats nothing that was computed before.
func (s *session) draw() {
	s.tries, s.fresh = 0, false
	first, more := int(s.w.First.draw(s.rnd)), 0
	if s.w.New != nil {
		more = int(s.w.New.draw(s.rnd))
	}
	s.output = max(1, int(s.w.Output.draw(s.rnd)))
	switch {
	case s.turn == 0:
		s.prompt = max(first, s.w.Shared+1)
		s.fill = s.prompt - s.w.Shared
	case s.w.Limit > 0 && s.context+more > s.w.Limit:
		s.epoch++
		s.fresh = true
		s.chain.init(s)
		s.context = 0
		s.prompt = s.w.AfterLimit + more
		s.fill = s.prompt
	default:
		s.prompt, s.fill = s.context+max(1, more), max(1, more)
	}
}

// wait is how long the agent takes from an answer to its next turn, in nanoseconds.
func (s *session) wait() schemas.Time {
	if s.w.Wait == nil {
		return 0
	}
	return schemas.Time(s.w.Wait.draw(s.rnd) * 1e9)
}

// known is how many leading blocks of the prompt were computed for the session before:
// all of the context but its last token, whose KV nobody needed.
func (s *session) known() int {
	if s.context == 0 {
		return 0
	}
	return (s.context - 1) / blockTokens
}

// chain names the blocks of a context. Stops are named once; the prompts of a session
// share them.
type chain struct {
	uid    uint64
	epoch  uint32
	shared int // leading blocks that are named after the class
	class  uint64
	stops  []schemas.Extent
}

func (c *chain) init(s *session) {
	*c = chain{uid: s.uid, epoch: s.epoch, class: s.w.seedOfClass}
	if s.epoch == 0 {
		c.shared = s.w.Shared / blockTokens
	}
}

// key names the block that is the last of the first end ones: 64 hex digits, of which
// the first half differ.
func (c *chain) key(end int) string {
	uid, epoch := c.uid, c.epoch
	if end <= c.shared {
		uid, epoch = c.class, 1<<31
	}
	var raw [16]byte
	for i := range 8 {
		raw[i] = byte(uid >> (56 - 8*i))
	}
	for i := range 4 {
		raw[8+i] = byte(epoch >> (24 - 8*i))
		raw[12+i] = byte(uint32(end) >> (24 - 8*i))
	}
	var out [64]byte
	hex.Encode(out[:32], raw[:])
	for i := 32; i < 64; i++ {
		out[i] = '0'
	}
	return string(out[:])
}

// cut appends the extents of blocks from..to-1, as schemas.CutAtStops cuts them.
func (c *chain) cut(from, to int, dst []schemas.Extent) []schemas.Extent {
	end := 0
	if n := len(c.stops); n > 0 {
		end = c.stops[n-1].From + c.stops[n-1].N
	}
	for next := schemas.NextStop(end); next <= to; next = schemas.NextStop(end) {
		c.stops = append(c.stops, schemas.Extent{Key: c.key(next), From: end, N: next - end})
		end = next
	}
	at := from
	for _, e := range c.stops {
		stop := e.From + e.N
		if stop <= at {
			continue
		}
		if stop > to {
			break
		}
		dst = append(dst, schemas.Extent{Key: e.Key, From: at, N: stop - at})
		at = stop
	}
	if at < to {
		dst = append(dst, schemas.Extent{Key: c.key(to), From: at, N: to - at})
	}
	return dst
}

// zeros are the tokens of every prompt and answer: nobody looks at their values.
var zeros = make(schemas.Tokens, 1<<18)

// ready makes the READY message of the turn in work.
func (s *session) ready(now schemas.Time) *schemas.Ready {
	turn := "t" + strconv.Itoa(s.turn)
	if s.tries > 0 {
		turn += "r" + strconv.Itoa(s.tries)
	}
	known, blocks := s.known(), s.prompt/blockTokens
	r := &schemas.Ready{
		Header: schemas.H(), Tenant: tenant, Session: s.id, Turn: turn, Branch: schemas.DefaultBranch,
		Job: schemas.JobID(tenant, s.id, turn), Pool: pool, MaxNew: int(s.w.Output.most()),
		AdmittedNS: int64(now), ReadyNS: int64(now), DeadlineNS: int64(now) + deadlineNS,
		Prompt: schemas.Prompt{N: s.prompt, TailFrom: known * blockTokens, Tail: zeros[:s.prompt-known*blockTokens]},
	}
	es := s.chain.cut(0, known, make([]schemas.Extent, 0, 48))
	n := len(es)
	es = s.chain.cut(known, blocks, es)
	r.Prompt.Path, r.Prompt.Rest = es[:n:n], es[n:]
	return r
}

// deadlineNS is longer than any run waits: the scenarios name no deadline.
const deadlineNS = int64(6 * 3600 * 1e9)
