package lineage

import (
	"fmt"
	"sort"
	"strconv"

	infer "github.com/weir-dev/weir/kvtier/branch"
	"github.com/weir-dev/weir/schemas"
)

// turnIn takes a published turn.
func (l *Lineage) turnIn(now schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
	sub, err := schemas.ParseSubject(in.Subject)
	if err != nil {
		return out
	}
	m := in.Turn
	s := l.session(sub.Get("tenant"), sub.Get("session"), now)
	t := &turn{
		id: m.Weir.Turn, digest: in.Digest, seq: in.Seq, sess: s, msg: m, at: in.At, trace: in.Trace,
	}
	if m.Weir.Digest != "" {
		t.digest = m.Weir.Digest
	}
	if t.id == "" {
		t.id = "t" + strconv.FormatUint(in.Seq, 10)
	}
	if t.at == 0 {
		t.at = now
	}
	if old := s.turns[t.id]; old != nil {
		if old.digest == t.digest {
			l.counts.Duplicates++
			return out
		}
		l.counts.Conflicts++
		return append(out, l.conflict(now, t)...)
	}
	l.remember(s, t)
	s.inferred = s.inferred || m.Weir.Inferred
	if r := m.BodyRef; r != nil {
		l.name(s, r.Digest)
	}
	if len(s.line) >= l.cfg.MaxQueue && !l.older(t) {
		return l.refuse(now, t, schemas.CodeBusy, fmt.Sprintf("%d turns and events of the session wait to be read", len(s.line)), "", out)
	}
	return l.enter(now, s, item{t: t}, out)
}

// remember keeps a turn id for idempotency, within the bound.
func (l *Lineage) remember(s *session, t *turn) {
	s.turns[t.id] = t
	s.order = append(s.order, t.id)
	s.pending++
	l.weigh(s, turnBytes)
	for len(s.order) > l.cfg.MaxTurns {
		old := s.turns[s.order[0]]
		if old != nil && old.state != turnEnded {
			break
		}
		if old != nil && s.known[old.known] == old {
			delete(s.known, old.known)
		}
		delete(s.turns, s.order[0])
		l.weigh(s, -turnBytes)
		s.order = s.order[1:]
	}
}

// place finds the branch of a turn.
func (l *Lineage) place(now schemas.Time, t *turn, out []schemas.Msg) []schemas.Msg {
	s, w := t.sess, &t.msg.Weir
	live := t.result == nil && !t.published
	if w.Known != "" && live && t.overtook() {
		l.hold(now, t)
		return out
	}
	if !t.implicit() {
		name := w.Branch
		if name == "" {
			name = schemas.DefaultBranch
		}
		return l.on(now, t, name, w.Parent, out)
	}
	// What an earlier life decided stands.
	name := t.recorded
	if r := t.result; r != nil && r.Branch != "" {
		name = r.Branch
	}
	switch {
	case t.result != nil && t.result.Status != schemas.StatusOK && s.branches[name] == nil:
		return l.ended(now, t, t.result, out)
	case live:
		if f := l.check(t); f != nil {
			return l.refuse(now, t, f.Code, f.Message, f.Param, out)
		}
	case name == "":
		name = schemas.DefaultBranch
	}
	if w.Known != "" {
		return l.placeKnown(now, t, name, out)
	}
	return l.placeMessages(now, t, name, live, out)
}

