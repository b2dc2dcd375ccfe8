package churn

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// Dist is a lognormal distribution whose draws are clamped to [Min, Max]. Lengths and
// times of agents are close to it: the quantiles of traces/params_coding_weka.json
// give the same Sigma at p90 and p99 within a tenth. Sigma 0 is the constant Median.
type Dist struct{ Median, Sigma, Min, Max float64 }

// Draw draws once.
func (d Dist) Draw(r *rand.Rand) float64 {
	return d.clamp(d.Median * math.Exp(d.Sigma*r.NormFloat64()))
}

// Quantile is the value below which a share p of the draws lies, 0 < p < 1.
func (d Dist) Quantile(p float64) float64 {
	return d.clamp(d.Median * math.Exp(d.Sigma*math.Sqrt2*math.Erfinv(2*p-1)))
}

func (d Dist) clamp(x float64) float64 { return min(max(x, d.Min), d.Max) }

func (d Dist) check(name string, most float64) error {
	ok := d.Median > 0 && d.Sigma >= 0 && d.Sigma <= 10 && d.Min >= 0 && d.Min <= d.Max && d.Max <= most
	if !ok { // also where one is not a number
		return fmt.Errorf("churn: %s is %+v: want Median > 0, 0 <= Sigma <= 10 and 0 <= Min <= Max <= %g", name, d, most)
	}
	return nil
}
