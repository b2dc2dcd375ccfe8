package lineage

import (
	"fmt"
	"math"
	"strings"

	"github.com/weir-dev/weir/schemas"
)

// Dropped counts events that had no effect, by reason.
type Dropped struct{ Session, Branch, Parent, Cycle, Exists, Ended, Late, Full uint64 }

// Total is all of them together.
func (d Dropped) Total() uint64 {
	return d.Session + d.Branch + d.Parent + d.Cycle + d.Exists + d.Ended + d.Late + d.Full
}

func isCancel(subject string) bool {
	return strings.HasSuffix(subject, "."+string(schemas.EventCancel))
}

// eventIn takes what an agent says about a branch.
func (l *Lineage) eventIn(now schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
	sub, err := schemas.ParseSubject(in.Subject)
	if err != nil {
		return out
	}
	s := l.sessions[sessionKey(sub.Get("tenant"), sub.Get("session"))]
	switch {
	case isCancel(in.Subject):
		if s == nil {
			return out
		}
		return l.advance(now, s, l.cancel(now, s, in.Event, out))
	case s == nil:
		if in.Seq > 0 && in.Seq <= l.seen {
			return out
		}
		return l.dropEvent(now, in, &l.counts.Dropped.Session, schemas.CodeSession, "no turn of this session is known", out)
	case in.Seq > 0 && in.Seq <= max(s.seen, s.read):
		return out // it is in the state
	}
	s.read = in.Seq
	if len(s.line) >= l.cfg.MaxQueue && in.At >= l.started {
		return l.dropEvent(now, in, &l.counts.Dropped.Full, schemas.CodeBusy, fmt.Sprintf("%d turns and events of the session wait to be read", len(s.line)), out)
	}
	ev := *in
	return l.enter(now, s, item{ev: &ev}, out)
}

// event applies an event to its session.
func (l *Lineage) event(now schemas.Time, s *session, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
	sub, err := schemas.ParseSubject(in.Subject)
	if err != nil {
		return out
	}
	s.seen = max(s.seen, in.Seq)
	e, kind := in.Event, schemas.EventKind(sub.Get("kind"))
	name := e.Branch
	if name == "" {
		name = schemas.DefaultBranch
	}
	drop := &l.counts.Dropped
	b := s.branches[name]
	switch {
	case kind == schemas.EventSessionEnd:
		return l.sessionEnd(now, s, out)
	case kind == schemas.EventBranchFork:
		return l.fork(now, s, name, in, out)
	case b == nil:
		return l.dropEvent(now, in, &drop.Branch, schemas.CodeSession, fmt.Sprintf("branch %q is not known", name), out)
	case in.Digest != "" && b.heard == string(kind)+" "+in.Digest:
		l.counts.Repeated++
		return out
	case s.ended || b.state == schemas.BranchEnded && b.why != "decay":
		return l.dropEvent(now, in, &drop.Ended, schemas.CodeInvalid, fmt.Sprintf("branch %q has ended", name), out)
	case e.Turn != "" && e.Turn != b.tail && (b.busy == nil || b.busy.id != e.Turn):
		return l.dropEvent(now, in, &drop.Late, schemas.CodeInvalid, fmt.Sprintf("turn %q is not the last one of branch %q", e.Turn, name), out)
	case b.busy != nil && e.Turn != "" && e.Turn != b.busy.id:
		return l.dropEvent(now, in, &drop.Late, schemas.CodeInvalid, fmt.Sprintf("turn %q of branch %q is running", b.busy.id, name), out)
	case b.busy != nil && (b.busy.state == turnReady || e.Turn == b.busy.id):
		b.said = in // its result comes on another way and may be later
		return out
	}
	b.heard = string(kind) + " " + in.Digest
	l.counts.Events++
	return l.said(now, s, b, kind, e, in.At, out)
}

// said applies an event to its branch.
func (l *Lineage) said(now schemas.Time, s *session, b *branch, kind schemas.EventKind, e *schemas.Event, at schemas.Time, out []schemas.Msg) []schemas.Msg {
	state, counted := schemas.BranchUserWaiting, string(kind)
	switch kind {
	case schemas.EventToolWait:
		state = schemas.BranchToolWaiting
	case schemas.EventBranchEnd:
		state = schemas.BranchEnded
	case schemas.EventCompacted:
		state, counted = schemas.BranchSuperseded, "compaction"
		l.expect(s, b, schemas.MissCompaction)
	case schemas.EventPrefixRewrite:
		state, counted = schemas.BranchSuperseded, "rewrite"
		l.expect(s, b, schemas.MissRewrite)
	case schemas.EventUserWait:
	default:
		return out
	}
	// An answer with tool calls was counted as a wait already, and so on.
	if b.state != state || !b.inferred {
		s.count(counted, false)
		if state == schemas.BranchToolWaiting {
			b.toolWaits++
		}
	}
	n := len(out)
	tool := e.Tool
	if tool == "" && state == schemas.BranchToolWaiting {
		tool = b.tool
	}
	out = l.change(now, s, b, state, string(kind), false, out)
	if b.tool = tool; e.ExpectedNS > 0 {
		if at == 0 {
			at = now
		}
		b.resume = int64(at) + min(e.ExpectedNS, math.MaxInt64-int64(at))
	}
	for i := n; i < len(out); i++ {
		out[i].Branch.Tool, out[i].Branch.ResumeNS = b.tool, b.resume
	}
	return out
}

