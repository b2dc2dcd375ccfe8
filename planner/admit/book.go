package admit

import (
	"cmp"
	"math"
	"slices"

	"github.com/weir-dev/weir/schemas"
)

// Config of a pool's book. Durations are nanoseconds.
type Config struct {
	// Fill is the share of memory that contexts may take: the rest is what is dead and
	// not yet evicted. 0.9.
	Fill float64
	// Growth is the factor by which a context is taken to grow beyond its first prompt
	// until half of the sessions have ended and tell. 6: agents that begin with 16,000
	// tokens end near 100,000.
	Growth float64
	// Over is by how much what is expected may exceed memory while executors have nothing
	// to do, a session each PaceNS. 1.25, 5 s.
	Over   float64
	PaceNS int64
	// IdleNS: an admitted session without a turn for so long is admitted anew when it
	// comes back. 3 min: of tool calls with a median of 4 s, one in a thousand takes as long.
	// Much sooner, see pauses, it takes no memory any more in the book: what it has may go.
	// RestNS is the least time for that. 15 s.
	IdleNS, RestNS int64
	// WaitNS is how long a turn may wait for its session to be admitted. 60 s.
	WaitNS int64
	// MaxSessions bounds the sessions that are known, admitted or refused. 65,536; more
	// are admitted without being counted.
	MaxSessions int
}

func (c *Config) defaults() {
	set(&c.Fill, 0.9)
	set(&c.Growth, 6)
	set(&c.Over, 1.25)
	set(&c.PaceNS, 5_000_000_000)
	set(&c.IdleNS, 180_000_000_000)
	set(&c.RestNS, 15_000_000_000)
	set(&c.WaitNS, 60_000_000_000)
	set(&c.MaxSessions, 1<<16)
}

func set[T int | int64 | float64](p *T, v T) {
	if *p == 0 {
		*p = v
	}
}

// Key names a session.
type Key struct{ Tenant, Session string }

// session is one that is admitted.
type session struct {
	key      Key
	branches []branch
	final    int // tokens of its own that it is assumed to end with, before sessions have told
	tokens   int // of its own now: of all branches
	running  int // turns without a result
	turns    int
	seen     schemas.Time // last turn or answer
	whole    bool         // it was seen from its first turn on
	class    int          // of its first prompt, see once
	once     bool         // it is not expected to come back
	away     bool         // idle for longer than sessions use to: its memory may go
}

// branch is one line of context of a session.
type branch struct {
	name   string
	shared int // leading tokens that others had computed before it began
	tokens int // of its own
}

// maxBranches of a session are told apart; what more there are count as the last one.
const maxBranches = 16

// Book is the sessions of one pool. It is not safe for use by several goroutines.
type Book struct {
	cfg      Config
	sessions map[Key]*session
	refused  refusals
	tokens   int
	away     int // sessions that are away
	busy     int // sessions with a turn that runs
	forecast forecast
	pauses   pauses
	once     once
	over     schemas.Time // when one was admitted beyond what is expected to fit

	// How often sessions that waited were admitted lately: seconds in which some waited,
	// and how many were admitted in them, both fading.
	waited, let float64
	at          schemas.Time // until when that is counted; 0 when none waits
}

// New makes an empty book.
func New(cfg Config) *Book {
	cfg.defaults()
	return &Book{cfg: cfg, sessions: map[Key]*session{}, refused: refusals{at: map[Key]schemas.Time{}}, forecast: forecast{cfg: cfg}}
}

// Turn is what a book learns of a turn.
type Turn struct {
	Key    Key
	Branch string
	Tokens int // of its prompt
	Known  int // of them that this session, as far as is known, had before
	Found  int // of them that are in memory
}

// Admitted reports whether a session is admitted.
func (b *Book) Admitted(k Key) bool { return b.sessions[k] != nil }

// Sessions are those that are admitted, with the tokens of their own contexts.
func (b *Book) Sessions() (n, tokens int) { return len(b.sessions), b.tokens }

// Begin notes a turn of an admitted session.
func (b *Book) Begin(now schemas.Time, t Turn) {
	if s := b.sessions[t.Key]; s != nil {
		x := b.set(s, t.Branch, t.Tokens, t.Found)
		s.turns++
		if s.whole && len(s.branches) == 1 {
			b.forecast.grown(s.turns, x.tokens)
		}
		if s.turns > 1 {
			s.once = false
			if s.running == 0 {
				b.pauses.note(int64(now - s.seen))
			}
			if s.turns == 2 && s.whole {
				b.once.note(s.class, true)
			}
		}
		if s.running++; s.running == 1 {
			b.busy++
		}
		s.seen = now
		b.back(s)
	}
}

