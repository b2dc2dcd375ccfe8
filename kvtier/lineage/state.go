package lineage

import (
	"sort"
	"strings"

	infer "github.com/weir-dev/weir/kvtier/branch"
	"github.com/weir-dev/weir/schemas"
)

// change says where a branch stands from here on, and tells the tier nodes.
func (l *Lineage) change(now schemas.Time, s *session, b *branch, state schemas.BranchState, why string, inferred bool, out []schemas.Msg) []schemas.Msg {
	b.state, b.why, b.inferred, b.at = state, why, inferred, now
	b.tool, b.resume = "", 0
	l.settled(b)
	if inferred && l.cfg.DecayNS > 0 && (state == schemas.BranchToolWaiting || state == schemas.BranchUserWaiting) {
		b.decay = l.decays.PushBack(decaying{s, b})
	}
	l.heardOf(now, s, b)
	return l.announce(s, b, b.log, out)
}

// announce tells the tier nodes where a branch stands and which blocks it has: log
// is its context.
func (l *Lineage) announce(s *session, b *branch, log *logbook, out []schemas.Msg) []schemas.Msg {
	if len(l.nodes) == 0 {
		return out
	}
	var tail schemas.Extent
	if log != nil {
		if root, ok := l.root(log.Keys); ok && b.state == schemas.BranchRunning {
			tail = log.whole(root) // the turn needs what it computes
		} else if ok {
			tail = log.tail(log.Computed, root)
		}
	}
	for _, node := range sortedNodes(l.nodes) {
		out = append(out, schemas.Msg{
			Kind: schemas.KindBranch, Subject: schemas.BranchSubject(l.cfg.Cell, node), Core: true,
			Branch: &schemas.BranchChange{
				Header: schemas.H(), Tenant: s.tenant, Session: s.id, Branch: b.id, State: b.state, Tail: tail, Tool: b.tool, ResumeNS: b.resume,
				Inferred: b.inferred, Why: b.why, AtNS: int64(b.at), Keep: b.keep,
			},
		})
	}
	return out
}

// running tells that a turn has begun, and before that what it replaces.
func (l *Lineage) running(now schemas.Time, t *turn, out []schemas.Msg) []schemas.Msg {
	s, b := t.sess, t.branch
	if b.state == schemas.BranchEnded && b.why != "decay" || s.ended {
		l.counts.Revived++
		s.count("revived", false)
	}
	s.ended = false
	why := "turn"
	if t.parted = !b.fresh && len(t.old) > t.kept && t.kept < len(t.entries); t.parted {
		if why = string(b.expect); why == "" {
			why = string(missOf(t.kind))
		}
		out = l.change(now, s, b, schemas.BranchSuperseded, why, b.expect == "", out)
	} else if t.kind == infer.Retry || b.turns == 0 && t.inferred && (t.kind == infer.Fork || t.kind == infer.SubAgent) {
		why = string(t.kind)
	}
	t.why, b.heard, b.keep = why, "", 0
	b.state, b.why, b.inferred, b.at, b.tool, b.resume = schemas.BranchRunning, why, t.inferred || t.parted, now, "", 0
	l.settled(b)
	l.heardOf(now, s, b)
	return l.announce(s, b, t.log, out)
}

// became counts what a turn turned out to be to its branch. It is done with the
// answer: a turn in work is read again after a restart.
func (l *Lineage) became(t *turn) {
	s, b := t.sess, t.branch
	if t.why != "turn" {
		if b.expect == "" || !t.parted {
			s.count(t.why, true)
		}
	}
	if t.parted {
		l.expect(s, b, "")
	}
	if t.msg.Weir.Hint == schemas.HintCompaction {
		s.count(string(schemas.EventCompacted), false)
		l.expect(s, b, schemas.MissCompaction)
	}
}

