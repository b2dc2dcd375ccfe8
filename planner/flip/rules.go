package flip

// Names of the rules, as they stand in Plan.Rule.
const (
	RuleGain      = "gain"      // a better split; roles change
	RuleBest      = "best"      // no split is better
	RuleDeadBand  = "dead_band" // one is better, but within the dead band
	RuleRegret    = "regret"    // staying has not cost enough yet to pay for the change
	RuleSettle    = "settle"    // the last change has not shown its effect
	RuleDwell     = "dwell"     // the last change was the other way round, too recently
	RuleInFlight  = "in_flight" // as many role changes as allowed are under way
	RuleUnpressed = "unpressed" // neither side is pressed
	RuleStale     = "stale"     // reports or the router's load are too old to decide on
	RuleSamples   = "samples"   // too few measurements
	RulePaused    = "paused"    // people paused the planner
	RulePinned    = "pinned"    // what should change is pinned, held or of people's choice
	RuleFloor     = "floor"     // a phase has no executor left
	RuleStart     = "start"     // first roles
	RuleUnfit     = "unfit"     // an executor is unfit and goes out of work
	RuleFit       = "fit"       // it is fit again
	RuleAbsorb    = "absorb"    // what decode executors may compute themselves changes
	RuleQuiet     = "quiet"     // no executor that could change
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
// the winter lasts: buy when the rent that was paid would have bought them. Staying with
// a split costs its regret, the work per second that the best split would have done more.
// When the regret since the best split became the better one has paid for the change,
// roles change. So a split that is far better is taken within seconds, one that is a little
// better only after it stayed so for long, and demand that turns around faster than it
// costs to follow is not followed: never does this lose more than twice what knowing
// the future would have lost.
type State struct {
	Dir      int        `json:"dir"`      // of the last change: +1 towards prefill, -1 towards decode, 0 none
	At       float64    `json:"at"`       // when it was
	Reversed int        `json:"reversed"` // changes of direction so far
	Regret   [2]float64 `json:"regret"`   // worker seconds that staying cost: by not going to prefill, to decode
	Seen     float64    `json:"seen"`     // last look
}

// Choice is the best split that can be gone to.
type Choice struct {
	Dir  int     // +1 towards prefill, -1 towards decode
	Gain float64 // work per second more than now
	Cost float64 // worker seconds that the change takes
	Base float64 // value now, work per second
}

// longestLook bounds the time that one look stands for.
const longestLook = 5.0

// Judge says by which rule the best choice is taken or left; only RuleGain takes it.
// It is called once per look.
func (s *State) Judge(c *Config, now float64, x Choice) string {
	dt := min(max(now-s.Seen, 0), longestLook)
	s.Seen = now
	if x.Gain <= c.Band*x.Base || x.Dir == 0 {
		// Regret of the past fades as fast as it came at the band.
		for i := range s.Regret {
			s.Regret[i] = max(0, s.Regret[i]-c.Band*x.Base*dt)
		}
		if x.Gain <= 0 || x.Dir == 0 {
			return RuleBest
		}
		return RuleDeadBand
	}
	mine, others := side(x.Dir), side(-x.Dir)
	s.Regret[mine] += x.Gain * dt
	s.Regret[others] = max(0, s.Regret[others]-x.Gain*dt)
	since := now - s.At
	price := x.Cost
	switch {
	case s.Dir == 0:
		price += c.Patience * x.Base
	case since < c.Settle:
		return RuleSettle
	case x.Dir != s.Dir:
		if since < c.Dwell {
			return RuleDwell
		}
		price = 2*x.Cost + c.Patience*x.Base
	}
	if s.Regret[mine] < price {
		return RuleRegret
	}
	return RuleGain
}

func side(dir int) int {
	if dir > 0 {
		return 0
	}
	return 1
}

// Changed notes that roles changed in that direction.
func (s *State) Changed(now float64, dir int) {
	if s.Dir != 0 && dir != s.Dir {
		s.Reversed++
	}
	s.Dir, s.At, s.Regret = dir, now, [2]float64{}
}
