package schemas

// Mode is what a planner may do. It is set by people on mode.<cell>, where the last
// message stays, so a pause outlives every restart.
type Mode string

// The modes of a planner.
const (
	ModeAct    Mode = "act"    // publish assignments; also when nobody ever set a mode
	ModeAdvise Mode = "advise" // publish decisions only, and value what acting would have brought
	ModePaused Mode = "paused" // decide nothing; what is unfit or lost is still taken out of work
)

// PlannerMode is the mode in force, on mode.<cell>; its stream sequence orders it.
type PlannerMode struct {
	Header
	Mode   Mode   `json:"mode"`
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
	AtNS   int64  `json:"at_ns"`
}

// Check reports the first bad field.
func (m *PlannerMode) Check() error {
	switch m.Mode {
	case ModeAct, ModeAdvise, ModePaused:
		return nil
	}
	return bad("mode is %q, allowed are act, advise, paused", m.Mode)
}

// Plan is one decision of the planner with its inputs, on plan.<cell>. One is
// published whenever something changes or would change, when the rule that holds the
// planner back changes, and once a minute.
type Plan struct {
	Header
	ID   string `json:"id"` // <epoch of the planner's lease>-<count>
	AtNS int64  `json:"at_ns"`
	Pool string `json:"pool,omitempty"`
	Mode Mode   `json:"mode"`
	// Policy that decided, "weir" or the name of a baseline.
	Policy string    `json:"policy"`
	Inputs PlanInput `json:"inputs"`
	// Candidates are the splits that were valued, the best first; at most MaxCandidates.
	Candidates []Candidate `json:"candidates,omitempty"`
	// Changes are the assignments that this decision publishes, or with Mode advise
	// would publish; empty when roles stay.
	Changes []RoleChange `json:"changes,omitempty"`
	// Rule names what decided, for programs: gain, dead_band, dwell, in_flight,
	// unpressed, stale, floor, start, unfit, fit, pinned, paused, …; the planner
	// documents them.
	Rule   string `json:"rule"`
	Reason string `json:"reason"` // one sentence for people, with the figures
	// Advised is what acting on earlier advice would have brought so far, in worker
	// seconds; only with Mode advise.
	Advised float64 `json:"advised,omitempty"`
}

// MaxCandidates bounds Plan.Candidates.
const MaxCandidates = 32

// Check reports the first bad field.
func (p *Plan) Check() error {
	if len(p.Candidates) > MaxCandidates {
		return bad("%d candidates, at most %d", len(p.Candidates), MaxCandidates)
	}
	return CheckID("id", p.ID)
}

// PlanInput is what a decision was made from. Work is in worker seconds: the time
// that one executor of size 1 needs for it.
type PlanInput struct {
	Executors int     `json:"executors"` // alive, fit and not pinned to standby
	Size      float64 `json:"size"`      // of all of them together
	Prefill   float64 `json:"prefill"`   // size that prefills now, draining ones under their new role
	Decode    float64 `json:"decode"`
	Mixed     float64 `json:"mixed,omitempty"`
	// DemandP and DemandD are the smoothed work that arrives per second, ForecastP and
	// ForecastD what is expected over the dwell, BacklogP and BacklogD what waits or runs.
	DemandP   float64 `json:"demand_p"`
	DemandD   float64 `json:"demand_d"`
	ForecastP float64 `json:"forecast_p"`
	ForecastD float64 `json:"forecast_d"`
	BacklogP  float64 `json:"backlog_p"`
	BacklogD  float64 `json:"backlog_d"`
	BusyP     float64 `json:"busy_p"` // share of the time in which prefill executors computed
	BusyD     float64 `json:"busy_d"`
	KV        float64 `json:"kv"`        // share of the decode side's KV memory in use
	ReportMS  int64   `json:"report_ms"` // age of the oldest report
	LoadMS    int64   `json:"load_ms"`   // age of the router's load
	InFlight  int     `json:"in_flight"` // role changes under way
	SinceMS   int64   `json:"since_ms"`  // since the last change of this pool
	CostMS    float64 `json:"cost_ms"`   // measured cost of one flip
	Confident bool    `json:"confident"` // enough samples
}

// Candidate is one split and what it is predicted to bring.
type Candidate struct {
	Prefill int `json:"p"` // executors that prefill
	Decode  int `json:"d"`
	Flips   int `json:"flips"` // changes that lead there
	// Value is the work predicted to be done over the dwell, in worker seconds, less
	// Cost, that of the flips.
	Value float64 `json:"value"`
	Cost  float64 `json:"cost"`
	Why   string  `json:"why,omitempty"` // the bound that holds it back: prefill, decode, kv, floor
}

// RoleChange is one assignment of a decision.
type RoleChange struct {
	Executor string      `json:"executor"`
	From     Role        `json:"from"`
	To       Role        `json:"to"`
	Classes  []SizeClass `json:"classes,omitempty"`
	Absorb   SizeClass   `json:"absorb,omitempty"`
	Why      string      `json:"why,omitempty"` // why this executor
}

// Load is what the router of a cell sees, on load.<cell>, every 500 ms and kept as the
// last one. Totals count since this router started: Router tells one life from another.
type Load struct {
	Header
	AtNS   int64      `json:"at_ns"`
	Router uint64     `json:"router"` // epoch of its lease
	Pools  []PoolLoad `json:"pools,omitempty"`
}

// MaxPools bounds Load.Pools.
const MaxPools = 64

// Check reports the first bad field.
func (l *Load) Check() error {
	if len(l.Pools) > MaxPools {
		return bad("%d pools, at most %d", len(l.Pools), MaxPools)
	}
	return nil
}

// PoolLoad is the load of one pool.
type PoolLoad struct {
	Pool string `json:"pool"`

	// Totals of turns that became ready: how many, tokens of their prompts, tokens to
	// be computed, and the sum of computed·(cached + computed/2), which attention costs.
	Turns     uint64  `json:"turns"`
	Prompt    uint64  `json:"prompt"`
	Uncached  uint64  `json:"uncached"`
	Attention float64 `json:"attention"`
	// Totals of turns that ended: how many, tokens generated, and the sum over them of
	// generated·(prompt + generated/2), the context that decode steps read.
	Ended   uint64  `json:"ended"`
	Output  uint64  `json:"output"`
	Context float64 `json:"context"`
	// Squares is the sum of generated² over the turns that ended: it tells a mix of
	// short and long answers from answers of one length.
	Squares  float64 `json:"squares,omitempty"`
	Absorbed uint64  `json:"absorbed,omitempty"` // computed on a decode executor although others prefill, to save time
	Refused  uint64  `json:"refused,omitempty"`  // refused for want of room

	// Now. WaitPrefill turns wait to be prefilled (WaitTokens to compute), WaitDecode
	// wait for a decode slot, Held wait because their session is not admitted; those that
	// wait for nothing but prefill to catch up count as WaitPrefill.
	WaitPrefill int   `json:"wait_prefill"`
	WaitTokens  int   `json:"wait_tokens"`
	WaitDecode  int   `json:"wait_decode"`
	Held        int   `json:"held,omitempty"`
	OldestNS    int64 `json:"oldest_ns,omitempty"` // the longest wait of those that wait now
	// Prefilling and decoding: turns placed, tokens that they compute or hold.
	Prefilling    int `json:"prefilling"`
	PrefillTokens int `json:"prefill_tokens"`
	Decoding      int `json:"decoding"`
	DecodeTokens  int `json:"decode_tokens"` // of their prompts
	Sessions      int `json:"sessions"`      // admitted, with the contexts in SessionTokens
	SessionTokens int `json:"session_tokens"`
}
