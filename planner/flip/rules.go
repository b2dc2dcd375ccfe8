package flip

// Names of the rules, as they stand in Plan.Rule.
const (
	RuleGain       = "gain"        // a better split; roles change
	RuleBest       = "best"        // no split is better
	RuleDeadBand   = "dead_band"   // one is better, but within the dead band
	RuleRegret     = "regret"      // staying has not cost enough yet to pay for the change
	RuleSettle     = "settle"      // the last change has not shown its effect
	RuleDwell      = "dwell"       // the last change was the other way round, too recently
	RuleInFlight   = "in_flight"   // as many role changes as allowed are under way
	RuleUnpressed  = "unpressed"   // neither side is pressed
	RuleStale      = "stale"       // reports or the router's load are too old to decide on
	RuleSamples    = "samples"     // too few measurements
	RulePaused     = "paused"      // people paused the planner
	RulePinned     = "pinned"      // what should change is pinned, held or of people's choice
	RuleFloor      = "floor"       // a phase has no executor left
	RuleRolledBack = "rolled_back" // a role change did not come into force
	RuleStart      = "start"       // first roles
	RuleUnfit      = "unfit"       // an executor is unfit and goes out of work
	RuleFit        = "fit"         // it is fit again
	RuleAbsorb     = "absorb"      // what decode executors may compute themselves changes
	RuleQuiet      = "quiet"       // no executor that could change
)

// Config of the rules. Times are seconds.
type Config struct {
	// Band is the share of the present value by which a split must be better: below it, what is
	// gained is within what the model cannot tell. 0.01.
	Band float64
	// Horizon is the time over which candidates are compared and published. 60.
	Horizon float64
	// Settle is how long after a change the next one may follow: what it brought must
	// have shown in what is measured. 4.
	Settle float64
	// Dwell is how long after a change roles may change back. 10.
	Dwell float64
	// Patience is how many seconds of the pool's whole work staying must have cost
	// before roles change back, beside what the change costs. It keeps noise from
	// changing roles. More of it costs more where demand does turn around. 1.
	Patience float64
}

// Defaults fills what is not set.
func (c *Config) Defaults() {
	set(&c.Band, 0.01)
	set(&c.Horizon, 60)
	set(&c.Settle, 4)
	set(&c.Dwell, 10)
	set(&c.Patience, 1)
}

func set(p *float64, v float64) {
	if *p == 0 {
		*p = v
	}
}

// State is what the rules remember of a pool. Times are seconds on the caller's clock.
//
// The rule that decides is that of somebody who rents skis and does not know how long
// the winter lasts: buy when the rent that was paid would have bought them. Staying
// costs regret: what another split would have done more per second, summed up while it
// is better, and down again while it is worse, to zero at the least. When the regret for
// a split has paid for going there, roles change.
//
// So a split that is far better is taken within seconds, and one that is a little better
// after it stayed so for a while. Where demand turns around faster than it costs to follow, what
// counts is which split is better on the whole, because regret for one that is better
// now and worse then does not grow.
type State struct {
	Dir      int             `json:"dir"`              // of the last change: +1 towards prefill, -1 towards decode, 0 none
	At       float64         `json:"at"`               // when it was
	Reversed int             `json:"reversed"`         // changes of direction so far
	Regret   map[int]float64 `json:"regret,omitempty"` // worker seconds, by change: executors more that prefill
	Seen     float64         `json:"seen"`             // last look
}

// Choice is a split that can be gone to.
type Choice struct {
	By   int     // executors that change: more that prefill, or with a minus more that decode
	Gain float64 // work per second more than now, or less
	Cost float64 // worker seconds that the change takes
}

// longestLook bounds the time that one look stands for.
const longestLook = 5.0

// Judge takes the splits that can be gone to and the value of the present one, and says which to
// take, -1 for none, and by which rule; only RuleGain takes one. It is called once per
// look.
func (s *State) Judge(c *Config, now, base float64, xs []Choice) (take int, rule string) {
	dt := min(max(now-s.Seen, 0), longestLook)
	s.Seen = now
	regret := make(map[int]float64, len(xs)) // those that cannot be gone to any more are forgotten
	take, rule = -1, RuleBest
	most := 0.0
	for i, x := range xs {
		r := max(0, s.Regret[x.By]+x.Gain*dt)
		if r > 0 {
			regret[x.By] = r
		}
		why := s.why(c, now, base, r, x)
		if rank[why] > rank[rule] {
			rule = why
		}
		if why == RuleGain && r-x.Cost > most {
			take, most = i, r-x.Cost
		}
	}
	s.Regret = regret
	if take < 0 && rule == RuleGain {
		rule = RuleRegret
	}
	return take, rule
}

// rank orders what can be said of several splits: the rule that was last in the way of
// the one that came furthest.
var rank = map[string]int{RuleBest: 0, RuleDeadBand: 1, RuleRegret: 2, RuleSettle: 3, RuleDwell: 4, RuleGain: 5}

func (s *State) why(c *Config, now, base, regret float64, x Choice) string {
	if x.Gain <= 0 {
		return RuleBest
	}
	if x.Gain <= c.Band*base {
		return RuleDeadBand
	}
	price := x.Cost + c.Patience*base
	same := s.Dir != 0 && (x.By > 0) == (s.Dir > 0)
	switch {
	case s.Dir == 0:
	case same:
		price = x.Cost
	default:
		price += x.Cost // and back again
	}
	switch since := now - s.At; {
	case regret < price:
		return RuleRegret
	case s.Dir != 0 && since < c.Settle:
		return RuleSettle
	case s.Dir != 0 && !same && since < c.Dwell:
		return RuleDwell
	}
	return RuleGain
}

// Changed notes that roles changed in that direction.
func (s *State) Changed(now float64, dir int) {
	if s.Dir != 0 && dir != s.Dir {
		s.Reversed++
	}
	s.Dir, s.At, s.Regret = dir, now, nil
}
