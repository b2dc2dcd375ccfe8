package sim

import (
	"slices"

	"github.com/weir-dev/weir/schemas"
)

// recorder collects what agents see.
type recorder struct {
	w        *world
	from, to schemas.Time // turns that end in between count
	all      sample
	classes  map[string]*sample
	phases   []*sample
	refusals int
	handed   int
	last     schemas.Time // of the last result
	lives    map[string][]float64
}

// sample is a set of turns.
type sample struct {
	e2e, ttft, tpot                      []float64
	good, failed                         int
	prompt, fresh, cached, known, output int64
	found                                int64 // of known
}

// The limits of a good turn.
const (
	goodTTFT = 2.0
	goodTPOT = 0.025
)

func newRecorder(w *world, phases int) *recorder {
	r := &recorder{w: w, classes: map[string]*sample{}, lives: map[string][]float64{}, to: schemas.Never}
	for range phases {
		r.phases = append(r.phases, &sample{})
	}
	return r
}

func (r *recorder) sets(s *session) [3]*sample {
	c := r.classes[s.w.Name]
	if c == nil {
		c = &sample{}
		r.classes[s.w.Name] = c
	}
	return [3]*sample{&r.all, c, r.phases[s.phase]}
}

// turn takes a turn that has an answer. It counts from when its agent asked first.
func (r *recorder) turn(now schemas.Time, x *flight, res *schemas.Result) {
	s := x.s
	r.last = now
	r.handed += max(0, res.Attempt-1)
	first := schemas.Time(res.Timing.AdmittedNS + res.Timing.TTFTNS)
	e2e, ttft := seconds(now-x.asked), seconds(first-x.asked)
	tpot := 0.0
	if s.output > 1 {
		tpot = seconds(now-first) / float64(s.output-1)
	}
	if r.w.o.Trace != nil {
		r.w.o.Trace(TurnRecord{
			Class: s.w.Name, Session: s.id, Turn: s.turn, Phase: s.phase, Ready: r.w.since(x.asked), First: r.w.since(first), End: r.w.since(now),
			Prompt: s.prompt, New: s.fill, Cached: res.Usage.Cached, Output: s.output, Attempt: res.Attempt,
		})
	}
	if now < r.from || now > r.to {
		return
	}
	for _, t := range r.sets(s) {
		t.e2e, t.ttft = append(t.e2e, e2e), append(t.ttft, ttft)
		if s.output > 1 {
			t.tpot = append(t.tpot, tpot)
		}
		if ttft <= goodTTFT && tpot <= goodTPOT {
			t.good++
		}
		t.prompt += int64(s.prompt)
		t.fresh += int64(s.fill)
		t.cached += int64(res.Usage.Cached)
		t.known += int64(s.prompt - s.fill)
		t.found += int64(min(res.Usage.Cached, s.prompt-s.fill))
		t.output += int64(s.output)
	}
}

func (r *recorder) refused(x *flight, res *schemas.Result) {
	now := r.w.sim.Now()
	if r.w.o.Trace != nil {
		r.w.o.Trace(TurnRecord{
			Class: x.s.w.Name, Session: x.s.id, Turn: x.s.turn, Phase: x.s.phase, Ready: r.w.since(x.asked), End: r.w.since(now),
			Prompt: x.s.prompt, Attempt: res.Attempt, Failed: res.Failure.Code,
		})
	}
	if now < r.from || now > r.to {
		return
	}
	if res.Failure.Code == schemas.CodeBusy {
		r.refusals++
		return
	}
	for _, t := range r.sets(x.s) {
		t.failed++
	}
}

// session takes how fast a session was served.
func (r *recorder) session(now schemas.Time, s *session) {
	if life := seconds(now - s.began); s.served > 0 && life > 0 {
		r.lives[s.w.Name] = append(r.lives[s.w.Name], float64(s.served)/life)
	}
}

func seconds(t schemas.Time) float64 { return float64(t) / 1e9 }

