package lineage

import (
	"container/list"

	"github.com/weir-dev/weir/kvtier"
	infer "github.com/weir-dev/weir/kvtier/branch"
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
	// DecayNS is how long a branch is believed to wait for a tool or a user when
	// nobody said so. Negative is for ever. 1 h: 99.6 % of the blocks that agents use
	// again are used within an hour.
	DecayNS int64
	// RepeatNS is how often tier nodes are told again where a live branch stands: one
	// that was started anew, or missed it, then knows. Negative is never. 1 min: the
	// stream keeps what was said for two.
	RepeatNS int64
	// KeepNS is how long a session without a new turn is remembered; 0 is as long as
	// there is room. See idle.go.
	KeepNS int64
	// MaxQueue bounds turns that wait for an earlier turn of their branch, and what
	// waits in a session's line. 64.
	MaxQueue int
	// MaxTurns bounds remembered turn ids per session; older ones are looked up in
	// RESULT. 4,096.
	MaxTurns int
	// MaxBranches bounds branches per session. 16,384.
	MaxBranches int
	// MaxTokens bounds the tokens of all sessions together; beyond it, idle
	// sessions are forgotten, oldest first, and must be sent in full. A snapshot
	// takes about 7 bytes a token beside the messages and may have 256 MiB
	// (jsrun.MaxState). 12 Mi.
	MaxTokens int
	// MaxBytes bounds the stored messages of all sessions, with what is remembered of
	// turns and branches, in the same way. 128 MiB: that is what they take in a snapshot.
	MaxBytes int
	// MaxSessions bounds remembered sessions. 65,536.
	MaxSessions int
}

func (c *Config) defaults() {
	set(&c.DeadlineNS, 600_000_000_000)
	set(&c.DecayNS, 3_600_000_000_000)
	set(&c.RepeatNS, 60_000_000_000)
	set(&c.MaxQueue, 64)
	set(&c.MaxTurns, 4096)
	set(&c.MaxBranches, 16384)
	set(&c.MaxTokens, 12<<20)
	set(&c.MaxBytes, 128<<20)
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
	known      map[string]*turn    // by the digest of their results
	stored     map[[16]byte]*entry // messages in contexts, by their bytes
	order      []string            // of turns, oldest first
	line       []item              // what waits to be read
	advancing  bool
	releasing  bool
	holds      int           // turns that wait for a result
	work       []*branch     // with a turn in work
	trees      *infer.Forest // nil until a turn does not say where it belongs
	last       *branch       // that a turn ended on
	used       schemas.Time  // last turn or result
	pending    int           // turns without a result
	owed       int           // refusals that the server does not have yet
	tokens     int           // in all logbooks
	bytes      int           // of all messages, turns and branches
	clock      uint64        // counts turns and new branches
	expecting  int           // branches whose context is to be replaced
	read, seen uint64        // last event that came, and that is in the state
	again      bool          // began after sessions were forgotten: its ids may be old ones
	inferred   bool          // the gateway chose it from the content
	ended      bool          // its agent said so
	events     map[string]int
	refs       map[string]bool // payload objects that it named
	gone       []string        // last chain keys of contexts that were replaced
}

// branch is one line of context of a session.
type branch struct {
	id, parent string
	state      schemas.BranchState
	why        string       // what the state follows from
	guessed    bool         // nobody said that there is such a branch
	born       infer.Kind   // why it was made
	made       uint64       // when, by the session's clock
	turned     uint64       // its last turn, likewise
	first      int          // messages in its first prompt
	inferred   bool         // nobody said that it is in this state
	tool       string       // that it waits for
	resume     int64        // when it is expected back, Unix time in ns
	at         schemas.Time // of the last change
	log        *logbook
	hist       []*entry // the messages of its context, the last answer included
	fresh      bool     // the context is still that of its parent
	// tail is the turn whose result the context ends with, known the digest by which
	// turns name that end.
	tail, known string
	turns       int
	toolWaits   int
	expect      schemas.MissCause // how the next turn is said to replace the context
	said        *schemas.Msg      // an event that came before the result that it is about
	heard       string            // kind and digest of the last event since the last turn
	busy        *turn             // the turn that renders or runs
	wait        []*turn           // turns that came in meanwhile
	decay       *list.Element     // in Lineage.decays
	repeat      *list.Element     // in Lineage.repeats
	keep        int               // see schemas.BranchChange
	toldAt      schemas.Time      // when the tier nodes were told last where it stands
}

func (b *branch) idle() bool { return b.busy == nil && len(b.wait) == 0 }

type turnState uint8

const (
	turnWaiting   turnState = iota // for an earlier turn of the branch, or of the session
	turnLooking                    // is there a result, or a READY message, from before?
	turnRendering                  // at the tokenizer, or its body is fetched
	turnReady                      // READY is published
	turnEnded                      // a result exists
)