// back and rest note that a session uses its memory, or that it has not for so long that
// it may have ended.
func (b *Book) back(s *session) {
	if s.away {
		s.away = false
		b.away--
		b.forecast.add(s)
	}
}

func (b *Book) rest(s *session) {
	if !s.away {
		s.away = true
		b.away++
		b.forecast.stale = true
	}
}

// Once tells whether a session that begins with this turn is not expected to come back:
// few did whose first prompt was as long.
func (b *Book) Once(t Turn) bool { return t.Known == 0 && b.once.is(classOf(t)) }

// Space is what a pool has for contexts.
type Space struct {
	Tokens int  // that memory holds; 0 is without bound
	Idle   bool // executors have nothing to do
	Few    int  // so many sessions are admitted without a look at what they may grow to
}

// Admit admits a session with its first turn if its context has room beside those of
// the others, now and while they grow. Memory that is short later costs recomputing,
// executors that have nothing to do cost more: while they do, what is there now counts for
// few sessions, and for more of them what is expected may exceed memory a little. While
// no turn runs there is always room, however large the context.
func (b *Book) Admit(now schemas.Time, t Turn, s Space) bool {
	if b.sessions[t.Key] == nil {
		if !b.fits(now, t, s) {
			return false
		}
		b.Adopt(now, t)
	}
	return true
}

func (b *Book) fits(now schemas.Time, t Turn, s Space) bool {
	active := len(b.sessions) - b.away
	if s.Tokens <= 0 || active == 0 || b.busy == 0 {
		return true
	}
	b.forecast.refresh(b)
	own, final, once, room := max(0, t.Tokens-t.sharedFirst()), b.final(t), b.Once(t), b.cfg.Fill*float64(s.Tokens)
	switch {
	case b.forecast.fits(own, final, once, room):
		return true
	case !s.Idle || b.forecast.at[0]+float64(own) > room:
		return false
	case active < s.Few:
		return true
	case int64(now-b.over) >= b.cfg.PaceNS && b.forecast.fits(own, final, once, b.cfg.Over*room):
		b.over = now
		return true
	}
	return false
}

// Room is how many of the sessions that begin with these turns have room beside those
// that are admitted and beside one another, in this order. It admits none.
func (b *Book) Room(ts []Turn, capacity int) int {
	if capacity <= 0 {
		return len(ts)
	}
	b.forecast.refresh(b)
	at := b.forecast.at
	for n, t := range ts {
		for i := range at {
			x := b.forecast.of(i, 0, b.final(t), max(0, t.Tokens-t.sharedFirst()), false, b.Once(t))
			at[i] += x
			if x > 0 && at[i] > b.cfg.Fill*float64(capacity) && n+min(b.busy, len(b.sessions)-b.away) > 0 {
				return n
			}
		}
	}
	return len(ts)
}

// Adopt admits a session without a look at its room: it was admitted before.
func (b *Book) Adopt(now schemas.Time, t Turn) {
	b.refused.drop(t.Key)
	if b.sessions[t.Key] != nil || len(b.sessions) >= b.cfg.MaxSessions {
		return
	}
	s := &session{key: t.Key, seen: now, whole: t.Known == 0, class: classOf(t)}
	b.sessions[t.Key] = s
	b.set(s, t.Branch, t.Tokens, t.sharedFirst())
	s.final = b.final(t)
	if grow := b.forecast.perTurn(); !s.whole && grow > 0 {
		s.turns = int(float64(s.tokens) / grow) // about as many as its context tells
	}
	s.once = b.Once(t)
	b.forecast.add(s)
}

// final is what a session is assumed to end with, less what it shares. Of one that has a
// context already nobody knows how far it has grown; it counts as it is.
func (b *Book) final(t Turn) int {
	if t.Known > 0 {
		return t.Tokens
	}
	return int(float64(t.Tokens)*b.cfg.Growth) - t.sharedFirst()
}

// sharedFirst is what of a session's first prompt others had computed. Of one whose
// earlier turns were not seen it is not known, and nothing.
func (t *Turn) sharedFirst() int {
	if t.Known > 0 {
		return 0
	}
	return t.Found
}

// set notes the tokens of a branch. What was in memory before a branch began is another
// session's, or another branch's, and counts there.
func (b *Book) set(s *session, name string, tokens, found int) *branch {
	i := slices.IndexFunc(s.branches, func(x branch) bool { return x.name == name })
	if i < 0 {
		if len(s.branches) < maxBranches {
			s.branches = append(s.branches, branch{name: name, shared: min(found, tokens)})
		}
		i = len(s.branches) - 1
	}
	x := &s.branches[i]
	own := max(0, tokens-x.shared)
	s.tokens, b.tokens = s.tokens+own-x.tokens, b.tokens+own-x.tokens
	x.tokens = own
	return x
}