// sessionEnd ends all branches.
func (l *Lineage) sessionEnd(now schemas.Time, s *session, out []schemas.Msg) []schemas.Msg {
	if s.ended {
		l.counts.Repeated++
		return out
	}
	l.counts.Events++
	s.ended = true
	s.count(string(schemas.EventSessionEnd), false)
	for _, n := range sortedBranches(s) {
		if b := s.branches[n]; b.busy == nil && b.state != schemas.BranchEnded {
			out = l.change(now, s, b, schemas.BranchEnded, string(schemas.EventSessionEnd), false, out)
		}
	}
	return out
}

// fork makes the branch that an event names; its context is that of its parent.
func (l *Lineage) fork(now schemas.Time, s *session, name string, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
	parent := in.Event.Parent
	if parent == "" {
		parent = schemas.DefaultBranch
	}
	p, drop := s.branches[parent], &l.counts.Dropped
	switch b := s.branches[name]; {
	case b != nil && parent != name && b.parent == parent && b.fresh:
		l.counts.Repeated++
		return out
	case parent == name, b != nil && s.comesFrom(p, name):
		return l.dropEvent(now, in, &drop.Cycle, schemas.CodeInvalid, fmt.Sprintf("branch %q cannot fork from %q, which comes from it", name, parent), out)
	case b != nil:
		return l.dropEvent(now, in, &drop.Exists, schemas.CodeInvalid, fmt.Sprintf("branch %q is there already", name), out)
	case p == nil:
		return l.dropEvent(now, in, &drop.Parent, schemas.CodeSession, fmt.Sprintf("branch %q, from which %q is to fork, is not known", parent, name), out)
	}
	b := l.newBranch(now, s, name, p, len(p.hist), "")
	if b == nil {
		return l.dropEvent(now, in, &drop.Full, schemas.CodeBusy, fmt.Sprintf("the session has %d branches already", len(s.branches)), out)
	}
	if s.trees != nil && len(b.hist) > 0 {
		s.trees.Set(b.id, b.parent, itemsOf(b.hist), int64(now))
	}
	l.counts.Events++
	s.ended = false
	s.count("fork", false)
	return l.change(now, s, b, schemas.BranchUserWaiting, string(schemas.EventBranchFork), false, out)
}

// comesFrom reports whether b descends from the branch of that name. Branches that
// were forgotten may have been made anew, so the names may go in circles.
func (s *session) comesFrom(b *branch, name string) bool {
	for range len(s.branches) {
		if b == nil {
			return false
		}
		if b.parent == name {
			return true
		}
		b = s.branches[b.parent]
	}
	return false
}

// cancel stops a turn wherever it is.
func (l *Lineage) cancel(now schemas.Time, s *session, e *schemas.Event, out []schemas.Msg) []schemas.Msg {
	t := s.turns[e.Turn]
	if t == nil {
		return out
	}
	switch t.state {
	case turnWaiting:
		if l.older(t) || t.result != nil {
			t.cancelled = true // it may have been answered before this process started
			return out
		}
		return l.refuse(now, t, schemas.CodeCancelled, "cancelled by the caller", "", out)
	case turnLooking, turnRendering:
		t.cancelled = true
	case turnReady:
		t.cancelled = true // should READY have refused it
		out = append(out, l.cancelMsg(t, "cancelled by the caller"))
	case turnEnded:
	}
	return out
}

// deadRing remembers the last dropped events, so that one that comes again is only
// counted.
type deadRing struct {
	at   map[string]int
	list []string
	next int
}

// maxDead bounds the dropped events that are remembered.
const maxDead = 1024

// add reports whether the digest is new.
func (r *deadRing) add(digest string) bool {
	if r.at == nil {
		r.at = map[string]int{}
	}
	if _, ok := r.at[digest]; ok {
		return false
	}
	if len(r.list) < maxDead {
		r.list = append(r.list, digest)
	} else {
		delete(r.at, r.list[r.next])
		r.list[r.next] = digest
	}
	r.at[digest] = r.next
	r.next = (r.next + 1) % maxDead
	return true
}

// dropEvent counts an event that has no effect, and writes a dead letter about it once.
func (l *Lineage) dropEvent(now schemas.Time, in *schemas.Msg, n *uint64, code, why string, out []schemas.Msg) []schemas.Msg {
	*n++
	sub, err := schemas.ParseSubject(in.Subject)
	if err != nil {
		return out
	}
	tenant, session, kind := sub.Get("tenant"), sub.Get("session"), schemas.EventKind(sub.Get("kind"))
	subject := schemas.AgentSubject(tenant, session, kind)
	id := quoted(subject) + in.Digest
	if !l.dead.add(id) {
		return out
	}
	sum := sumOf([]byte(id))
	return append(out, schemas.Msg{
		Kind: schemas.KindDead, Subject: schemas.DeadSubject(string(schemas.StageAgent), tenant), ID: fmt.Sprintf("dead:%x", sum), Trace: in.Trace,
		Dead: &schemas.Dead{
			Header: schemas.H(), Stage: schemas.StageAgent, Tenant: tenant, Session: session, Turn: in.Event.Turn, Subject: subject,
			Seq: in.Seq, Code: code, Reason: string(kind) + ": " + why, AtNS: int64(now),
		},
	})
}
