package baseline

import (
	"fmt"
	"slices"

	"github.com/weir-dev/weir/schemas"
)

// staleNS: a worker whose last report is older says nothing, and then nothing is decided.
const staleNS = 10_000_000_000

// load is the load loop (planner/core/load_scaling.py): by how many workers each side
// wishes to change, -1, 0 or +1, and why. The original sees the queue of each worker;
// here turns wait at the router, and each worker of a side counts with its share.
func (d *Dynamo) load(now schemas.Time, name string, p *pool, s sides) (dp, dd int, why string) {
	l := d.poolLoad(name)
	if l == nil {
		return 0, 0, "no load was heard from the router"
	}
	for _, ws := range [...][]*worker{s.prefill, s.decode} {
		for _, w := range ws {
			if w.Samples < d.cfg.Samples || w.Report == nil || int64(now)-w.Report.AtNS > staleNS {
				return 0, 0, fmt.Sprintf("%s has sent %d reports, %d are needed and a fresh one", w.ID, w.Samples, d.cfg.Samples)
			}
		}
	}
	queues, kvs := queuedTokens(l, s.prefill), kvShares(l, s.decode)
	p.Queued, p.KV = maximum(queues), maximum(kvs)
	if d.cfg.Target == TargetSLA {
		dp, dd = d.slaPrefill(p, queues), d.slaDecode(s.decode, kvs)
		return dp, dd, fmt.Sprintf("longest queue %.0f tokens, fullest memory %.2f against %.0f ms and %.0f ms", p.Queued, p.KV, d.cfg.TTFTSeconds*1e3, d.cfg.ITLSeconds*1e3)
	}
	context := 1.0
	for _, w := range s.prefill {
		context = max(context, float64(w.Context))
	}
	t := d.thresholds(context)
	dp = verdict(slices.ContainsFunc(queues, t.queueUp), len(queues) > 0 && !slices.ContainsFunc(queues, not(t.queueDown)))
	dd = verdict(slices.ContainsFunc(kvs, t.kvUp), len(kvs) > 0 && !slices.ContainsFunc(kvs, not(t.kvDown)))
	return dp, dd, fmt.Sprintf("longest queue %.0f tokens of a context of %.0f, fullest memory %.2f, target %s", p.Queued, context, p.KV, d.cfg.Target)
}

// thresholds of one target: a side wishes for a worker when any of its workers is up,
// and gives one back when all are down.
type thresholds struct{ queueUp, queueDown, kvUp, kvDown func(float64) bool }

func (d *Dynamo) thresholds(context float64) thresholds {
	atLeast := func(t float64) func(float64) bool { return func(x float64) bool { return x >= t } }
	above := func(t float64) func(float64) bool { return func(x float64) bool { return x > t } }
	below := func(t float64) func(float64) bool { return func(x float64) bool { return x < t } }
	switch d.cfg.Target {
	case TargetLatency:
		return thresholds{atLeast(0.1 * context), func(x float64) bool { return x == 0 }, above(0.4), below(0.1)}
	case TargetLoad:
		return thresholds{atLeast(d.cfg.QueueUp), not(above(d.cfg.QueueDown)), atLeast(d.cfg.KVUp), not(above(d.cfg.KVDown))}
	default:
		return thresholds{atLeast(1.0 * context), below(0.1 * context), above(1.0), below(0.6)}
	}
}

func not(f func(float64) bool) func(float64) bool { return func(x float64) bool { return !f(x) } }

// queuedTokens is, for each prefill worker, its share of the tokens that wait at the
// router, and of those that were placed by the jobs that it has.
func queuedTokens(l *schemas.PoolLoad, ws []*worker) []float64 {
	jobs := 0
	for _, w := range ws {
		jobs += w.Report.Queued + w.Report.Running
	}
	out := make([]float64, len(ws))
	for i, w := range ws {
		out[i] = float64(l.WaitTokens) / float64(len(ws))
		if jobs > 0 {
			out[i] += float64(l.PrefillTokens) * float64(w.Report.Queued+w.Report.Running) / float64(jobs)
		}
	}
	return out
}

// kvShares is, for each decode worker, the share of its KV memory that running
// sequences hold and waiting ones would.
func kvShares(l *schemas.PoolLoad, ws []*worker) []float64 {
	each := 0.0
	if l.Decoding > 0 {
		each = float64(l.DecodeTokens) / float64(l.Decoding)
	} else if l.Turns > 0 {
		each = float64(l.Prompt) / float64(l.Turns)
	}
	out := make([]float64, len(ws))
	for i, w := range ws {
		kv := float64(w.Report.KVUsed) + each*float64(l.WaitDecode)/float64(len(ws))
		out[i] = kv / float64(max(1, w.KVTokens))
	}
	return out
}

// slaPrefill compares estimated times to the first token with the target.
func (d *Dynamo) slaPrefill(p *pool, queues []float64) int {
	perf := d.perf()
	tokens, prefix := p.Forecast.uncached(), p.Forecast.prefix()
	own := perf.Prefill(tokens, prefix)
	wait := func(queued float64) float64 {
		return perf.Prefill(queued/float64(perf.Ranks()), prefix) + own
	}
	n := float64(len(queues))
	over, under := true, n > 1
	for _, q := range queues {
		over = over && wait(q) > d.cfg.TTFTSeconds
		under = under && wait(q*n/(n-1))-own < (d.cfg.TTFTSeconds-own)*d.cfg.Sensitivity
	}
	return verdict(over && n > 0, under)
}

// slaDecode compares estimated times between tokens with the target.
func (d *Dynamo) slaDecode(ws []*worker, kvs []float64) int {
	perf := d.perf()
	n := float64(len(kvs))
	over, under := true, n > 1
	for i, share := range kvs {
		room := float64(ws[i].KVTokens)
		batch := ws[i].Report.Running
		more := share * n / (n - 1)
		over = over && perf.Decode(batch, share*room) > d.cfg.ITLSeconds
		under = under && more < 1 && perf.Decode(int(float64(batch)*n/(n-1)), more*room) < d.cfg.ITLSeconds*d.cfg.Sensitivity
	}
	return verdict(over && n > 0, under)
}

func verdict(over, under bool) int {
	switch {
	case over:
		return 1
	case under:
		return -1
	}
	return 0
}

func maximum(xs []float64) float64 {
	m := 0.0
	for _, x := range xs {
		m = max(m, x)
	}
	return m
}

func (d *Dynamo) poolLoad(name string) *schemas.PoolLoad {
	if d.st.Load == nil {
		return nil
	}
	for i := range d.st.Load.Pools {
		if l := &d.st.Load.Pools[i]; l.Pool == name {
			return l
		}
	}
	return nil
}

// perf is the calibration, or what the reports say.
func (d *Dynamo) perf() Perf {
	if d.cfg.Cal != nil {
		return calibrated{d.cfg.Cal}
	}
	var m measured
	var prefillNS, decodeNS int64
	var tokens, steps uint64
	for _, w := range d.st.Roster.Workers {
		if w.Report != nil { // sums of integers: their order says nothing
			prefillNS, tokens = prefillNS+w.Report.PrefillNS, tokens+w.Report.PrefillTokens
			decodeNS, steps = decodeNS+w.Report.DecodeNS, steps+w.Report.DecodeSteps
		}
	}
	if tokens > 0 {
		m.perToken = float64(prefillNS) / 1e9 / float64(tokens)
	}
	if steps > 0 {
		m.perStep = float64(decodeNS) / 1e9 / float64(steps)
	}
	return m
}
