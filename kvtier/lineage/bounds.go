package lineage

import (
	"slices"
	"sort"

	"github.com/weir-dev/weir/schemas"
)

func sessionKey(tenant, id string) string { return tenant + "." + id }

func (l *Lineage) session(tenant, id string, now schemas.Time) *session {
	key := sessionKey(tenant, id)
	s := l.sessions[key]
	if s == nil {
		if len(l.sessions) >= l.cfg.MaxSessions || l.full() {
			l.makeRoom(nil)
		}
		s = newSession(tenant, id)
		s.again = l.forgot
		l.weigh(s, sessionBytes)
		l.sessions[key] = s
	}
	s.used = now
	return s
}

func newSession(tenant, id string) *session {
	return &session{
		tenant: tenant, id: id, branches: map[string]*branch{}, turns: map[string]*turn{}, known: map[string]*turn{}, stored: map[[16]byte]*entry{},
	}
}

// What is remembered beside messages and tokens, in bytes of a snapshot: ids and
// digests, mostly. A turn has its record and the ends of up to two contexts.
const (
	sessionBytes = 320
	branchBytes  = 320
	turnBytes    = 400
	markBytes    = 110
	refBytes     = 68
)

// weigh counts what a session takes.
func (l *Lineage) weigh(s *session, n int) {
	s.bytes += n
	l.bytes += n
}

func (l *Lineage) full() bool { return l.tokens >= l.cfg.MaxTokens || l.bytes >= l.cfg.MaxBytes }

// makeRoom forgets idle sessions but keep, the least recently used first. It
// forgets a sixteenth at once, so that the sort is rare. Where no other session is
// left, keep's own branches lose their tokens.
func (l *Lineage) makeRoom(keep *session) {
	var idle []*session
	for _, s := range l.sessions {
		if s.pending == 0 && s.owed == 0 && s != keep {
			idle = append(idle, s)
		}
	}
	sort.Slice(idle, func(i, j int) bool {
		if idle[i].used != idle[j].used {
			return idle[i].used < idle[j].used
		}
		return sessionKey(idle[i].tenant, idle[i].id) < sessionKey(idle[j].tenant, idle[j].id)
	})
	for _, s := range idle[:min(len(idle), len(idle)/16+1)] {
		l.drop(s)
		l.counts.Forgotten++
		l.forgot = true
	}
	if keep != nil && len(idle) == 0 {
		l.cool(keep)
	}
}

// drop removes a session from memory.
func (l *Lineage) drop(s *session) {
	l.tokens -= s.tokens
	l.bytes -= s.bytes
	for ref := range s.refs {
		if l.refs[ref]--; l.refs[ref] <= 0 {
			delete(l.refs, ref)
		}
	}
	for _, b := range s.branches {
		l.settled(b)
		l.unheard(b)
	}
	delete(l.sessions, sessionKey(s.tenant, s.id))
}

// idleBranches lists a session's branches without turns, the least recently used
// first, but the two named.
func (s *session) idleBranches(but, and *branch) (idle []*branch) {
	for _, b := range s.branches {
		if b.idle() && b != but && b != and {
			idle = append(idle, b)
		}
	}
	sort.Slice(idle, func(i, j int) bool {
		if idle[i].at != idle[j].at {
			return idle[i].at < idle[j].at
		}
		return idle[i].id < idle[j].id
	})
	return idle
}

// cool takes the tokens of the branches that were not used longest until half of
// what is allowed is left: they go on, and their prompts are tokenized again. Where
// messages take too much, it takes them, too: such branches must be sent in full.
func (l *Lineage) cool(s *session) {
	for _, b := range s.idleBranches(s.last, nil) {
		large := l.bytes > l.cfg.MaxBytes/2
		if l.tokens <= l.cfg.MaxTokens/2 && !large {
			return
		}
		if b.log != nil {
			l.gone(s, b.log, 0)
			l.setLog(s, b, nil)
			l.counts.Cooled++
		}
		if large {
			l.setHist(s, b, nil)
			b.known = ""
			if s.trees != nil {
				s.trees.Remove(b.id)
			}
		}
	}
}

// forgetBranches forgets a sixteenth of a session's branches but keep, those first
// that were not used longest, and says whether there is room for one now.
func (l *Lineage) forgetBranches(s *session, keep *branch) bool {
	idle := s.idleBranches(keep, s.last)
	for _, b := range idle[:min(len(idle), len(idle)/16+1)] {
		l.forgetBranch(s, b)
	}
	return len(s.branches) < l.cfg.MaxBranches
}

func (l *Lineage) forgetBranch(s *session, b *branch) {
	if b.log != nil {
		l.gone(s, b.log, 0)
	}
	l.setLog(s, b, nil)
	l.setHist(s, b, nil)
	l.expect(s, b, "")
	l.settled(b)
	l.unheard(b)
	if s.trees != nil {
		s.trees.Remove(b.id)
	}
	if s.last == b {
		s.last = nil
	}
	delete(s.branches, b.id)
	l.weigh(s, -branchBytes)
}

// setLog replaces a branch's context and keeps the count of tokens. Branches may
// share a logbook; it counts once.
func (l *Lineage) setLog(s *session, b *branch, log *logbook) {
	if log != nil {
		if log.refs++; log.refs == 1 {
			s.tokens += len(log.Tokens)
			l.tokens += len(log.Tokens)
			l.weigh(s, markBytes*len(log.Marks))
		}
	}
	if old := b.log; old != nil {
		if old.refs--; old.refs == 0 {
			s.tokens -= len(old.Tokens)
			l.tokens -= len(old.Tokens)
			l.weigh(s, -markBytes*len(old.Marks))
		}
	}
	b.log = log
}

// maxGone bounds the keys of replaced contexts that a session remembers, so that
// their blocks can be found when it is erased.
const maxGone = 4096

// gone remembers the blocks of a context that a branch had, but for the first kept
// ones, which it still has. A node may hold any leading part of them.
func (l *Lineage) gone(s *session, log *logbook, kept int) {
	root, ok := l.root(log.Keys)
	if !ok {
		return
	}
	for _, key := range log.names(kept, root) {
		k := key.String()
		if slices.Contains(s.gone[max(0, len(s.gone)-goneAlike):], k) {
			continue
		}
		if len(s.gone) >= maxGone {
			s.gone = s.gone[1:]
		}
		s.gone = append(s.gone, k) // nothing is moved: a snapshot may be reading it
	}
}

// goneAlike is how many of the newest keys are looked through for one that comes again:
// branches that are forgotten one after the other begin alike.
const goneAlike = 128

// maxRefs bounds the payload objects that a session remembers to have named.
const maxRefs = 65536

// name notes that a session names a payload object.
func (l *Lineage) name(s *session, ref string) {
	if s.refs[ref] || len(s.refs) >= maxRefs {
		return
	}
	if s.refs == nil {
		s.refs = map[string]bool{}
	}
	s.refs[ref] = true
	l.weigh(s, refBytes)
	l.refs[ref]++
}
