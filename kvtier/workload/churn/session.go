package churn

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/weir-dev/weir/kvtier/workload"
	"github.com/weir-dev/weir/schemas"
)

// sayLag is how long after its answer an agent says what it waits for.
const sayLag = 2 * millisecond

const (
	millisecond = int64(1e6)
	second      = 1000 * millisecond
)

// maxSession is the time after which a session comes to its end: 30 days.
const maxSession = 30 * 24 * 3600 * second

// maxExpect is the longest wait that an agent expects: a day.
const maxExpect = 24 * 3600 * second

// ns rounds seconds to milliseconds; 30 years at most.
func ns(s float64) int64 { return int64(min(s, 1e9)*1000+0.5) * millisecond }

// session is one session while it is generated. Its times begin at 0.
type session struct {
	p      *Params
	r      *rand.Rand
	calls  []workload.Call
	ids    int32 // the next block id
	lines  int32 // the next line
	reason bool  // answers hold reasoning
	window int
}

func (s *session) draw(d Dist) int     { return int(d.Draw(s.r) + 0.5) }
func (s *session) wait(d Dist) int64   { return ns(d.Draw(s.r)) }
func (s *session) hit(p float64) bool  { return s.r.Float64() < p }
func (s *session) exp(m float64) int64 { return ns(s.r.ExpFloat64() * m) }

// pick chooses an index by weight.
func (s *session) pick(n int, weight func(int) float64) int {
	sum := 0.0
	for i := range n {
		sum += weight(i)
	}
	x := s.r.Float64() * sum
	for i := range n - 1 {
		if x -= weight(i); x < 0 {
			return i
		}
	}
	return n - 1
}

// newLine begins a line with a shared prompt of that many tokens.
func (s *session) newLine(sys workload.Run, tokens int) *line {
	l := &line{id: s.lines, tokens: tokens, blocks: int(sys.N), system: tokens}
	s.lines++
	if sys.N > 0 {
		l.runs = append(l.runs, sys)
	}
	return l
}

// fork begins a line with what l holds.
func (s *session) fork(l *line) *line {
	f := &line{id: s.lines, runs: l.prompt(), tokens: l.tokens, blocks: l.blocks, system: l.system}
	s.lines++
	return f
}

// ask makes the line's next call at that time and returns its index and when its
// answer is there; the answer becomes a part of the context. It may be aborted and
// asked again.
func (s *session) ask(l *line, at int64, out int, took int64) (int, int64) {
	if s.hit(s.p.PerCallRetry) {
		part := s.r.Float64()
		s.calls = append(s.calls, workload.Call{
			At: at, For: int64(part*float64(took/millisecond)) * millisecond, Line: l.id, In: int32(l.tokens), Out: int32(part * float64(out)), Prompt: l.prompt(),
		})
		at += s.calls[len(s.calls)-1].For + s.wait(s.p.Backoff)
	}
	c := workload.Call{At: at, For: took, Line: l.id, In: int32(l.tokens), Out: int32(out), Prompt: l.prompt()}
	if s.reason {
		c.Dropped = int32(min(2*s.p.ReasoningMean*s.r.Float64(), 0.95) * float64(out))
	}
	s.calls = append(s.calls, c)
	l.grow(int(c.Out-c.Dropped), &s.ids)
	return len(s.calls) - 1, at + took
}

// say adds an event behind call i.
func (s *session) say(i int, kind schemas.EventKind, y workload.Say) {
	y.Kind = string(kind)
	s.calls[i].Say = append(s.calls[i].Say, y)
}

// waitTool ends call i with the call of a tool, and returns how long it runs.
func (s *session) waitTool(i int, tool string, wait int64, sure float64) int64 {
	c := &s.calls[i]
	c.Finish, c.Tool = workload.FinishTools, tool
	y := workload.Say{After: sayLag, Line: c.Line, Tool: tool}
	if s.hit(sure) {
		seconds := float64(wait) / float64(second) * Dist{1, s.p.ExpectSigma, 0.01, 100}.Draw(s.r)
		y.Expect = min(max(ns(seconds), millisecond), maxExpect)
	}
	s.say(i, schemas.EventToolWait, y)
	return max(wait, sayLag+millisecond)
}

// tool draws a tool and how long it runs. An agent does not know that a tool will hang.
func (s *session) tool(i int) int64 {
	t := &s.p.Tools[s.pick(len(s.p.Tools), func(k int) float64 { return s.p.Tools[k].Share })]
	wait := s.waitTool(i, t.Name, s.wait(t.Wait), t.Sure)
	if s.hit(s.p.Stuck) {
		wait += ns(s.p.StuckBase) + s.exp(s.p.StuckMean)
	}
	return wait
}

// user waits for the user.
func (s *session) user(i int) int64 {
	s.say(i, schemas.EventUserWait, workload.Say{After: sayLag, Line: s.calls[i].Line})
	return max(s.wait(s.p.UserWait), sayLag+millisecond)
}

// compact asks for a summary of the line at that time, which then replaces all behind
// the system prompt. It returns when the next call begins.
func (s *session) compact(l *line, at int64) int64 {
	before := l.tokens
	l.grow(300, &s.ids) // the instruction
	i, end := s.ask(l, at, s.draw(s.p.Summary), s.wait(s.p.SummaryTime))
	s.say(i, schemas.EventCompacted, workload.Say{After: sayLag, Line: l.id})
	after := min(s.draw(s.p.After), before*6/10) // weka's definition of a compaction
	l.cut(l.system)
	l.grow(max(after-l.system, 500), &s.ids)
	return end + s.wait(s.p.Restart)
}

