package baseline

import (
	"fmt"
	"sort"

	"github.com/weir-dev/weir/schemas"
)

// worker is what a baseline knows of one executor. Fields are exported for snapshots.
type worker struct {
	ID, Pool, Boot string
	Role           schemas.Role // in force, by its heartbeat
	Epoch          uint64       // of the assignment in force
	Want           schemas.Role // by the assignment on its subject
	Seq            uint64       // of that assignment; 0: there was none yet
	Pinned         bool
	Sent           schemas.Role // published and not yet confirmed
	SentAt         schemas.Time
	LastHB         schemas.Time // 0: not heard yet, or told dead
	Size           int
	Slots, Context int
	KVTokens       int
	Report         *schemas.Report
	Samples        int // reports of this life
}

// sentNS is how long an assignment without an answer counts as under way.
const sentNS = 10_000_000_000

// maxWorkers bounds the roster: four cells of 256.
const maxWorkers = 1024

// roster keeps executors, their assignments and reports.
type roster struct {
	cfg     *Config
	Workers map[string]*worker
	Mode    schemas.Mode
	Plans   uint64 // published so far
	Ignored uint64 // messages of executors beyond the bound
}

func newRoster(cfg *Config) roster {
	return roster{cfg: cfg, Workers: map[string]*worker{}, Mode: schemas.ModeAct}
}

func (r *roster) worker(id string) *worker {
	w := r.Workers[id]
	if w == nil {
		if len(r.Workers) >= maxWorkers {
			r.Ignored++
			return nil
		}
		w = &worker{ID: id}
		r.Workers[id] = w
	}
	return w
}

// hear takes in what is the same for every baseline.
func (r *roster) hear(now schemas.Time, in *schemas.Msg) {
	switch in.Kind {
	case schemas.KindHeartbeat:
		r.heartbeat(now, in.Heartbeat)
	case schemas.KindAssignment:
		s, err := schemas.ParseSubject(in.Subject)
		if err != nil || in.Assignment == nil {
			return
		}
		if w := r.worker(s.Get("executor")); w != nil && in.Seq > w.Seq {
			w.Want, w.Seq, w.Pinned, w.Sent = in.Assignment.Role, in.Seq, in.Assignment.Pinned, ""
		}
	case schemas.KindReport:
		if w := r.worker(in.Report.Executor); w != nil {
			w.Report = in.Report
			w.Samples++
		}
	case schemas.KindMode:
		r.Mode = in.Mode.Mode
	case schemas.KindPublished:
		r.published(in)
	default:
		// Load and ticks are read by those who need them.
	}
}

func (r *roster) heartbeat(now schemas.Time, h *schemas.Heartbeat) {
	w := r.worker(h.Executor)
	if w == nil {
		return
	}
	if h.Dead {
		if h.Boot == w.Boot {
			w.LastHB, w.Samples = 0, 0
		}
		return
	}
	if w.Boot != h.Boot {
		w.Boot, w.Samples = h.Boot, 0
	}
	w.Pool, w.Role, w.Epoch, w.LastHB = h.Pool, h.Role, h.Epoch, now
	w.Size, w.Slots, w.Context, w.KVTokens = max(1, h.Size), h.Slots, h.Context, h.KVTokens
	if w.KVTokens == 0 {
		w.KVTokens = h.Slots * h.Context
	}
}

// published takes the answer to an assignment. After a conflict the assignment that
// was first comes in by itself.
func (r *roster) published(in *schemas.Msg) {
	s, err := schemas.ParseSubject(in.Subject)
	if err != nil || s.Root != schemas.RootRole {
		return
	}
	w := r.Workers[s.Get("executor")]
	if w == nil || w.Sent == "" {
		return
	}
	if in.Err == "" && in.Seq > w.Seq {
		w.Want, w.Seq, w.Pinned = w.Sent, in.Seq, false
	}
	w.Sent = ""
}

func (r *roster) alive(now schemas.Time, w *worker) bool {
	return w.LastHB > 0 && int64(now-w.LastHB) <= r.cfg.SilentNS
}

// pools are the pools of known executors, sorted.
func (r *roster) pools() []string {
	seen := map[string]bool{}
	for _, w := range r.Workers {
		if w.Pool != "" {
			seen[w.Pool] = true
		}
	}
	out := make([]string, 0, len(seen))
	for p := range seen {
		out = append(out, p)
	}
	sort.Strings(out)
	return out
}

// in are the executors of a pool, sorted by id.
func (r *roster) in(pool string) []*worker {
	var out []*worker
	for _, w := range r.Workers {
		if w.Pool == pool {
			out = append(out, w)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].ID < out[j].ID })
	return out
}

// start gives roles to the executors of a pool that never had an assignment: the first
// ones by id prefill.
func (r *roster) start(now schemas.Time, pool string, out []schemas.Msg) []schemas.Msg {
	prefills := 0
	ws := r.in(pool)
	for _, w := range ws {
		if w.Want == schemas.RolePrefill || w.Sent == schemas.RolePrefill {
			prefills++
		}
	}
	var changes []schemas.RoleChange
	for _, w := range ws {
		if w.Seq > 0 || w.Epoch > 0 || w.Sent != "" && int64(now-w.SentAt) < sentNS || !r.alive(now, w) {
			continue
		}
		to := schemas.RoleDecode
		switch {
		case r.cfg.Mixed:
			to = schemas.RoleMixed
		case prefills < r.cfg.Prefill:
			to = schemas.RolePrefill
			prefills++
		}
		changes = append(changes, schemas.RoleChange{Executor: w.ID, From: w.Role, To: to, Why: "it has no assignment yet"})
	}
	if len(changes) == 0 {
		return out
	}
	return r.decide(now, pool, "start", fmt.Sprintf("%d executors of %d start", len(changes), len(ws)), schemas.PlanInput{Executors: len(ws)}, changes, out)
}

// decide publishes a decision and, in mode act, its assignments.
func (r *roster) decide(now schemas.Time, pool, rule, reason string, in schemas.PlanInput, changes []schemas.RoleChange, out []schemas.Msg) []schemas.Msg {
	r.Plans++
	id := fmt.Sprintf("%d-%d", r.cfg.Epoch, r.Plans)
	if r.Mode == schemas.ModeAct {
		for _, c := range changes {
			w := r.Workers[c.Executor]
			w.Sent, w.SentAt = c.To, now
			out = append(out, schemas.Msg{
				Kind: schemas.KindAssignment, Subject: schemas.RoleSubject(r.cfg.Cell, w.ID), ExpectSet: true, ExpectSeq: w.Seq, Confirm: true,
				Assignment: &schemas.Assignment{Header: schemas.H(), Role: c.To, Plan: id, By: "planner", Reason: rule + ": " + c.Why},
			})
		}
	}
	return append(out, schemas.Msg{
		Kind: schemas.KindPlan, Subject: schemas.PlanSubject(r.cfg.Cell),
		Plan: &schemas.Plan{
			Header: schemas.H(), ID: id, AtNS: int64(now), Pool: pool, Mode: r.Mode, Policy: r.policy(),
			Inputs: in, Changes: changes, Rule: rule, Reason: reason,
		},
	})
}

func (r *roster) policy() string {
	if r.cfg.Target == "" {
		return "static"
	}
	return "dynamo-like"
}