// placeMessages places a turn by the messages that it sends. name is where it was
// before, if it was; live says that nothing is published of it yet.
func (l *Lineage) placeMessages(now schemas.Time, t *turn, name string, live bool, out []schemas.Msg) []schemas.Msg {
	s := t.sess
	like := s.last
	if b := s.branches[name]; b != nil {
		like = b
	}
	var before []*entry
	if like != nil {
		before = like.hist
	}
	t.items = s.entries(t.msg.Messages, nil, before)
	if len(s.branches) == 0 {
		if name == "" {
			name = s.fresh(t)
		}
		t.inferred, t.kind = true, infer.First
		return l.on(now, t, name, "", out)
	}
	busy := func(id string) bool { b := s.branches[id]; return b != nil && !b.idle() }
	if name != "" {
		busy = nil // its answers may be there by now
	}
	// A turn that waited in vain quotes an answer of somewhere else.
	ask := infer.Request{At: int64(t.at), Items: itemsOf(t.items), Hint: t.msg.Weir.Hint, Foreign: t.waited}
	p := l.forest(s).Place(ask, busy, func() string { return s.fresh(t) })
	if live && (p.Kind != infer.Continue || busy != nil && busy(p.Branch)) && t.overtook() {
		l.hold(now, t)
		return out
	}
	from := p.Branch
	if p.New {
		from = p.Parent
	}
	switch b := s.summary(p); {
	case name != "":
		p.Kind = s.kindThen(name, p)
	case b != nil:
		name, p.Kind = b.id, infer.Compaction
	default:
		name = p.Branch
	}
	t.inferred, t.kind = true, p.Kind
	return l.on(now, t, name, from, out)
}

// kindThen is what a turn was to the branch on which an earlier life had placed it,
// or "", which is told when it is rendered. p is where it would go by now.
func (s *session) kindThen(name string, p infer.Placement) infer.Kind {
	switch b := s.branches[name]; {
	case b == nil && !p.New:
		return infer.Fork
	case b == nil, p.Branch == name:
		return p.Kind
	case b.turns == 0:
		return b.born
	}
	return ""
}

// summary is the idle branch whose context is to be replaced, as its agent said,
// by one that shares nothing with it: the last one that said so.
func (s *session) summary(p infer.Placement) (b *branch) {
	if s.expecting == 0 || p.Kind != infer.First && p.Kind != infer.SubAgent {
		return nil
	}
	for _, n := range sortedBranches(s) {
		if c := s.branches[n]; c.expect != "" && c.idle() && (b == nil || c.at > b.at) {
			b = c
		}
	}
	return b
}

// placeKnown places a turn that names what it continues and not where. name is
// where it was before, if it was.
func (l *Lineage) placeKnown(now schemas.Time, t *turn, name string, out []schemas.Msg) []schemas.Msg {
	s := t.sess
	b, n := s.find(t.msg.Weir.Known)
	switch {
	case name != "":
		if b := s.branches[name]; b == nil || b.guessed && b.turns == 0 {
			t.inferred, t.kind = true, infer.Fork
		}
	case b == nil:
		f := needFull(t.msg.Weir.Known, "a branch")
		return l.refuse(now, t, f.Code, f.Message, f.Param, out)
	case b.known == t.msg.Weir.Known && n == len(b.hist) && b.idle():
		name = b.id
	default:
		name = s.fresh(t)
		t.inferred, t.kind = true, infer.Fork
	}
	return l.on(now, t, name, "", out)
}

func needFull(known, where string) *schemas.Failure {
	return &schemas.Failure{
		Code: schemas.CodeNeedFull, Param: "weir.known",
		Message: fmt.Sprintf("%q does not name the end of %s here; publish a new turn with all messages", known, where),
	}
}

// find returns the branch whose context ends with the turn of that digest, or
// begins with the context up to that turn, and the number of messages up to there.
func (s *session) find(known string) (*branch, int) {
	t := s.known[known]
	if t == nil {
		return nil, 0
	}
	if b := s.branches[t.on]; b != nil && b.known == known {
		return b, len(b.hist)
	}
	names := sortedBranches(s)
	for _, n := range names {
		if b := s.branches[n]; b.known == known {
			return b, len(b.hist)
		}
	}
	holds := func(b *branch) bool {
		return b != nil && t.msgs > 0 && len(b.hist) >= t.msgs && chainOf(b.hist[:t.msgs]) == t.ctx
	}
	if b := s.branches[t.on]; holds(b) {
		return b, t.msgs
	}
	for _, n := range names {
		if b := s.branches[n]; holds(b) {
			return b, t.msgs
		}
	}
	return nil, 0
}

