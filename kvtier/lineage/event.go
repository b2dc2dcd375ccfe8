package lineage

import (
	"sort"
	"strings"

	"github.com/weir-dev/weir/schemas"
)

// event takes what an agent says about a branch.
func (l *Lineage) event(now schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
	sub, err := schemas.ParseSubject(in.Subject)
	if err != nil {
		return out
	}
	s := l.sessions[sessionKey(sub.Get("tenant"), sub.Get("session"))]
	if s == nil {
		return out // nothing of it is known, so nothing of it is kept
	}
	e := in.Event
	name := e.Branch
	if name == "" {
		name = schemas.DefaultBranch
	}
	b := s.branches[name]
	resume := int64(0)
	if e.ExpectedNS > 0 {
		resume = int64(now) + e.ExpectedNS
	}
	switch kind := schemas.EventKind(sub.Get("kind")); kind {
	case schemas.EventCancel:
		return l.cancel(now, s, e, out)
	case schemas.EventSessionEnd:
		for _, n := range sortedBranches(s) {
			s.branches[n].state = schemas.BranchEnded
			out = l.announce(now, s, s.branches[n], "", 0, out)
		}
		return out
	default:
		state, ok := stateOf[kind]
		if b == nil || !ok {
			return out
		}
		b.state = state
		return l.announce(now, s, b, e.Tool, resume, out)
	}
}

// stateOf says where a branch stands after an event. A fork changes nothing for
// the branch it leaves; the new branch begins with its first turn.
var stateOf = map[schemas.EventKind]schemas.BranchState{
	schemas.EventToolWait:      schemas.BranchToolWaiting,
	schemas.EventUserWait:      schemas.BranchUserWaiting,
	schemas.EventBranchEnd:     schemas.BranchEnded,
	schemas.EventCompacted:     schemas.BranchSuperseded,
	schemas.EventPrefixRewrite: schemas.BranchSuperseded,
}

func isCancel(subject string) bool {
	return strings.HasSuffix(subject, "."+string(schemas.EventCancel))
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
