package lineage

import (
	"encoding/json"
	"fmt"
	"sort"

	"github.com/weir-dev/weir/schemas"
)

// state is what a snapshot holds: sessions with their finished turns. Turns in
// work are not in it; they are read again from AGENT.
type state struct {
	V        int                         `json:"v"`
	Sessions []sessionState              `json:"sessions"`
	Format   map[string]schemas.KVFormat `json:"format,omitempty"`
	// Seqs is where reading goes on; Seen is the last sequence of AGENT whose events
	// are in the state. They differ while turns are in work.
	Seqs   map[string]uint64 `json:"seqs"`
	Seen   uint64            `json:"seen"`
	Forgot bool              `json:"forgot,omitempty"` // sessions were forgotten
}

type sessionState struct {
	Tenant   string        `json:"tenant"`
	ID       string        `json:"id"`
	Used     int64         `json:"used"`
	Again    bool          `json:"again,omitempty"`
	Branches []branchState `json:"branches"`
	Turns    []turnRecord  `json:"turns"`
}

type branchState struct {
	ID    string              `json:"id"`
	State schemas.BranchState `json:"state,omitempty"`
	Tail  string              `json:"tail,omitempty"`
	Log   *logbook            `json:"log,omitempty"`
}

type turnRecord struct {
	ID       string    `json:"id"`
	Digest   string    `json:"digest"`
	Branch   string    `json:"branch,omitempty"`
	Known    string    `json:"known,omitempty"`
	Messages []jsonRaw `json:"messages,omitempty"`
}

const stateVersion = 1

// Snapshot appends all finished work as JSON, in a fixed order.
func (l *Lineage) Snapshot(dst []byte) ([]byte, error) {
	st := state{V: stateVersion, Format: l.format, Seqs: l.Seqs(), Seen: max(l.seen, l.seqs["AGENT"]), Forgot: l.forgot}
	keys := make([]string, 0, len(l.sessions))
	for k := range l.sessions {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		s := l.sessions[k]
		ss := sessionState{Tenant: s.tenant, ID: s.id, Used: int64(s.used), Again: s.again}
		for _, n := range sortedBranches(s) {
			b := s.branches[n]
			ss.Branches = append(ss.Branches, branchState{ID: n, State: b.state, Tail: b.tail, Log: b.log})
		}
		for _, id := range s.order {
			t := s.turns[id]
			if t == nil || !t.stored() {
				continue
			}
			r := turnRecord{ID: id, Digest: t.digest, Known: t.known, Messages: t.messages}
			if t.branch != nil {
				r.Branch = t.branch.id
			}
			ss.Turns = append(ss.Turns, r)
		}
		st.Sessions = append(st.Sessions, ss)
	}
	b, err := json.Marshal(st)
	if err != nil {
		return nil, fmt.Errorf("lineage: snapshot: %w", err)
	}
	return append(dst, b...), nil
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
	l.sessions, l.tokens = map[string]*session{}, 0
	l.seqs, l.seen, l.forgot = map[string]uint64{}, st.Seen, st.Forgot
	for name, seq := range st.Seqs {
		l.seqs[name] = seq
	}
	for pool, f := range st.Format {
		l.format[pool] = f
	}
	for _, ss := range st.Sessions {
		s := &session{tenant: ss.Tenant, id: ss.ID, branches: map[string]*branch{}, turns: map[string]*turn{}, used: schemas.Time(ss.Used), again: ss.Again}
		for _, bs := range ss.Branches {
			b := &branch{id: bs.ID, state: bs.State, tail: bs.Tail}
			if bs.Log != nil {
				l.setLog(s, b, bs.Log)
			}
			s.branches[bs.ID] = b
		}
		for _, r := range ss.Turns {
			s.turns[r.ID] = &turn{id: r.ID, digest: r.Digest, known: r.Known, messages: r.Messages, state: turnEnded, sess: s, branch: s.branches[r.Branch]}
			s.order = append(s.order, r.ID)
		}
		l.sessions[sessionKey(s.tenant, s.id)] = s
	}
	return nil
}