// fresh names a new branch after the turn that begins it.
func (s *session) fresh(t *turn) string {
	if s.branches[schemas.DefaultBranch] == nil {
		return schemas.DefaultBranch
	}
	name := "b" + strconv.FormatUint(t.seq, 10)
	for n := name; ; {
		if s.branches[n] == nil {
			return n
		}
		n += "-"
		if len(n) > schemas.MaxIDLen {
			return name
		}
	}
}

// on puts a turn on the branch of that name, which is made if it is not there.
func (l *Lineage) on(now schemas.Time, t *turn, name, parent string, out []schemas.Msg) []schemas.Msg {
	s, known := t.sess, t.msg.Weir.Known
	b := s.branches[name]
	if b == nil {
		p := s.branches[parent]
		if p == nil && parent != "" && !t.inferred && !l.older(t) {
			return l.refuse(now, t, schemas.CodeSession, fmt.Sprintf("branch %q, from which %q is to fork, is not known", parent, name), "weir.parent", out)
		}
		n := 0
		if p != nil {
			n = len(p.hist)
		}
		if known != "" && (p == nil || p.known != known) {
			if q, k := s.find(known); q != nil {
				p, n = q, k
			}
		}
		if b = l.newBranch(now, s, name, p, n, known); b == nil {
			return l.refuse(now, t, schemas.CodeBusy, fmt.Sprintf("the session has %d branches already; end some, or use another session", len(s.branches)), "weir.branch", out)
		}
		b.guessed, b.born = t.inferred, t.kind
		if !t.inferred && p != nil {
			t.kind = infer.Fork
			s.count("fork", false)
		}
	}
	t.branch, t.on = b, b.id
	return l.queue(now, t, out)
}

// newBranch makes a branch that begins with the first n messages of p's context.
// It is nil when the session may have no more.
func (l *Lineage) newBranch(now schemas.Time, s *session, name string, p *branch, n int, known string) *branch {
	if len(s.branches) >= l.cfg.MaxBranches && (!s.inferred || !l.forgetBranches(s, p)) {
		return nil
	}
	s.clock++
	b := &branch{id: name, at: now, fresh: true, made: s.clock, turned: s.clock}
	s.branches[name] = b
	l.weigh(s, branchBytes)
	if p == nil {
		return b
	}
	b.parent = p.id
	l.setHist(s, b, p.hist[:n:n])
	l.setLog(s, b, p.log)
	if b.known, b.tail = known, ""; n == len(p.hist) {
		b.known, b.tail = p.known, p.tail
	}
	return b
}

// forest is the inference of branches of a session. Sessions whose turns say where
// they belong need none. It is made anew from the branches after a restart: each
// begins with as many messages as it once did, in the order in which they were made
// and then in that of their last turns.
func (l *Lineage) forest(s *session) *infer.Forest {
	if s.trees != nil {
		return s.trees
	}
	s.trees = infer.NewForest(infer.Options{MaxBranches: l.cfg.MaxBranches, Drop: dropBytes})
	all := make([]*branch, 0, len(s.branches))
	for _, b := range s.branches {
		all = append(all, b)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].made < all[j].made })
	context := func(b *branch) []*entry {
		if b.busy != nil && b.busy.entries != nil {
			b.busy.listed = true
			return b.busy.entries
		}
		if b.fresh && b.guessed {
			return nil // it has its parent's context until its first turn is rendered
		}
		return b.hist
	}
	for _, b := range all {
		if list := context(b); len(list) > 0 {
			s.trees.Set(b.id, b.parent, itemsOf(list[:min(len(list), max(1, b.first))]), 0)
		}
	}
	sort.Slice(all, func(i, j int) bool { return all[i].turned < all[j].turned })
	for _, b := range all {
		if list := context(b); len(list) > 0 {
			s.trees.Set(b.id, b.parent, itemsOf(list), 0)
		}
	}
	return s.trees
}

// dropBytes is how much shorter a context must become to be called a compaction
// whatever the ratio, see infer.Options.Drop.
const dropBytes = 256 << 10
