package baseline

import (
	"math"

	"github.com/weir-dev/weir/schemas/calib"
)

// Perf is what the throughput loop and the SLA rules believe of one worker. All times
// are seconds.
type Perf interface {
	// Prefill is the time for one prompt of so many tokens to compute behind prefix
	// others, when ranks prompts like it run at the same time.
	Prefill(tokens, prefix float64) float64
	// Decode is the time between two tokens of one sequence in a batch of b sequences
	// that hold kv tokens together.
	Decode(b int, kv float64) float64
	// Ranks is how many prompts one worker computes at the same time.
	Ranks() int
}

// chunkTokens is max_num_batched_tokens: prompts are computed in chunks of so many.
const chunkTokens = 8192

// calibrated takes its times from a calibration: the same one that the simulated
// workers take theirs from, so this policy's model has no error. That is kinder than
// its original, which fits a regression to noisy samples.
type calibrated struct{ cal *calib.Calibration }

func (c calibrated) Ranks() int { return c.cal.Layout.AttnDP }

func (c calibrated) Prefill(tokens, prefix float64) float64 {
	sum := 0.0
	most := c.cal.Range.Prefix[1]
	for left, at := tokens, prefix; left >= 1; {
		n := min(left, chunkTokens)
		chunk := []calib.Chunk{{Tokens: int(n), Prefix: int(at)}}
		if most > 0 {
			chunk[0].Prefix = int(min(at, most))
		}
		ranks := make([][]calib.Chunk, c.Ranks())
		for i := range ranks {
			ranks[i] = chunk
		}
		d, err := c.cal.PrefillStep(ranks...)
		if err != nil {
			return math.Inf(1)
		}
		sum += d.Seconds()
		left, at = left-n, at+n
	}
	return sum
}

func (c calibrated) Decode(b int, kv float64) float64 {
	b = min(max(b, 1), c.cal.Decode.MaxB)
	if most := c.cal.Range.K[1]; most > 0 {
		kv = min(kv, most)
	}
	d, err := c.cal.DecodeStep(b, kv)
	if err != nil {
		return math.Inf(1)
	}
	return d.Seconds() / c.cal.Spec.AL
}

// measured takes its times from the reports of the workers: seconds per token of
// prefill and per decode step, whatever the batch.
type measured struct{ perToken, perStep float64 }

func (measured) Ranks() int { return 1 }

func (m measured) Prefill(tokens, _ float64) float64 { return m.perToken * tokens }

func (m measured) Decode(int, float64) float64 { return m.perStep }
