package sampling

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Bounds of parameters. Where OpenAI states a range, it is OpenAI's.
const (
	MaxTemperature    = 2.0
	MaxTopK           = 1 << 20 // beyond any vocabulary
	MaxPenalty        = 2.0     // absolute value of frequency and presence penalty
	MaxRepeatPenalty  = 10.0
	MaxBias           = 100.0 // absolute value of one logit bias
	MaxBiasEntries    = 1024  // keeps the work per token bounded
	MaxTopLogprobs    = 20
	greedyTemperature = 1e-5 // below it the best token has all the mass; as vLLM does
)

// ErrParams: a sampling parameter is outside its range. The text names the
// field as OpenAI calls it, the value and the range.
var ErrParams = errors.New("sampling: bad parameter")

// Params say how to sample. The zero value is greedy; a zero in any other field
// means "off". OpenAI's default, pure sampling, is Temperature 1. A caller that
// was given an explicit top_p of 0 wants the best token only: set TopK to 1.
type Params struct {
	Temperature      float64           `json:"temperature"`                  // [0, 2]; below 1e-5 greedy
	TopK             int               `json:"top_k,omitempty"`              // keep the k best; 0 keeps all
	TopP             float64           `json:"top_p,omitempty"`              // [0, 1]; smallest set of best tokens with this mass; 0 and 1 keep all
	MinP             float64           `json:"min_p,omitempty"`              // [0, 1]; drop what is less likely than this times the best
	RepeatPenalty    float64           `json:"repetition_penalty,omitempty"` // (0, 10]; 0 and 1 are off
	FrequencyPenalty float64           `json:"frequency_penalty,omitempty"`  // [-2, 2] per occurrence among generated tokens
	PresencePenalty  float64           `json:"presence_penalty,omitempty"`   // [-2, 2] once per generated token
	Seed             uint64            `json:"seed"`                         // drawn at admission when the caller gave none
	LogitBias        map[int32]float64 `json:"logit_bias,omitempty"`         // token id → [-100, 100]
}

// Validate reports every parameter outside its range; the error wraps ErrParams.
func (p Params) Validate() error {
	errs := []error{
		inRange("temperature", p.Temperature, 0, MaxTemperature),
		inRange("top_p", p.TopP, 0, 1),
		inRange("min_p", p.MinP, 0, 1),
		inRange("repetition_penalty", p.RepeatPenalty, 0, MaxRepeatPenalty),
		inRange("frequency_penalty", p.FrequencyPenalty, -MaxPenalty, MaxPenalty),
		inRange("presence_penalty", p.PresencePenalty, -MaxPenalty, MaxPenalty),
	}
	if p.TopK < 0 || p.TopK > MaxTopK {
		errs = append(errs, fmt.Errorf("%w: top_k is %d, allowed is 0 (off) to %d", ErrParams, p.TopK, MaxTopK))
	}
	if len(p.LogitBias) > MaxBiasEntries {
		errs = append(errs, fmt.Errorf("%w: logit_bias has %d entries, allowed are %d", ErrParams, len(p.LogitBias), MaxBiasEntries))
	}
	for _, id := range sortedKeys(p.LogitBias) {
		if id < 0 {
			errs = append(errs, fmt.Errorf("%w: logit_bias names token %d, ids start at 0", ErrParams, id))
		}
		if err := inRange(fmt.Sprintf("logit_bias[%d]", id), p.LogitBias[id], -MaxBias, MaxBias); err != nil {
			errs = append(errs, err)
			break // one example is enough of up to 1,024
		}
	}
	return errors.Join(errs...)
}

// Greedy tells whether the best token is always taken, so that no random number is used.
func (p Params) Greedy() bool { return p.Temperature < greedyTemperature || p.TopK == 1 }

func inRange(field string, v, lo, hi float64) error {
	if math.IsNaN(v) || math.IsInf(v, 0) || v < lo || v > hi {
		return fmt.Errorf("%w: %s is %v, allowed is %v to %v", ErrParams, field, v, lo, hi)
	}
	return nil
}

func sortedKeys(m map[int32]float64) []int32 {
	keys := make([]int32, 0, len(m))
	for id := range m {
		keys = append(keys, id)
	}
	slices.Sort(keys)
	return keys
}
