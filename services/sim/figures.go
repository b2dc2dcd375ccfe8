package sim

// Dist sums up a sample.
type Dist struct {
	N    int     `json:"n"`
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
}

// Totals are the figures of a set of turns: of the run, of one class, of one phase.
// Turns count that ended within the counted time.
type Totals struct {
	Turns     int     `json:"turns"`
	Failed    int     `json:"failed,omitempty"`
	TurnsPerS float64 `json:"turns_per_s"`
	TokPerS   float64 `json:"out_tok_per_s"`
	E2E       Dist    `json:"e2e_s"`  // ready to result, seconds
	TTFT      Dist    `json:"ttft_s"` // ready to first token, seconds
	TPOT      Dist    `json:"tpot_s"` // seconds per token behind the first
	// Goodput counts turns per second with TTFT ≤ 2 s and TPOT ≤ 25 ms.
	Goodput float64 `json:"goodput_per_s"`
	// HitRate is the share of tokens that a session had before and that were found.
	HitRate float64 `json:"hit_rate"`
	// Recompute is prompt tokens computed over prompt tokens that were new.
	Recompute float64 `json:"recompute"`
	Computed  int64   `json:"computed_tokens"`
	New       int64   `json:"new_tokens"`
	Prompt    int64   `json:"prompt_tokens"`
	Output    int64   `json:"output_tokens"`
}

// Figures of one run. Everything in it follows from the arguments alone.
type Figures struct {
	Scenario string  `json:"scenario"`
	System   string  `json:"system"`
	Model    string  `json:"model"` // id of the calibration
	Derate   float64 `json:"derate"`
	Load     float64 `json:"load"`
	Seed     uint64  `json:"seed"`
	PeriodS  float64 `json:"period_s,omitempty"`

	MakespanS float64 `json:"makespan_s"` // to the last result of a fixed work; the duration of a run by time
	CountedS  float64 `json:"counted_s"`  // the part of it that the figures are over
	Totals
	Classes map[string]*Totals `json:"classes"`
	Phases  []*Totals          `json:"phases,omitempty"` // by the phase that a session belongs to
	// Jain is the fairness index over sessions of the tokens served per second of life.
	Jain float64 `json:"jain"`

	Flips     int      `json:"flips"`
	FlipMS    Dist     `json:"flip_ms"`
	Restarts  int      `json:"restarts,omitempty"`
	Handed    int      `json:"handed"`           // attempts beyond the first
	Absorbed  uint64   `json:"absorbed"`         // by the router's load
	Refused   int      `json:"refused"`          // turns refused for want of room, tried again
	Splits    []Split  `json:"splits"`           // the roles over time
	BusyP     float64  `json:"busy_p"`           // share of the time in which prefill roles computed
	BusyD     float64  `json:"busy_d"`           // likewise of decode roles
	TierUsed  float64  `json:"tier_used"`        // share of the host memory at the end
	Violation []string `json:"-"`                // broken invariants; a run with any is an error
	Steps     uint64   `json:"steps"`            // messages that actors handled
	Events    uint64   `json:"events"`           // of the simulation
	Extrap    int      `json:"extrap,omitempty"` // device steps outside the calibrated range
}

// Split is the roles from a time on.
type Split struct {
	AtS     float64 `json:"at_s"`
	Prefill int     `json:"p"`
	Decode  int     `json:"d"`
	Mixed   int     `json:"m,omitempty"`
	Away    int     `json:"away,omitempty"` // draining, restarting or standing by
}
