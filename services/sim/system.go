package sim

import (
	"context"
	"io"
	"time"

	"github.com/weir-dev/weir/planner/route"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/schemas/calib"
)

// Tier says which host memory keeps KV beside the engines'.
type Tier string

// The tiers.
const (
	TierShared  Tier = "shared"  // one memory for all executors; another tray's part comes over host_shared
	TierPrivate Tier = "private" // each executor has its own, and gives nothing to others
	TierNone    Tier = "none"    // engines' memory only
)

// Order says what leaves the host memory first.
type Order string

// The orders.
const (
	OrderWeir Order = "weir" // dead, idle, waiting by kvtier/retain, each from its end on
	OrderLRU  Order = "lru"  // least recently used, each from its end on
)

// System is one of the systems that a scenario compares.
type System struct {
	Name string
	// Prefill is how many executors prefill at the start; the others decode. It is
	// between 1 and workers-1, and not looked at with Mixed.
	Prefill int
	// Mixed: every executor does both, with chunked prefill. An engine call holds either:
	// a step of prompt chunks and MixSteps decode steps take turns (0: the executor's
	// default, 4). An engine that puts both into one call advances each answer by one step
	// per chunk, so this is no slower for its decodes, and MixSteps can be tuned.
	Mixed    bool
	MixSteps int
	Tier     Tier
	Order    Order
	// Planner makes the actor that changes roles; nil for none. It gets heartbeats,
	// reports, loads, assignments and modes as the live planner does.
	Planner func(cell string, execs []string) schemas.Actor
	// Route is the router's configuration. Fields that an engine of this size needs
	// otherwise are filled where they are zero: see Defaults.
	Route route.Config
	// Admit: the router admits sessions.
	Admit bool
	// Restart: 0 changes roles in place. Otherwise a role change lets the executor give
	// its jobs back, then ends it; its memory, engine and private tier, is lost, and it
	// is back after this time.
	Restart time.Duration
}

// Options of one run.
type Options struct {
	// Cal is the cost model. Its Derate is used as it stands; the headline is 1.
	Cal *calib.Calibration
	// Load multiplies concurrency; the work stays fixed. 0 means 1.
	Load float64
	Seed uint64
	// PeriodS is the time in seconds in which the phases of an oscillating scenario come
	// round once; 0 for its longest.
	PeriodS float64
	// Concurrency replaces the number of sessions of every phase that names none, such
	// as overload's, before Load is applied.
	Concurrency int
	// MaxS bounds the virtual time in seconds: a run that takes longer ends with
	// ErrTooLong. 0 for six hours.
	MaxS float64
	// Progress is told now and then how far the run is; nil for nobody.
	Progress func(Progress)
	// Log gets every event as a line, for comparisons of two runs; nil for none. It
	// makes a run slow.
	Log io.Writer
	// Plans gets each decision of the planner; nil for none.
	Plans func(now time.Duration, p *schemas.Plan)
	// Trace gets each turn as it ends; nil for none.
	Trace func(TurnRecord)
}

// Progress is how far a run is.
type Progress struct {
	At       time.Duration // virtual
	Turns    int
	Sessions int // ended
	Of       int // sessions in all; 0 when the time ends the run
	Share    float64
}

// TurnRecord is one turn as its agent saw it. Times are seconds of virtual time.
type TurnRecord struct {
	Class   string
	Session string
	Turn    int
	Phase   int // of its session
	Ready   float64
	First   float64
	End     float64
	Prompt  int
	New     int // tokens that no turn of this session had before
	Cached  int
	Output  int
	Attempt int
	Failed  string // code of the failure
}

// Run simulates one scenario with one system. The same arguments give the same
// figures, byte for byte. It fails when an invariant is broken, when ctx ends, and
// when the work does not end within MaxS.
func Run(ctx context.Context, sc *Scenario, sys System, o Options) (*Figures, error) {
	w, err := newWorld(sc, sys, o)
	if err != nil {
		return nil, err
	}
	return w.run(ctx)
}