// waits says what the branch of an answered turn waits for: a tool if it was
// called, else its user; or what its agent said before the answer was here.
func (l *Lineage) waits(now schemas.Time, t *turn, r *schemas.Result, last *entry, out []schemas.Msg) []schemas.Msg {
	s, b := t.sess, t.branch
	state, kind := schemas.BranchUserWaiting, "user_wait"
	if r.Finish == "tool_calls" {
		state, kind = schemas.BranchToolWaiting, "tool_wait"
		b.toolWaits++
	}
	s.count(kind, true)
	n := len(out)
	b.keep = l.keeps(t, state, last)
	out = l.change(now, s, b, state, "result", true, out)
	for i, queue := n, queued(&r.Timing); i < len(out); i++ {
		out[i].Branch.QueueNS = queue
	}
	if state == schemas.BranchToolWaiting && last != nil && len(last.calls) > 0 {
		b.tool = toolName(last.calls[0].Name)
		for i := n; i < len(out); i++ {
			out[i].Branch.Tool = b.tool
		}
	}
	if s.ended {
		b.said = nil
		return l.change(now, s, b, schemas.BranchEnded, string(schemas.EventSessionEnd), false, out)
	}
	return l.sayNow(now, s, b, out)
}

// toolBytes bounds the name of a tool that is waited for, as in events: models write names
// of any length, and all nodes hear of it every minute.
const toolBytes = 256

func toolName(s string) string { return strings.ToValidUTF8(s[:min(len(s), toolBytes)], "") }

// queued is how long a turn waited from READY until an engine began to work on it, in
// ns and at least 1; 0 when its spans do not say. Clocks of two hosts may differ by
// more than that.
func queued(t *schemas.Timing) int64 {
	rendered := int64(-1)
	for _, s := range t.Spans {
		switch s.Stage {
		case schemas.SpanRender:
			rendered = s.To
		case schemas.SpanPrefill, schemas.SpanDecode:
			if rendered < 0 {
				return 0
			}
			return max(1, s.From-rendered)
		}
	}
	return 0
}

// sayNow applies what was said of a turn before it had ended.
func (l *Lineage) sayNow(now schemas.Time, s *session, b *branch, out []schemas.Msg) []schemas.Msg {
	said, busy := b.said, b.busy
	if b.said = nil; said == nil {
		return out
	}
	b.busy = nil
	out = l.event(now, s, said, out)
	b.busy = busy
	return out
}

// expect notes that an agent said that the next turn replaces the branch's context,
// or that it did.
func (l *Lineage) expect(s *session, b *branch, how schemas.MissCause) {
	if b.expect == "" && how != "" {
		s.expecting++
	} else if b.expect != "" && how == "" {
		s.expecting--
	}
	b.expect = how
}

// count counts what was said or inferred of a session.
func (s *session) count(kind string, inferred bool) {
	if s.events == nil {
		s.events = map[string]int{}
	}
	s.events[kind]++
	if inferred {
		s.events["inferred."+kind]++
	}
}

// decaying is a branch whose state was inferred.
type decaying struct {
	s *session
	b *branch
}

// settled takes a branch out of those that decay.
func (l *Lineage) settled(b *branch) {
	if b.decay != nil {
		l.decays.Remove(b.decay)
		b.decay = nil
	}
}

// nextDecay is when the oldest inferred state decays.
func (l *Lineage) nextDecay() schemas.Time {
	e := l.decays.Front()
	if e == nil {
		return schemas.Never
	}
	return e.Value.(decaying).b.at + schemas.Time(l.cfg.DecayNS)
}

// maxDecays bounds the states that decay in one step.
const maxDecays = 256

// decayed gives up states that were inferred long ago: nobody comes back to those
// branches, as far as one can tell.
func (l *Lineage) decayed(now schemas.Time, out []schemas.Msg) []schemas.Msg {
	for range maxDecays {
		if l.nextDecay() > now {
			break
		}
		d := l.decays.Front().Value.(decaying)
		l.counts.Decayed++
		out = l.change(now, d.s, d.b, schemas.BranchEnded, "decay", true, out)
	}
	return out
}

func sortedBranches(s *session) []string {
	names := make([]string, 0, len(s.branches))
	for n := range s.branches {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

func sortedNodes(m map[string]bool) []string {
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}
