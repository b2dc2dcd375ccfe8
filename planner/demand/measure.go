package demand

import "slices"

// Work is what an executor did between two reports.
type Work struct {
	Seconds                       float64 // between the reports
	PrefillSeconds, PrefillTokens float64
	DecodeSeconds, DecodeTokens   float64
	Steps, Rows                   float64 // decode steps, and the sum of their rows
	Size                          float64
}

// ring keeps the last samples; its median does not follow single wrong ones.
type ring struct {
	X []float64 `json:"x,omitempty"`
	I int       `json:"i"`
}

// samples is how many measurements count: with 9 executors that report every 2 s those
// of some 10 s.
const samples = 48

func (r *ring) add(x float64) {
	if len(r.X) < samples {
		r.X = append(r.X, x)
		return
	}
	r.X[r.I] = x
	r.I = (r.I + 1) % samples
}

func (r *ring) median() float64 { return r.quantile(0.5) }

func (r *ring) quantile(q float64) float64 {
	if len(r.X) == 0 {
		return 0
	}
	s := slices.Clone(r.X)
	slices.Sort(s)
	return s[int(q*float64(len(s)))]
}

// Measured corrects a Model by what reports say, or makes one where none was given.
type Measured struct {
	Given Model `json:"given"`

	P    ring `json:"p"`  // of prefill: seconds per modelled second, or per token without a model
	D    ring `json:"d"`  // of decode steps: the same, or seconds per step
	Rows ring `json:"r"`  // batch of the sample in D, without a model
	Acc  ring `json:"al"` // tokens per row and step
}

// minSamples is how many measurements make a cost known or corrected.
const minSamples = 5

// pressedQuantile: without a model the cost of a token is taken from the cheaper
// samples, because steps that are not full cost more per token than work does.
const pressedQuantile = 0.25

// Corrections beyond these mean that the calibration is of another machine; they are
// held there.
const (
	leastFactor = 0.2
	mostFactor  = 5.0
)

// Add takes what an executor did. attention is the pool's mean attention per computed
// token, ctx the mean context of a sequence that decodes. full tells that turns wait
// for prefill, so that its steps are full: only then does what a token took say what it costs. With steps
// that are half empty an executor is as busy, and looks half as fast.
func (m *Measured) Add(w Work, attention, ctx float64, full bool) {
	if !(w.Seconds > 0) || w.Size <= 0 {
		return
	}
	known := m.Given.Known()
	if w.PrefillTokens >= 64 && w.PrefillSeconds > 0 && (full || !known) {
		unit := w.PrefillTokens
		if known {
			unit = m.Given.Prefill(0, w.PrefillTokens, w.PrefillTokens*attention)
		}
		if x := w.PrefillSeconds * w.Size / unit; Finite(x) && x > 0 {
			m.P.add(x)
		}
	}
	if w.Steps >= 4 && w.Rows >= w.Steps && w.DecodeSeconds > 0 {
		b := w.Rows / w.Steps / w.Size
		x := w.DecodeSeconds / w.Steps
		if known {
			x /= m.Given.StepTime(b, b*ctx)
		}
		if Finite(x) && x > 0 {
			m.D.add(x)
			m.Rows.add(b)
		}
		if a := w.DecodeTokens / w.Rows; w.DecodeTokens > 0 && a >= 0.5 && a < 64 {
			m.Acc.add(a)
		}
	}
}

// Confident reports whether both phases have a cost.
func (m *Measured) Confident() bool {
	return m.Given.Known() || len(m.P.X) >= minSamples && len(m.D.X) >= minSamples
}

// Samples is how many measurements of prefill and of decode there are, at most 48 each.
func (m *Measured) Samples() (prefill, decode int) { return len(m.P.X), len(m.D.X) }

// Model is the best guess of what work costs: the given one, corrected, or a measured one.
func (m *Measured) Model() Model {
	out := m.Given
	p, d := m.P.median(), m.D.median()
	if !m.Given.Known() {
		p = m.P.quantile(pressedQuantile)
	}
	if out.Known() {
		if len(m.P.X) >= minSamples {
			f := min(max(p, leastFactor), mostFactor)
			out.Turn, out.Token, out.Attention = out.Turn*f, out.Token*f, out.Attention*f
		}
		if len(m.D.X) >= minSamples {
			f := min(max(d, leastFactor), mostFactor)
			out.Step = slices.Clone(out.Step)
			for i := range out.Step {
				out.Step[i] *= f
			}
			out.Context *= f
		}
		return out
	}
	if len(m.P.X) > 0 {
		out.Token, out.Launch = p, p*64
	}
	if len(m.D.X) > 0 {
		out.B, out.Step = m.line()
		out.Accept = 1
		if a := m.Acc.median(); a > 0 {
			out.Accept = a
		}
	}
	return out
}

// line fits step time over batch by least squares. With too little spread of the batch
// a step's time is taken as half fixed, half per row.
func (m *Measured) line() (b, step []float64) {
	n := float64(len(m.D.X))
	var sx, sy, sxx, sxy float64
	for i, y := range m.D.X {
		x := m.Rows.X[i]
		sx, sy, sxx, sxy = sx+x, sy+y, sxx+x*x, sxy+x*y
	}
	mx, my := sx/n, sy/n
	slope := my / 2 / max(mx, 1)
	if v := sxx/n - mx*mx; v > 0.04*mx*mx {
		slope = (sxy/n - mx*my) / v
	}
	// Neither a fixed time nor rows that cost nothing below zero.
	slope = min(max(slope, 0), my/max(mx, 1))
	fixed := my - slope*mx
	return []float64{0, 256}, []float64{fixed, fixed + 256*slope}
}