// End notes that a turn has ended; tokens is the context with the answer, 0 when there is none.
func (b *Book) End(now schemas.Time, k Key, name string, tokens int) {
	s := b.sessions[k]
	if s == nil {
		return
	}
	if s.running == 1 {
		b.busy--
	}
	s.running = max(0, s.running-1)
	s.seen = now
	if tokens > 0 {
		b.set(s, name, tokens, 0)
	}
	if s.once && s.running == 0 {
		b.rest(s)
	}
}

// Leave notes that a branch has ended, and with its last one the session.
func (b *Book) Leave(now schemas.Time, k Key, name string) {
	s := b.sessions[k]
	if s == nil {
		return
	}
	i := slices.IndexFunc(s.branches, func(x branch) bool { return x.name == name })
	if i < 0 {
		return
	}
	last := s.tokens
	s.tokens, b.tokens = s.tokens-s.branches[i].tokens, b.tokens-s.branches[i].tokens
	s.branches = slices.Delete(s.branches, i, i+1)
	if len(s.branches) == 0 {
		s.tokens = last
		b.tokens += last
		b.forget(now, s)
	}
}

func (b *Book) forget(now schemas.Time, s *session) {
	b.rest(s)
	b.away--
	if s.running > 0 {
		b.busy--
	}
	if s.turns == 1 && s.whole {
		b.once.note(s.class, false)
	}
	b.tokens -= s.tokens
	delete(b.sessions, s.key)
	b.forecast.gone(now, s)
}

// Tick forgets sessions that were idle for long, and notes which of them may have ended.
// It is to be called once a second or so.
func (b *Book) Tick(now schemas.Time) {
	var idle []*session
	rest := b.pauses.most(b.cfg.RestNS, b.cfg.IdleNS)
	for _, s := range b.sessions {
		switch since := int64(now - s.seen); {
		case s.running > 0:
		case since > b.cfg.IdleNS:
			idle = append(idle, s)
		case since > rest:
			b.rest(s)
		}
	}
	slices.SortFunc(idle, func(x, y *session) int {
		return cmp.Or(cmp.Compare(x.seen, y.seen), cmp.Compare(x.key.Tenant, y.key.Tenant), cmp.Compare(x.key.Session, y.key.Session))
	})
	for _, s := range idle {
		b.forget(s.seen, s)
	}
	b.refused.since(now - forgetNS)
	b.forecast.stale = true
}

// forgetNS is how long a session that was refused, and is not back, is remembered. 30 min.
const forgetNS = 1_800_000_000_000

// Came is when a session that is not admitted first came: one that was refused and
// comes back passes those that came after it did first.
func (b *Book) Came(now schemas.Time, k Key) schemas.Time {
	if at, ok := b.refused.at[k]; ok {
		return at
	}
	return now
}

// Refuse notes that a session was refused and first came then.
func (b *Book) Refuse(k Key, came schemas.Time) {
	if len(b.refused.at) < b.cfg.MaxSessions {
		b.refused.add(k, came)
	}
}

// Progress notes how many sessions that waited were admitted since the last call, and
// how many wait. It is to be called several times a second while some wait.
func (b *Book) Progress(now schemas.Time, admitted, waiting int) {
	if s := float64(now-b.at) / 1e9; b.at > 0 && s >= 0 && s < 5 { // otherwise nobody called for a while

		keep := math.Exp(-s / progressS)
		b.waited, b.let = b.waited*keep+s, b.let*keep+float64(admitted)
	}
	b.at = now
	if waiting == 0 {
		b.at = 0
	}
}

// progressS is the time in seconds over which progress is counted.
const progressS = 60

// Wait is how long a session is expected to wait that has so many in front of it, in
// nanoseconds: from how often such sessions were admitted lately, or, before any was, how
// often sessions ended; 0 while neither is known.
func (b *Book) Wait(now schemas.Time, ahead int) int64 {
	every := b.forecast.every(now)
	if b.let > 0.1 {
		every = b.waited / b.let
	}
	if every <= 0 {
		return 0
	}
	return int64(min(every*float64(ahead+1), 1e6) * 1e9)
}

// Returning is how many refused sessions first came before that time and may come back.
func (b *Book) Returning(before schemas.Time) int { return b.refused.before(before) }

// IdleNS is how long a session stays admitted without a turn.
func (b *Book) IdleNS() int64 { return b.cfg.IdleNS }

// WaitMax is the bound of a wait in nanoseconds.
func (b *Book) WaitMax() int64 { return b.cfg.WaitNS }
