package lineage

import (
	"container/list"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sort"

	infer "github.com/weir-dev/weir/kvtier/branch"
	"github.com/weir-dev/weir/schemas"
)

// state is what a snapshot holds: sessions with their finished turns. Turns in
// work are not in it; they are read again from AGENT.
type state struct {
	V        int                         `json:"v"`
	Sessions []sessionState              `json:"sessions"`
	Format   map[string]schemas.KVFormat `json:"format,omitempty"`
	// Seqs is where reading goes on; Seen is the last sequence of AGENT that was
	// read. They differ while turns are in work.
	Seqs   map[string]uint64 `json:"seqs"`
	Seen   uint64            `json:"seen"`
	Forgot bool              `json:"forgot,omitempty"` // sessions were forgotten
}

type sessionState struct {
	Tenant   string         `json:"tenant"`
	ID       string         `json:"id"`
	Used     int64          `json:"used"`
	Seen     uint64         `json:"seen,omitempty"` // last event that is in the state
	Again    bool           `json:"again,omitempty"`
	Inferred bool           `json:"inferred,omitempty"`
	Ended    bool           `json:"ended,omitempty"`
	Clock    uint64         `json:"clock,omitempty"`
	Last     string         `json:"last,omitempty"`
	Events   map[string]int `json:"events,omitempty"`
	Refs     []string       `json:"refs,omitempty"`
	Gone     []string       `json:"gone,omitempty"`
	// Messages are those of all branches; Logs likewise. Branches name them by index.
	Messages []jsonRaw     `json:"messages,omitempty"`
	Digests  []string      `json:"digests,omitempty"` // of messages whose digest does not follow from them alone
	Logs     []*logbook    `json:"logs,omitempty"`
	Branches []branchState `json:"branches"`
	Turns    []turnRecord  `json:"turns"`
}

type branchState struct {
	ID        string              `json:"id"`
	Parent    string              `json:"parent,omitempty"`
	State     schemas.BranchState `json:"state,omitempty"`
	Why       string              `json:"why,omitempty"`
	Guessed   bool                `json:"guessed,omitempty"`
	Born      infer.Kind          `json:"born,omitempty"`
	Made      uint64              `json:"made,omitempty"`
	Turned    uint64              `json:"turned,omitempty"`
	First     int                 `json:"first,omitempty"`
	Inferred  bool                `json:"inferred,omitempty"`
	Tool      string              `json:"tool,omitempty"`
	Resume    int64               `json:"resume,omitempty"`
	At        int64               `json:"at,omitempty"`
	Fresh     bool                `json:"fresh,omitempty"`
	Tail      string              `json:"tail,omitempty"`
	Known     string              `json:"known,omitempty"`
	Turns     int                 `json:"turns,omitempty"`
	ToolWaits int                 `json:"tool_waits,omitempty"`
	Expect    schemas.MissCause   `json:"expect,omitempty"`
	Heard     string              `json:"heard,omitempty"`
	Said      *saidState          `json:"said,omitempty"`
	Hist      []int               `json:"hist,omitempty"`
	Log       int                 `json:"log,omitempty"` // index plus 1
}

// saidState is an event that waits for the result that it is about.
type saidState struct {
	Subject string         `json:"subject"`
	Seq     uint64         `json:"seq"`
	At      int64          `json:"at"`
	Digest  string         `json:"digest"`
	Event   *schemas.Event `json:"event"`
}

type turnRecord struct {
	ID     string `json:"id"`
	Digest string `json:"digest"`
	Branch string `json:"branch,omitempty"`
	Known  string `json:"known,omitempty"`
	Msgs   int    `json:"msgs,omitempty"`
	Ctx    string `json:"ctx,omitempty"`
}

const stateVersion = 2

// Snapshot appends all finished work as JSON, in a fixed order.
func (l *Lineage) Snapshot(dst []byte) ([]byte, error) {
	b, err := l.Freeze()()
	return append(dst, b...), err
}

// Freeze returns a function that makes a snapshot of the state as it is now. It reads
// only what does not change any more, so it may run beside later steps: the JSON of a
// full state takes seconds.
func (l *Lineage) Freeze() func() ([]byte, error) {
	st := state{V: stateVersion, Format: maps.Clone(l.format), Seqs: l.Seqs(), Seen: max(l.seen, l.seqs["AGENT"]), Forgot: l.forgot}
	st.Sessions = make([]sessionState, 0, len(l.sessions))
	for _, k := range slices.Sorted(maps.Keys(l.sessions)) {
		st.Sessions = append(st.Sessions, l.sessions[k].state())
	}
	l.stale = false
	return func() ([]byte, error) {
		b, err := json.Marshal(st)
		if err != nil {
			return nil, fmt.Errorf("lineage: snapshot: %w", err)
		}
		return b, nil
	}
}

