package admit

import (
	"math"

	"github.com/weir-dev/weir/schemas"
)

// FairConfig of an order. Durations are nanoseconds.
type FairConfig struct {
	// HalfNS is the time in which half of what was served is forgotten. 60 s.
	HalfNS int64
	// SessionNS and TenantNS bound how far turns that came later may pass one whose
	// session, or tenant, was served more. 5 s and 30 s. So none waits longer than
	// those that came so much after it.
	SessionNS, TenantNS int64
	// MaxNames bounds the sessions and tenants that are remembered, those served least
	// being forgotten. 16,384.
	MaxNames int
}

// Fair orders turns by when they came, and by how much their session and tenant were
// served lately: least attained service, within bounds. It is not safe for use by
// several goroutines.
type Fair struct {
	cfg      FairConfig
	sessions map[Key]served
	tenants  map[string]served
	total    served
}

// served is work in seconds, decaying from then.
type served struct {
	work float64
	at   schemas.Time
}

// NewFair makes an order in which nobody was served yet.
func NewFair(cfg FairConfig) *Fair {
	set(&cfg.HalfNS, 60_000_000_000)
	set(&cfg.SessionNS, 5_000_000_000)
	set(&cfg.TenantNS, 30_000_000_000)
	set(&cfg.MaxNames, 1<<14)
	return &Fair{cfg: cfg, sessions: map[Key]served{}, tenants: map[string]served{}}
}

func (f *Fair) now(s served, now schemas.Time) float64 {
	return s.work * math.Exp2(-float64(max(0, now-s.at))/float64(f.cfg.HalfNS))
}

// Charge notes that a session was served for so many seconds of an executor.
func (f *Fair) Charge(now schemas.Time, k Key, seconds float64) {
	if !(seconds > 0) || math.IsInf(seconds, 0) {
		return
	}
	f.total = served{f.now(f.total, now) + seconds, now}
	if len(f.sessions) >= f.cfg.MaxNames {
		shed(f, f.sessions, now)
	}
	f.sessions[k] = served{f.now(f.sessions[k], now) + seconds, now}
	if len(f.tenants) >= f.cfg.MaxNames {
		shed(f, f.tenants, now)
	}
	f.tenants[k.Tenant] = served{f.now(f.tenants[k.Tenant], now) + seconds, now}
}

// shed forgets those that were served less than the mean; nobody is harmed by being
// taken for new.
func shed[K comparable](f *Fair, m map[K]served, now schemas.Time) {
	sum := 0.0
	most := 0.0
	for _, s := range m {
		most = max(most, f.now(s, now))
	}
	for _, s := range m {
		// Whole shares of the most, so that the sum is the same in every order.
		sum += math.Floor(f.now(s, now) / max(most, math.SmallestNonzeroFloat64) * 1e6)
	}
	floor := sum / 1e6 * most / float64(len(m))
	for k, s := range m {
		if f.now(s, now) <= floor {
			delete(m, k)
		}
	}
}

// At is when a turn is taken to have come, for its place in a queue: the smallest goes
// first. It came then, with a head start of priority seconds, and is put back by what
// its session was served more than the mean session, and its tenant more than its share.
func (f *Fair) At(now, came schemas.Time, k Key, priority int) schemas.Time {
	at := came - schemas.Time(priority)*1_000_000_000
	if s, ok := f.sessions[k]; ok {
		mean := f.now(f.total, now) / float64(len(f.sessions))
		at += behind(f.now(s, now)-mean, f.cfg.SessionNS)
	}
	if t, ok := f.tenants[k.Tenant]; ok && len(f.tenants) > 1 {
		mean := f.now(f.total, now) / float64(len(f.tenants))
		at += behind(f.now(t, now)-mean, f.cfg.TenantNS)
	}
	return at
}

// behind is a surplus in seconds as time, within a bound.
func behind(surplus float64, bound int64) schemas.Time {
	return schemas.Time(min(max(0, surplus)*1e9, float64(bound)))
}