// turn is one model call.
type turn struct {
	id, digest string
	seq        uint64
	state      turnState
	branch     *branch
	on         string // the branch's name
	sess       *session
	msg        *schemas.Turn
	model      *Model
	at         schemas.Time // stored in AGENT
	trace      schemas.Trace

	// Where it belongs.
	inferred bool // found out from its content
	kind     infer.Kind
	items    []*entry // its own messages
	entries  []*entry // the whole context that it is rendered from
	old      []*entry // the context of the branch before
	kept     int      // leading messages of both
	listed   bool     // the inference knows its context
	shared   int      // tokens that had been computed when it was rendered
	parted   bool     // it replaces a part of the context
	why      string   // what it is to the branch, as BranchChange says it

	base *logbook // what a delta continues, or what marks were offered
	keys schemas.KeySpec
	skip int      // oldest marks not offered
	asks int      // marks offered
	at0  int      // mark that matched, or -1
	log  *logbook // the prompt, once rendered

	result    *schemas.Result
	recorded  string // branch on which an earlier life had made it ready
	published bool   // READY existed before this process
	cancelled bool
	known     string   // digest of the result, by which later turns refer to it
	msgs      int      // messages in the context up to its answer
	ctx       [16]byte // which
	waited    bool     // for an answer that may have been on its way here
	asked     bool     // it is being looked up
	looked    bool
	askAgain  bool            // a question outside was refused for lack of room
	ready     *schemas.Ready  // until the server has it
	refusal   *schemas.Result // likewise
}

// Lineage is the actor.
type Lineage struct {
	cfg      Config
	sessions map[string]*session // by tenant and id
	asks     map[uint64]*turn
	opID     uint64
	format   map[string]schemas.KVFormat // by pool, from heartbeats
	roots    map[schemas.KeySpec]kvtier.Key
	nodes    map[string]bool // tier nodes, from heartbeats
	started  schemas.Time
	seqs     map[string]uint64 // last sequence seen, by stream
	seen     uint64            // last sequence of AGENT before the restart
	forgot   bool              // sessions were forgotten at some time
	stale    bool              // the last snapshot holds what was asked to be forgotten
	tokens   int
	bytes    int
	refs     map[string]int   // sessions that name a payload object
	decays   *list.List       // branches whose state was inferred, oldest first
	repeats  *list.List       // live branches, by when the tier nodes were told of them
	repeatAt schemas.Time     // not before then
	drops    map[dropKey]bool // templates that leave out reasoning
	holds    []held           // turns that wait for a result, oldest first
	dead     deadRing
	sweepAt  schemas.Time // when idle sessions are looked for
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
	// Rewrites counts answers that a template gave back otherwise than they were
	// generated.
	Rewrites Rewrites
	// Events counts what agents said of branches and that was taken in, Repeated
	// what was said twice, Dropped what had no effect, by reason.
	Events, Repeated uint64
	Dropped          Dropped
	// Decayed counts states that were inferred and given up, Revived ended branches
	// that went on, Cooled branches whose tokens were forgotten.
	Decayed, Revived, Cooled uint64
}

// Rewrites counts answers by how a template changed them, see schemas.RewriteCause.
type Rewrites struct{ Reasoning, Text, Calls, Space uint64 }

func (r *Rewrites) add(c schemas.RewriteCause) {
	switch c {
	case schemas.RewriteReasoning:
		r.Reasoning++
	case schemas.RewriteText:
		r.Text++
	case schemas.RewriteCalls:
		r.Calls++
	case schemas.RewriteSpace:
		r.Space++
	}
}

// New makes an actor that knows no session.
func New(cfg Config) *Lineage {
	cfg.defaults()
	l := &Lineage{cfg: cfg, format: map[string]schemas.KVFormat{}, nodes: map[string]bool{}, retryAt: schemas.Never}
	l.clear()
	return l
}

// clear forgets all sessions.
func (l *Lineage) clear() {
	l.sessions, l.asks, l.refs = map[string]*session{}, map[uint64]*turn{}, map[string]int{}
	l.roots, l.seqs, l.decays = map[schemas.KeySpec]kvtier.Key{}, map[string]uint64{}, list.New()
	l.repeats, l.repeatAt, l.drops = list.New(), 0, map[dropKey]bool{}
	l.tokens, l.bytes, l.holds = 0, 0, nil
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
		out = l.eventIn(now, in, out)
	case schemas.KindResult:
		l.saw("RESULT", in.Seq)
		out = l.resultIn(now, in.Result, out)
	case schemas.KindHeartbeat:
		l.heartbeat(in.Heartbeat)
	case schemas.KindTokensRequest:
		out = l.tokensOut(in, out)
	case schemas.KindSessionRequest:
		out = l.sessionOut(in, out)
	case schemas.KindOpDone:
		out = l.opDone(now, in.OpDone, out)
	case schemas.KindPublished:
		out = l.published(now, in, out)
	case schemas.KindTick:
		out = l.retry(now, out)
		out = l.overdue(now, out)
		out = l.decayed(now, out)
		out = l.repeated(now, out)
		l.sweep(now)
	default:
		// Nothing else concerns lineage.
	}
	return out
}

func (l *Lineage) saw(stream string, seq uint64) { l.seqs[stream] = max(l.seqs[stream], seq) }

func (l *Lineage) heartbeat(h *schemas.Heartbeat) {
	if h.Dead || h.Format.Engine == "" {
		return
	}
	if l.format[h.Pool] != h.Format {
		l.format[h.Pool] = h.Format
		clear(l.roots)
	}
	l.nodes[h.Node] = true
}

// Next is when a refused publish is tried again, a turn was held long enough, an
// inferred state decays, tier nodes are told again, or idle sessions are looked for; otherwise lineage acts on
// messages only.
func (l *Lineage) Next() schemas.Time {
	return min(l.retryAt, l.nextHold(), l.nextDecay(), l.nextRepeat(), l.nextSweep())
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
