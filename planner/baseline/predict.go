package baseline

// Predictor forecasts the next value of a series, one value per throughput interval
// (planner/core/load/predictors.py). Leading zeros are no values.
type Predictor interface {
	Add(v float64)
	Next() float64
}

// The names of predictors in Config. The original's default is an automatic ARIMA. To
// a series of a few points, which is what an hour of 180 s intervals gives, it fits
// ARIMA(0,1,0), whose forecast is the last value: that is "constant" here, and the
// default. "kalman" is its local linear trend.
const (
	PredictConstant = "constant"
	PredictKalman   = "kalman"
)

func newPredictor(name string) Predictor {
	if name == PredictKalman {
		return &kalman{}
	}
	return &constant{}
}

type constant struct{ V float64 }

func (c *constant) Add(v float64) { c.V = v }

func (c *constant) Next() float64 { return c.V }

// Parameters of the Kalman filter: variance of the level's and the trend's steps and of
// the observation, and the points that it needs before it forecasts.
const (
	kalmanLevel  = 1.0
	kalmanTrend  = 0.1
	kalmanNoise  = 10.0
	kalmanPoints = 5
)

// kalman is a filter with a level and a trend: x' = F·x with F = [1 1; 0 1], of which
// the level is observed.
type kalman struct {
	N            int
	Level, Trend float64
	P            [3]float64 // covariance: level, both, trend
	Last         float64
}

func (k *kalman) Add(v float64) {
	if k.N == 0 && v == 0 {
		return
	}
	k.N++
	k.Last = v
	if k.N == 1 {
		k.Level, k.P = v, [3]float64{1, 0, 1}
		return
	}
	level := k.Level + k.Trend
	p00 := k.P[0] + 2*k.P[1] + k.P[2] + kalmanLevel
	p01 := k.P[1] + k.P[2]
	p11 := k.P[2] + kalmanTrend
	g0, g1 := p00/(p00+kalmanNoise), p01/(p00+kalmanNoise)
	miss := v - level
	k.Level, k.Trend = level+g0*miss, k.Trend+g1*miss
	k.P = [3]float64{(1 - g0) * p00, (1 - g0) * p01, p11 - g1*p01}
}

func (k *kalman) Next() float64 {
	if k.N < kalmanPoints {
		return k.Last
	}
	return max(0, k.Level+k.Trend)
}
