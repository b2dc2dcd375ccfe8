package lineage

import (
	"fmt"
	"maps"
	"slices"
	"sort"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/schemas"
)

// sessionOut answers what is known of a session, or forgets it.
func (l *Lineage) sessionOut(in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
	q := in.SessionReq
	rep := &schemas.SessionReply{Header: schemas.H()}
	if s := l.sessions[sessionKey(q.Tenant, q.Session)]; s != nil {
		l.inspect(s, q, rep)
	}
	// Also when nothing is known any more: whoever asks waits for a snapshot without it.
	l.stale = l.stale || q.Forget && rep.Error == ""
	return append(out, schemas.Msg{Kind: schemas.KindSessionReply, Subject: in.Reply, Core: true, SessionRep: rep})
}

// SnapshotDue reports whether the state should be saved without waiting for its time.
func (l *Lineage) SnapshotDue() bool { return l.stale }

func (l *Lineage) inspect(s *session, q *schemas.SessionRequest, rep *schemas.SessionReply) {
	rep.Found, rep.Pending = true, s.pending
	names := sortedBranches(s)
	if q.Turn != "" {
		t := s.turns[q.Turn]
		if t == nil {
			rep.Found = false
			return
		}
		names = slices.DeleteFunc(names, func(n string) bool { return n != t.on })
	}
	if n := len(names); n > schemas.MaxSessionBranches {
		rep.Left, names = n-schemas.MaxSessionBranches, names[:schemas.MaxSessionBranches]
	}
	for _, n := range names {
		rep.Branches = append(rep.Branches, s.branches[n].info())
	}
	rep.Events = maps.Clone(s.events)
	if !q.Forget {
		return
	}
	if s.pending > 0 || s.owed > 0 {
		rep.Error = fmt.Sprintf("%d turns of session %q are in work; cancel them or wait until they have ended", s.pending+s.owed, s.id)
		return
	}
	rep.Branches, rep.Left = nil, 0
	l.forget(s, rep)
}

// maxErase bounds the keys, and the objects, in one reply: it must fit a message.
const maxErase = 6000

// forget hands out what is needed to erase a session, and forgets it. What does
// not fit is left for another request.
func (l *Lineage) forget(s *session, rep *schemas.SessionReply) {
	keys := l.keysOnly(s)
	var refs []string
	for ref := range s.refs {
		if l.refs[ref] == 1 {
			refs = append(refs, ref)
		}
	}
	sort.Strings(refs)
	rep.Keys, rep.Refs = keys[:min(len(keys), maxErase)], refs[:min(len(refs), maxErase)]
	if len(keys) <= maxErase && len(refs) <= maxErase {
		l.drop(s)
		return
	}
	for _, n := range sortedBranches(s) {
		l.forgetBranch(s, s.branches[n])
	}
	s.gone = slices.Clone(keys[len(rep.Keys):])
	for _, ref := range rep.Refs {
		delete(s.refs, ref)
		delete(l.refs, ref)
	}
	rep.Error = fmt.Sprintf("%d keys and %d objects of session %q did not fit the reply; take these and ask again", len(s.gone), len(refs)-len(rep.Refs), s.id)
}

// maxTool bounds a tool's name in a reply, in bytes.
const maxTool = 64

func (b *branch) info() schemas.BranchInfo {
	i := schemas.BranchInfo{
		ID: b.id, Parent: b.parent, State: b.state, Why: b.why, Inferred: b.inferred, Tool: b.tool[:min(len(b.tool), maxTool)], ResumeNS: b.resume, Turns: b.turns,
		Messages: len(b.hist), Tail: b.tail, ToolWaits: b.toolWaits, AtNS: int64(b.at),
	}
	if b.log != nil {
		i.Tokens = len(b.log.Tokens)
	}
	return i
}

// keysOnly names the blocks of all contexts that a session has and had, but for those
// that stand in a context of another session of the tenant. A node may hold any leading
// part of a context, so of each the first block is named that no other session has, and
// the last one. A turn that was handed over before that block was full has left a part of
// it beside it; parts of later blocks lie below it and are found through it.
func (l *Lineage) keysOnly(s *session) []string {
	gone := map[string]bool{}
	for _, k := range s.gone {
		gone[k] = true
	}
	mine := map[kvtier.Key]bool{} // true: another session has it too
	l.contexts(s, func(log *logbook, blocks int) {
		for _, k := range log.chain[:blocks] {
			mine[k] = false
		}
	})
	for _, o := range l.sessions {
		if o == s || o.tenant != s.tenant {
			continue
		}
		l.contexts(o, func(log *logbook, _ int) {
			for _, k := range log.chain {
				if _, ok := mine[k]; ok {
					mine[k] = true
				}
				if len(gone) > 0 {
					delete(gone, k.String())
				}
			}
		})
	}
	l.contexts(s, func(log *logbook, blocks int) {
		own := slices.IndexFunc(log.chain[:blocks], func(k kvtier.Key) bool { return !mine[k] })
		if own >= 0 {
			gone[log.chain[own].String()], gone[log.chain[blocks-1].String()] = true, true
		} else {
			own = blocks
		}
		root, _ := l.root(log.Keys) // contexts has it
		for _, k := range log.parts(own, root) {
			gone[k.String()] = true
		}
	})
	return slices.Sorted(maps.Keys(gone))
}

// contexts calls f for the contexts of a session, with the number of blocks that were
// computed. They have names then, which a restart forgets.
func (l *Lineage) contexts(s *session, f func(log *logbook, blocks int)) {
	for _, b := range s.branches {
		if b.log == nil {
			continue
		}
		if root, ok := l.root(b.log.Keys); ok {
			f(b.log, b.log.blocks(b.log.Computed, root))
		}
	}
}