func (s *session) state() sessionState {
	ss := sessionState{
		Tenant: s.tenant, ID: s.id, Used: int64(s.used), Seen: s.seen, Again: s.again, Inferred: s.inferred, Ended: s.ended, Clock: s.clock,
		Events: maps.Clone(s.events), Refs: slices.Sorted(maps.Keys(s.refs)), Gone: s.gone,
	}
	if s.last != nil {
		ss.Last = s.last.id
	}
	at, logs := map[*entry]int{}, map[*logbook]int{}
	for _, n := range sortedBranches(s) {
		b := s.branches[n]
		bs := branchState{
			ID: n, Parent: b.parent, State: b.state, Why: b.why, Guessed: b.guessed, Born: b.born, Made: b.made, Turned: b.turned, First: b.first, Inferred: b.inferred, Tool: b.tool, Resume: b.resume, At: int64(b.at),
			Fresh: b.fresh, Tail: b.tail, Known: b.known, Turns: b.turns, ToolWaits: b.toolWaits, Expect: b.expect, Heard: b.heard,
		}
		for _, e := range b.hist {
			i, ok := at[e]
			if !ok {
				i = len(ss.Messages)
				at[e] = i
				ss.Messages = append(ss.Messages, e.raw)
				d := ""
				if e.toolCall != "" {
					d = hex.EncodeToString(e.dig[:])
				}
				ss.Digests = append(ss.Digests, d)
			}
			bs.Hist = append(bs.Hist, i)
		}
		if b.log != nil {
			if logs[b.log] == 0 {
				ss.Logs = append(ss.Logs, b.log)
				logs[b.log] = len(ss.Logs)
			}
			bs.Log = logs[b.log]
		}
		if m := b.said; m != nil {
			bs.Said = &saidState{Subject: m.Subject, Seq: m.Seq, At: int64(m.At), Digest: m.Digest, Event: m.Event}
		}
		ss.Branches = append(ss.Branches, bs)
	}
	for _, id := range s.order {
		t := s.turns[id]
		if t == nil || !t.stored() {
			continue
		}
		r := turnRecord{ID: id, Digest: t.digest, Branch: t.on, Known: t.known, Msgs: t.msgs}
		if t.msgs > 0 {
			r.Ctx = hex.EncodeToString(t.ctx[:])
		}
		ss.Turns = append(ss.Turns, r)
	}
	return ss
}

// stored: the turn has ended, and its result is where a restart finds it.
func (t *turn) stored() bool { return t.state == turnEnded && t.refusal == nil }

// Seqs returns, by stream, the last sequence whose effect a snapshot taken now
// contains. Reading from the next one on restores everything.
func (l *Lineage) Seqs() map[string]uint64 {
	agent := l.seqs["AGENT"]
	for _, s := range l.sessions {
		if s.pending == 0 && s.owed == 0 {
			continue
		}
		for _, id := range s.order {
			if t := s.turns[id]; t != nil && !t.stored() && t.seq > 0 && t.seq-1 < agent {
				agent = t.seq - 1
			}
		}
	}
	return map[string]uint64{"AGENT": agent, "RESULT": l.seqs["RESULT"]}
}

// Restore replaces the state by a snapshot.
func (l *Lineage) Restore(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	var st state
	if err := json.Unmarshal(b, &st); err != nil {
		return fmt.Errorf("lineage: snapshot: %w", err)
	}
	if st.V != stateVersion {
		return fmt.Errorf("lineage: snapshot has version %d, this build reads %d; remove the SNAP stream to start without it", st.V, stateVersion)
	}
	l.clear()
	l.seen, l.forgot = st.Seen, st.Forgot
	maps.Copy(l.seqs, st.Seqs)
	maps.Copy(l.format, st.Format)
	for i := range st.Sessions {
		if err := l.restore(&st.Sessions[i]); err != nil {
			return fmt.Errorf("lineage: snapshot: session %s of tenant %s: %w", st.Sessions[i].ID, st.Sessions[i].Tenant, err)
		}
	}
	l.restoreDecays()
	l.restoreRepeats()
	return nil
}

