package lineage

import (
	"sort"

	"github.com/weir-dev/weir/schemas"
)

// Model is a pool as lineage sees it.
type Model struct {
	Name     string   // pool, and the model's name towards callers
	Aliases  []string // other names that mean this model
	Digest   string   // of the weights
	Vocab    string   // tokenizer implementation and vocabulary
	Template string   // digest of the chat template
	Context  int      // tokens per sequence
	Size     int      // number of token ids
}

// Config of the lineage actor. Durations are nanoseconds.
type Config struct {
	Cell   string
	Models []Model // the first one is the default
	// DeadlineNS is the time a turn without its own deadline may take. 10 min.
	DeadlineNS int64
	// MaxQueue bounds turns that wait for an earlier turn of their branch. 64.
	MaxQueue int
	// MaxTurns bounds remembered turn ids per session; older ones are looked up in
	// RESULT. 4,096.
	MaxTurns int
	// MaxBranches bounds branches per session. 16,384.
	MaxBranches int
	// MaxTokens bounds the tokens of all sessions together; beyond it, idle
	// sessions are forgotten, oldest first, and must be sent in full. A snapshot
	// takes about 20 bytes a token and may have 256 MiB (jsrun.MaxState). 12 Mi.
	MaxTokens int
	// MaxSessions bounds remembered sessions. 65,536.
	MaxSessions int
}

func (c *Config) defaults() {
	set(&c.DeadlineNS, 600_000_000_000)
	set(&c.MaxQueue, 64)
	set(&c.MaxTurns, 4096)
	set(&c.MaxBranches, 16384)
	set(&c.MaxTokens, 12<<20)
	set(&c.MaxSessions, 65536)
}

func set[T int | int64](p *T, v T) {
	if *p == 0 {
		*p = v
	}
}

// session is one agent task.
type session struct {
	tenant, id string
	branches   map[string]*branch
	turns      map[string]*turn
	order      []string     // of turns, oldest first
	used       schemas.Time // last turn or result
	pending    int          // turns without a result
	again      bool         // began after sessions were forgotten: its ids may be old ones
	owed       int          // refusals that the server does not have yet
	tokens     int          // in all logbooks
}

// branch is one line of context of a session.
type branch struct {
	id    string
	state schemas.BranchState
	log   *logbook
	// tail is the turn whose result the log ends with.
	tail string
	busy *turn   // the turn that renders or runs
	wait []*turn // turns that came in meanwhile
}

type turnState uint8

const (
	turnWaiting   turnState = iota // for an earlier turn of the branch
	turnLooking                    // is there a result, or a READY message, from before?
	turnRendering                  // at the tokenizer
	turnReady                      // READY is published
	turnEnded                      // a result exists
)

// turn is one model call.
type turn struct {
	id, digest string
	seq        uint64
	state      turnState
	branch     *branch
	sess       *session
	msg        *schemas.Turn
	model      *Model
	at         schemas.Time // stored in AGENT
	trace      schemas.Trace
	base       *logbook // what a delta continues, or what marks were offered
	skip       int      // marks not offered
	messages   []jsonRaw
	log        *logbook // the prompt, once rendered
	result     *schemas.Result
	published  bool // READY existed before this process
	cancelled  bool
	known      string // digest of the result, by which later turns refer to it
	looked     bool
	askAgain   bool            // a question outside was refused for lack of room
	ready      *schemas.Ready  // until the server has it
	refusal    *schemas.Result // likewise
}

// Lineage is the actor.
type Lineage struct {
	cfg      Config
	sessions map[string]*session // by tenant and id
	asks     map[uint64]*turn
	opID     uint64
	format   map[string]schemas.KVFormat // by pool, from heartbeats
	nodes    map[string]bool             // tier nodes, from heartbeats
	started  schemas.Time
	seqs     map[string]uint64 // last sequence seen, by stream
	seen     uint64            // last sequence of AGENT before the restart
	forgot   bool              // sessions were forgotten at some time
	tokens   int
	retries  []*turn      // whose publish a stream refused
	retryAt  schemas.Time // when they are published again
	counts   Counts
}

// Counts are totals since the start.
type Counts struct {
	Admitted, Refused, Duplicates, Conflicts, Forgotten uint64
	// Spliced counts prompt tokens taken from logbooks, Tokenized those that the
	// tokenizer made.
	Spliced, Tokenized uint64
}