// rewrite writes all behind the system prompt anew.
func (s *session) rewrite(l *line) {
	n := l.tokens - l.system
	l.cut(l.system)
	l.grow(n, &s.ids)
}

// agent is a session of a coding agent; sys is its system prompt.
func (s *session) agent(sys workload.Run, tokens int) {
	l, at := s.newLine(sys, tokens), int64(0)
	l.grow(min(s.draw(s.p.Resumed), max(s.window-tokens, 0)), &s.ids)
	inTurn, last := s.draw(s.p.CallsInTurn), 0
	for n := s.draw(s.p.Calls); ; n-- {
		i, end := s.ask(l, at, s.draw(s.p.Output), s.wait(s.p.Answer))
		if last = i; n <= 1 || end > maxSession {
			break
		}
		if inTurn--; inTurn > 0 {
			at = s.toolStep(l, i, end)
		} else {
			inTurn, at = s.draw(s.p.CallsInTurn), s.turnEnd(l, i, end)
		}
		if l.tokens > s.window {
			at = s.compact(l, at)
		}
	}
	s.end(last)
}

// toolStep is what happens between call i, whose answer calls a tool at end, and the
// next one, whose time it returns.
func (s *session) toolStep(l *line, i int, end int64) int64 {
	var at int64
	switch x := s.r.Float64(); {
	case x < s.p.PerStepSubs:
		at = s.subAgents(i, end)
	case x < s.p.PerStepSubs+s.p.PerStepRewrite:
		at = end + s.tool(i)
		s.rewrite(l)
	default:
		at = end + s.tool(i)
	}
	l.grow(s.draw(s.p.ToolStep), &s.ids)
	return at
}

// turnEnd is the same where the user is next.
func (s *session) turnEnd(l *line, i int, end int64) int64 {
	wait := s.user(i)
	at := end + wait
	switch x := s.r.Float64(); {
	case x < s.p.PerTurnFork:
		f := s.fork(l)
		s.say(i, schemas.EventBranchFork, workload.Say{After: wait - millisecond, Line: f.id})
		s.forked(f, at)
	case x < s.p.PerTurnFork+s.p.PerTurnRewrite:
		s.rewrite(l)
	}
	l.grow(s.draw(s.p.UserStep), &s.ids)
	return at
}

// forked runs a forked line from that time on.
func (s *session) forked(f *line, at int64) {
	f.grow(s.draw(s.p.UserStep), &s.ids)
	for n := s.draw(s.p.ForkCalls); ; n-- {
		i, end := s.ask(f, at, s.draw(s.p.Output), s.wait(s.p.Answer))
		if n <= 1 || end > maxSession {
			if s.hit(s.p.ForkEnds) {
				s.say(i, schemas.EventBranchEnd, workload.Say{After: sayLag, Line: f.id})
			}
			return
		}
		at = end + s.tool(i)
		f.grow(s.draw(s.p.ToolStep), &s.ids)
	}
}

// subAgents starts sub-agents behind call i and returns when the parent goes on. They
// share nothing with it (0 of 63 in traces 4.3), and almost all of the first prompt
// with each other.
func (s *session) subAgents(i int, end int64) int64 {
	kind := s.pick(len(s.p.SubTypes), func(k int) float64 { return s.p.SubTypes[k] })
	tokens := systemTokens(s.p, sharedSub, kind)
	async, done := s.hit(s.p.SubAsync), end
	for range s.draw(s.p.SubFanOut) {
		l := s.newLine(shared(sharedSub, kind, tokens), tokens)
		l.grow(s.draw(s.p.SubTask), &s.ids)
		done = max(done, s.subAgent(l, end+sayLag))
	}
	if async {
		return end + s.tool(i)
	}
	return end + s.waitTool(i, "task", done-end, 0.5)
}

func (s *session) subAgent(l *line, at int64) int64 {
	for n := s.draw(s.p.SubCalls); ; n-- {
		i, end := s.ask(l, at, s.draw(s.p.SubOutput), s.wait(s.p.Answer))
		if n <= 1 || end > maxSession {
			s.say(i, schemas.EventBranchEnd, workload.Say{After: sayLag, Line: l.id})
			return end + millisecond
		}
		at = end + s.waitTool(i, "search", s.wait(s.p.SubWait), 0)
		l.grow(s.draw(s.p.SubStep), &s.ids)
		if l.tokens > s.window {
			at = s.compact(l, at)
		}
	}
}

// end ends the session behind call i of the main line, once all lines are done.
func (s *session) end(i int) {
	c := &s.calls[i]
	s.say(i, schemas.EventUserWait, workload.Say{After: sayLag, Line: c.Line})
	if s.hit(s.p.EndSaid) {
		rest := s.done() - c.At - c.For
		s.say(i, schemas.EventSessionEnd, workload.Say{After: rest + sayLag + s.wait(Dist{5, 1, 0.1, 60}), Line: c.Line})
	}
}

// done is when the session's last answer is there.
func (s *session) done() (t int64) {
	for i := range s.calls {
		t = max(t, s.calls[i].At+s.calls[i].For)
	}
	return t
}

// sorted orders the calls by time, and what is said behind each.
func (s *session) sorted() {
	for i := range s.calls {
		slices.SortStableFunc(s.calls[i].Say, func(a, b workload.Say) int { return cmp.Compare(a.After, b.After) })
	}
	slices.SortStableFunc(s.calls, func(a, b workload.Call) int { return cmp.Compare(a.At, b.At) })
}
