package baseline

import (
	"fmt"
	"math"

	"github.com/weir-dev/weir/schemas"
)

// mark is the router's totals at one throughput tick.
type mark struct {
	At                      schemas.Time
	Router                  uint64
	Turns, Prompt, Uncached uint64
	Ended, Output           uint64
}

// forecasts are the series of the throughput loop: turns per second, and per turn the
// prompt's tokens, those of them to compute, and the answer's. Only one predictor kind
// is in use; both are kept whole so that a snapshot is.
type forecasts struct {
	Kind     string
	Constant [4]*constant
	Kalman   [4]*kalman
}

func (f *forecasts) init(kind string) {
	f.Kind = kind
	for i := range f.Constant {
		f.Constant[i], f.Kalman[i] = &constant{}, &kalman{}
	}
}

func (f *forecasts) whole() bool {
	for i := range f.Constant {
		if f.Constant[i] == nil || f.Kalman[i] == nil {
			return false
		}
	}
	return true
}

func (f *forecasts) at(i int) Predictor {
	if f.Kind == PredictKalman {
		return f.Kalman[i]
	}
	return f.Constant[i]
}

func (f *forecasts) rate() float64     { return f.at(0).Next() }
func (f *forecasts) prompt() float64   { return f.at(1).Next() }
func (f *forecasts) uncached() float64 { return f.at(2).Next() }
func (f *forecasts) output() float64   { return f.at(3).Next() }
func (f *forecasts) prefix() float64   { return max(0, f.prompt()-f.uncached()) }

// observe adds the interval that ends now to the series.
func (d *Dynamo) observe(now schemas.Time, name string, p *pool) {
	l := d.poolLoad(name)
	if l == nil {
		return
	}
	m := &mark{now, d.st.Load.Router, l.Turns, l.Prompt, l.Uncached, l.Ended, l.Output}
	last := p.Mark
	p.Mark = m
	if last == nil || last.Router != m.Router {
		if last != nil {
			return // another router counts from zero
		}
		last = &mark{At: now - schemas.Time(d.cfg.ThroughputNS), Router: m.Router}
	}
	turns, ended := float64(m.Turns-last.Turns), float64(m.Ended-last.Ended)
	f := &p.Forecast
	f.at(0).Add(turns / (float64(m.At-last.At) / 1e9))
	if turns > 0 {
		f.at(1).Add(float64(m.Prompt-last.Prompt) / turns)
		f.at(2).Add(float64(m.Uncached-last.Uncached) / turns)
	}
	if ended > 0 {
		f.at(3).Add(float64(m.Output-last.Output) / ended)
	}
}

// throughput is the throughput loop (planner/core/throughput_scaling.py): the workers
// that the forecast needs at the SLA, at least MinEndpoint on each side.
func (d *Dynamo) throughput(p *pool, s sides) (np, nd int, why string, ok bool) {
	f := &p.Forecast
	rate, output := f.rate(), f.output()
	if rate <= 0 || output <= 0 || len(s.decode) == 0 {
		return 0, 0, "", false
	}
	perf := d.perf()
	seconds := perf.Prefill(f.uncached(), f.prefix()) / float64(perf.Ranks())
	batch, itl := d.batch(perf, s.decode[0], f.prompt()+output/2)
	np = workers(rate*seconds, d.cfg.MinEndpoint)
	nd = workers(rate*output*itl/float64(batch), d.cfg.MinEndpoint)
	return np, nd, fmt.Sprintf("%.1f turns/s of %.0f tokens to compute and %.0f to generate need %d:%d", rate, f.uncached(), output, np, nd), true
}

// maxWish bounds a wish for workers, whatever a model says.
const maxWish = 1 << 20

func workers(load float64, least int) int {
	if !(load < maxWish) { // also no number
		return maxWish
	}
	return max(least, int(math.Ceil(load)))
}

// batch is the largest batch whose time between tokens meets the target, and that time
// (planner/core/perf_model/decode.py): bounded by memory and slots, found by bisection.
func (d *Dynamo) batch(perf Perf, w *worker, context float64) (int, float64) {
	most := max(1, min(w.Slots, int(float64(w.KVTokens)/max(1, context))))
	lo, hi := 1, most
	for lo < hi {
		mid := (lo + hi + 1) / 2
		if perf.Decode(mid, float64(mid)*context) <= d.cfg.ITLSeconds {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	return lo, perf.Decode(lo, float64(lo)*context)
}