func (l *Lineage) restore(ss *sessionState) error {
	s := newSession(ss.Tenant, ss.ID)
	s.used, s.seen, s.again, s.inferred, s.ended, s.clock, s.gone = schemas.Time(ss.Used), ss.Seen, ss.Again, ss.Inferred, ss.Ended, ss.Clock, ss.Gone
	s.events = ss.Events
	l.weigh(s, sessionBytes)
	for _, r := range ss.Refs {
		l.name(s, r)
	}
	messages := make([]*entry, len(ss.Messages))
	for i, raw := range ss.Messages {
		e := s.entry(nil, new(callIndex), raw, nil)
		if i < len(ss.Digests) && ss.Digests[i] != "" {
			if err := readHex(&e.dig, ss.Digests[i]); err != nil {
				return err
			}
		}
		messages[i] = e
	}
	for i, log := range ss.Logs {
		if log == nil {
			return fmt.Errorf("logbook %d is missing", i)
		}
		if err := log.check(); err != nil {
			return fmt.Errorf("logbook %d: %w", i, err)
		}
	}
	for i := range ss.Branches {
		bs := &ss.Branches[i]
		b := &branch{
			id: bs.ID, parent: bs.Parent, state: bs.State, why: bs.Why, guessed: bs.Guessed, born: bs.Born, made: bs.Made, turned: bs.Turned, first: bs.First, inferred: bs.Inferred, tool: bs.Tool, resume: bs.Resume,
			at: schemas.Time(bs.At), fresh: bs.Fresh, tail: bs.Tail, known: bs.Known, turns: bs.Turns, toolWaits: bs.ToolWaits, heard: bs.Heard,
		}
		hist, err := contextOf(bs, messages)
		if err != nil {
			return err
		}
		l.setHist(s, b, hist)
		if bs.Log < 0 || bs.Log > len(ss.Logs) {
			return fmt.Errorf("branch %s has logbook %d of %d", b.id, bs.Log, len(ss.Logs))
		}
		if bs.Log > 0 {
			l.setLog(s, b, ss.Logs[bs.Log-1])
		}
		l.expect(s, b, bs.Expect)
		if m := bs.Said; m != nil {
			b.said = &schemas.Msg{Kind: schemas.KindEvent, Subject: m.Subject, Seq: m.Seq, At: schemas.Time(m.At), Digest: m.Digest, Event: m.Event}
		}
		s.branches[b.id] = b
		l.weigh(s, branchBytes)
	}
	s.last = s.branches[ss.Last]
	for _, r := range ss.Turns {
		t := &turn{id: r.ID, digest: r.Digest, known: r.Known, msgs: r.Msgs, on: r.Branch, state: turnEnded, sess: s}
		if r.Ctx != "" {
			if err := readHex(&t.ctx, r.Ctx); err != nil {
				return err
			}
		}
		if t.known != "" {
			s.known[t.known] = t
		}
		s.turns[r.ID] = t
		s.order = append(s.order, r.ID)
		l.weigh(s, turnBytes)
	}
	l.sessions[sessionKey(s.tenant, s.id)] = s
	return nil
}

// contextOf are the messages of a branch.
func contextOf(bs *branchState, messages []*entry) (hist []*entry, err error) {
	var calls callIndex
	for _, k := range bs.Hist {
		if k < 0 || k >= len(messages) {
			return nil, fmt.Errorf("branch %s has message %d of %d", bs.ID, k, len(messages))
		}
		e := messages[k]
		if e.toolCall != "" && e.refs == 0 {
			e.sum = sumOf(e.raw)
			_, at := calls.find(hist, e.toolCall)
			e.answer(at)
		}
		hist = append(hist, e)
	}
	return hist, nil
}

func readHex(dst *[16]byte, s string) error {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(dst) {
		return fmt.Errorf("%.40q is not a digest of 32 hex digits", s)
	}
	copy(dst[:], b)
	return nil
}

// restoreDecays lists the branches whose state was inferred, oldest first.
func (l *Lineage) restoreDecays() {
	var all []decaying
	for _, k := range slices.Sorted(maps.Keys(l.sessions)) {
		s := l.sessions[k]
		for _, n := range sortedBranches(s) {
			b := s.branches[n]
			if b.inferred && l.cfg.DecayNS > 0 && (b.state == schemas.BranchToolWaiting || b.state == schemas.BranchUserWaiting) {
				all = append(all, decaying{s, b})
			}
		}
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].b.at < all[j].b.at })
	l.decays = list.New()
	for _, d := range all {
		d.b.decay = l.decays.PushBack(d)
	}
}
