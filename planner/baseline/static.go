package baseline

import (
	"encoding/json"

	"github.com/weir-dev/weir/schemas"
)

// Static gives executors their first role and never another one.
type Static struct {
	cfg  Config
	r    roster
	next schemas.Time
}

// NewStatic makes a planner that keeps a fixed split of cfg.Prefill executors that
// prefill, or with cfg.Mixed a pool in which all do both.
func NewStatic(cfg Config) *Static {
	cfg.defaults()
	cfg.Target = "" // it has none
	s := &Static{cfg: cfg}
	s.r = newRoster(&s.cfg)
	return s
}

var _ schemas.Actor = (*Static)(nil)

// Step handles one message.
func (s *Static) Step(now schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
	s.r.hear(now, in)
	if s.next == 0 {
		s.next = now + schemas.Time(s.cfg.TickNS) // so that the assignments that exist are read first
	}
	if now < s.next {
		return out
	}
	s.next = now + schemas.Time(s.cfg.TickNS)
	if s.r.Mode == schemas.ModePaused {
		return out
	}
	for _, pool := range s.r.pools() {
		out = s.r.start(now, pool, out)
	}
	return out
}

// Next is the time of the next look at executors without an assignment.
func (s *Static) Next() schemas.Time { return s.next }

type staticState struct {
	Roster roster
	Next   schemas.Time
}

// Snapshot appends the state as JSON.
func (s *Static) Snapshot(dst []byte) ([]byte, error) {
	b, err := json.Marshal(staticState{s.r, s.next})
	return append(dst, b...), err
}

// Restore continues from a snapshot.
func (s *Static) Restore(b []byte) error {
	st := staticState{Roster: newRoster(&s.cfg)}
	if err := json.Unmarshal(b, &st); err != nil {
		return err
	}
	s.r, s.next = st.Roster, st.Next
	s.r.cfg = &s.cfg
	return nil
}