// totals sums up a sample over so many seconds.
func (t *sample) totals(span float64) Totals {
	f := Totals{
		Turns: len(t.e2e), Failed: t.failed, E2E: dist(t.e2e), TTFT: dist(t.ttft), TPOT: dist(t.tpot),
		Computed: t.prompt - t.cached, New: t.fresh, Prompt: t.prompt, Output: t.output,
	}
	if span > 0 {
		f.TurnsPerS, f.TokPerS, f.Goodput = float64(f.Turns)/span, float64(t.output)/span, float64(t.good)/span
	}
	if t.known > 0 {
		f.HitRate = float64(t.found) / float64(t.known)
	}
	if t.fresh > 0 {
		f.Recompute = float64(f.Computed) / float64(t.fresh)
	}
	return f
}

func dist(xs []float64) Dist {
	if len(xs) == 0 {
		return Dist{}
	}
	slices.Sort(xs)
	sum := 0.0
	for _, x := range xs {
		sum += x
	}
	at := func(q float64) float64 { return xs[min(len(xs)-1, int(q*float64(len(xs))))] }
	return Dist{N: len(xs), Mean: sum / float64(len(xs)), P50: at(0.5), P95: at(0.95), P99: at(0.99)}
}

// jain is (Σx)² / (n·Σx²) over all sessions, each relative to the mean of its class: 1
// when all are served alike.
func (r *recorder) jain() float64 {
	var n, sum, squares float64
	for _, name := range sortedKeys(r.lives) {
		xs := r.lives[name]
		mean := dist(slices.Clone(xs)).Mean
		for _, x := range xs {
			n, sum, squares = n+1, sum+x/mean, squares+x/mean*x/mean
		}
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (n * squares)
}

// figures sums up a run.
func (w *world) figures() *Figures {
	end := w.since(w.sim.Now())
	f := &Figures{
		Scenario: w.sc.Name, System: w.sys.Name, Model: w.cal.ID, Derate: w.cal.Derate, Load: w.o.Load, Seed: w.o.Seed, PeriodS: w.periodS,
		MakespanS: w.since(w.rec.last), Classes: map[string]*Totals{}, Flips: w.check.flips, FlipMS: dist(w.check.flipMS),
		Restarts: w.restarts, Handed: w.rec.handed, Refused: w.rec.refusals, Splits: w.check.splits, Violation: w.check.broke, Steps: w.sim.Steps(), Events: w.sim.Events(),
	}
	if w.durationS > 0 {
		f.MakespanS = min(end, w.durationS)
	}
	f.CountedS = max(0, f.MakespanS-w.discardS)
	f.Totals = w.rec.all.totals(f.CountedS)
	for name, s := range w.rec.classes {
		t := s.totals(f.CountedS)
		f.Classes[name] = &t
	}
	for _, s := range w.rec.phases {
		t := s.totals(f.CountedS)
		f.Phases = append(f.Phases, &t)
	}
	living := w.front.living()
	for _, name := range sortedKeys(living) {
		w.rec.session(w.sim.Now(), living[name])
	}
	f.Jain = w.rec.jain()
	w.busy(f)
	total, used := 0, 0
	for _, n := range w.mem.nodes {
		total, used = total+n.total, used+n.used
	}
	if total > 0 {
		f.TierUsed = float64(used) / float64(total)
	}
	if w.load != nil {
		for _, p := range w.load.Pools {
			f.Absorbed += p.Absorbed
		}
	}
	return f
}

// busy is the share of its time that each role computed.
func (w *world) busy(f *Figures) {
	var inP, inD, busyP, busyD float64
	end := w.since(w.sim.Now())
	for i, s := range f.Splits {
		to := end
		if i+1 < len(f.Splits) {
			to = f.Splits[i+1].AtS
		}
		if d := to - max(0, s.AtS); d > 0 {
			inP += d * float64(s.Prefill+s.Mixed)
			inD += d * float64(s.Decode+s.Mixed)
		}
	}
	for _, e := range w.execs {
		busyP += float64(e.busyP) / 1e9
		busyD += float64(e.busyD) / 1e9
	}
	if inP > 0 {
		f.BusyP = busyP / inP
	}
	if inD > 0 {
		f.BusyD = busyD / inD
	}
}