// New makes an actor that knows no session.
func New(cfg Config) *Lineage {
	cfg.defaults()
	return &Lineage{
		cfg: cfg, sessions: map[string]*session{}, asks: map[uint64]*turn{}, format: map[string]schemas.KVFormat{},
		nodes: map[string]bool{}, seqs: map[string]uint64{}, retryAt: schemas.Never,
	}
}

var _ schemas.Actor = (*Lineage)(nil)

// Counts returns the totals since the start.
func (l *Lineage) Counts() Counts { return l.counts }

// Step handles one message.
func (l *Lineage) Step(now schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
	if l.started == 0 {
		l.started = now
	}
	switch in.Kind {
	case schemas.KindTurn:
		l.saw("AGENT", in.Seq)
		out = l.turnIn(now, in, out)
	case schemas.KindEvent:
		l.saw("AGENT", in.Seq)
		if in.Seq > l.seen || isCancel(in.Subject) {
			out = l.event(now, in, out)
		}
	case schemas.KindResult:
		l.saw("RESULT", in.Seq)
		out = l.resultIn(now, in.Result, out)
	case schemas.KindHeartbeat:
		if h := in.Heartbeat; !h.Dead && h.Format.Engine != "" {
			l.format[h.Pool] = h.Format
			l.nodes[h.Node] = true
		}
	case schemas.KindTokensRequest:
		out = l.tokensOut(in, out)
	case schemas.KindOpDone:
		out = l.opDone(now, in.OpDone, out)
	case schemas.KindPublished:
		out = l.published(now, in, out)
	case schemas.KindTick:
		out = l.retry(now, out)
	default:
		// Nothing else concerns lineage.
	}
	return out
}

func (l *Lineage) saw(stream string, seq uint64) { l.seqs[stream] = max(l.seqs[stream], seq) }

// Next is when a refused publish is tried again; otherwise lineage acts on
// messages only.
func (l *Lineage) Next() schemas.Time { return l.retryAt }

func sessionKey(tenant, id string) string { return tenant + "." + id }

func (l *Lineage) session(tenant, id string, now schemas.Time) *session {
	key := sessionKey(tenant, id)
	s := l.sessions[key]
	if s == nil {
		if len(l.sessions) >= l.cfg.MaxSessions || l.tokens >= l.cfg.MaxTokens {
			l.makeRoom(nil)
		}
		s = &session{tenant: tenant, id: id, again: l.forgot, branches: map[string]*branch{}, turns: map[string]*turn{}}
		l.sessions[key] = s
	}
	s.used = now
	return s
}

// makeRoom forgets idle sessions but keep, the least recently used first. It
// forgets a sixteenth at once, so that the sort is rare.
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
		l.tokens -= s.tokens
		l.counts.Forgotten++
		l.forgot = true
		delete(l.sessions, sessionKey(s.tenant, s.id))
	}
}

// setLog replaces a branch's context and keeps the count of tokens.
func (l *Lineage) setLog(s *session, b *branch, log *logbook) {
	d := len(log.Tokens)
	if b.log != nil {
		d -= len(b.log.Tokens)
	}
	b.log = log
	s.tokens += d
	l.tokens += d
}

// model finds a model by name; "" is the default.
func (l *Lineage) model(name string) *Model {
	for i := range l.cfg.Models {
		m := &l.cfg.Models[i]
		if name == "" || name == m.Name {
			return m
		}
		for _, a := range m.Aliases {
			if a == name {
				return m
			}
		}
	}
	return nil
}

// tokensOut answers a token range of a prompt in work.
func (l *Lineage) tokensOut(in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
	q := in.TokensReq
	rep := &schemas.TokensReply{Header: schemas.H(), From: q.From}
	var log *logbook
	if s := l.sessions[sessionKey(q.Tenant, q.Session)]; s != nil {
		if t := s.turns[q.Turn]; t != nil {
			log = t.log
		}
	}
	switch {
	case log == nil:
		rep.Error = "the turn is not known here"
	case q.To > len(log.Tokens):
		rep.Error = "the range is longer than the prompt"
	default:
		rep.Tokens = log.Tokens[q.From:q.To]
	}
	return append(out, schemas.Msg{Kind: schemas.KindTokensReply, Subject: in.Reply, Core: true, TokensRep: rep})
}
