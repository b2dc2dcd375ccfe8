package demand

import (
	"github.com/weir-dev/weir/schemas/calib"
)

// Model says what work costs on an executor of its Size. All times are seconds. The
// zero value knows nothing; Known tells.
type Model struct {
	// Size is how many accelerators the executor has whose times these are; 0 means 1.
	// Sizes of executors are told in it: one of twice as many does twice the work.
	Size float64 `json:"size,omitempty"`

	// Prefill of a prompt is max(Turn, Token·computed) + Attention·computed·(cached +
	// computed/2), when enough other prompts wait that steps are full: small prompts
	// cost the launch of a step, shared by one prompt per attention rank.
	Turn      float64 `json:"turn"`
	Token     float64 `json:"token"`
	Attention float64 `json:"attention"`
	// Launch is the least time of a prefill step. Lanes is how many prompts an executor
	// computes side by side, each taking as many times the work that it is; 0 means 1.
	Launch float64 `json:"launch"`
	Lanes  float64 `json:"lanes,omitempty"`

	// A decode step with B sequences over K context tokens takes Base(B) + Context·K and
	// yields Accept tokens per sequence. Base is linear between the points B, Step.
	B       []float64 `json:"b,omitempty"`
	Step    []float64 `json:"step,omitempty"`
	Context float64   `json:"context"`
	Accept  float64   `json:"accept"`
}

// FromCalibration takes the costs from a calibration. They are those of a whole worker,
// whose layout says how many accelerators it has.
//
// A prefill step of one chunk per attention rank takes max(floor, a·n) + c·S + m0 +
// m1·N. With R ranks that are equally full, a token costs a/R + m1, and attention c/R.
// The time per step, m0, is spread over a full step's tokens.
func FromCalibration(c *calib.Calibration) Model {
	derate := c.Derate
	if derate <= 0 {
		derate = 1
	}
	ms := 1e-3 / derate
	k, ranks := c.Prefill.Coef, float64(max(1, c.Layout.AttnDP))
	chunk := c.Range.N[1]
	if chunk <= 0 {
		chunk = 8192
	}
	m := Model{
		Size:      float64(max(1, c.Layout.GPUs)),
		Token:     (k.A/ranks + k.M1 + k.M0/(chunk*ranks)) * ms,
		Attention: k.C / ranks * ms,
		Turn:      (k.Floor + k.M0) / ranks * ms,
		Launch:    (k.Floor + k.M0) * ms,
		Lanes:     ranks,
		Context:   c.Decode.KCtx * ms,
		Accept:    max(1, c.Spec.AL),
		B:         append([]float64(nil), c.Decode.GridB...),
	}
	for _, x := range c.Decode.MS {
		m.Step = append(m.Step, x*ms)
	}
	return m
}

// Faster is the model of executors that do everything in 1/times of the time.
func (m Model) Faster(times float64) Model {
	m.Turn, m.Token, m.Attention, m.Launch, m.Context = m.Turn/times, m.Token/times, m.Attention/times, m.Launch/times, m.Context/times
	m.Step = append([]float64(nil), m.Step...)
	for i := range m.Step {
		m.Step[i] /= times
	}
	return m
}

// Unit is how many accelerators an executor has that does one second of this model's
// work per second.
func (m *Model) Unit() float64 {
	if m.Size > 0 {
		return m.Size
	}
	return 1
}

// Known reports whether both phases have a cost.
func (m *Model) Known() bool { return (m.Token > 0 || m.Turn > 0) && len(m.Step) > 0 }

// Prefill is the time of so many turns, tokens to compute and attention, in seconds.
func (m *Model) Prefill(turns, tokens, attention float64) float64 {
	return max(turns*m.Turn, tokens*m.Token) + attention*m.Attention
}

// Alone is how long a prompt with that much work takes where nothing waits: its steps,
// and on average half a step until the one that runs is over.
func (m *Model) Alone(work float64) float64 {
	return 1.5 * max(m.Launch, work*max(m.Lanes, 1))
}

// StepTime is the time of a decode step with b sequences over k context tokens.
func (m *Model) StepTime(b, k float64) float64 {
	n := len(m.Step)
	if n == 0 {
		return 0
	}
	if n == 1 {
		return m.Step[0] + m.Context*k
	}
	i := 1
	for i < n-1 && m.B[i] < b {
		i++
	}
	base := m.Step[i-1] + (m.Step[i]-m.Step[i-1])*(b-m.B[i-1])/(m.B[i]-m.B[i-1])
	return max(base, m.Step[0]) + m.Context*k
}

// TokenRate is how many tokens per second b sequences get with ctx context tokens each.
func (m *Model) TokenRate(b, ctx float64) float64 {
	t := m.StepTime(b, b*ctx)
	if b <= 0 || t <= 0 {
		return 0
	}
	return b * m.Accept / t
}
