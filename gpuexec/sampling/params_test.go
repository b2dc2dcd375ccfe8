package sampling

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
)

func TestValidate(t *testing.T) {
	many := map[int32]float64{}
	for i := range int32(MaxBiasEntries + 1) {
		many[i] = 1
	}
	for _, c := range []struct {
		name string
		p    Params
		want []string // parts of the error; none: valid
	}{
		{"zero", Params{}, nil},
		{"openai default", Params{Temperature: 1, TopP: 1}, nil},
		{"bounds", Params{Temperature: 2, TopK: MaxTopK, TopP: 1, MinP: 1, RepeatPenalty: 10, FrequencyPenalty: -2, PresencePenalty: 2, LogitBias: map[int32]float64{0: -100, 9: 100}}, nil},
		{"hot", Params{Temperature: 2.1}, []string{"temperature is 2.1, allowed is 0 to 2"}},
		{"negative", Params{Temperature: -1}, []string{"temperature is -1"}},
		{"nan", Params{Temperature: math.NaN(), TopP: math.NaN()}, []string{"temperature is NaN", "top_p is NaN"}},
		{"inf", Params{MinP: math.Inf(1), RepeatPenalty: math.Inf(-1)}, []string{"min_p is +Inf", "repetition_penalty is -Inf"}},
		{"top_p", Params{TopP: 1.01}, []string{"top_p is 1.01, allowed is 0 to 1"}},
		{"top_k", Params{TopK: -1}, []string{"top_k is -1, allowed is 0 (off) to 1048576"}},
		{"penalties", Params{FrequencyPenalty: 3, PresencePenalty: -2.5}, []string{"frequency_penalty is 3", "presence_penalty is -2.5, allowed is -2 to 2"}},
		{"bias value", Params{LogitBias: map[int32]float64{5: 101}}, []string{"logit_bias[5] is 101, allowed is -100 to 100"}},
		{"bias id", Params{LogitBias: map[int32]float64{-5: 1}}, []string{"names token -5"}},
		{"bias many", Params{LogitBias: many}, []string{"1025 entries, allowed are 1024"}},
	} {
		err := c.p.Validate()
		if (err != nil) != (c.want != nil) {
			t.Errorf("%s: error %v", c.name, err)
			continue
		}
		if err != nil && !errors.Is(err, ErrParams) {
			t.Errorf("%s: %v does not wrap ErrParams", c.name, err)
		}
		for _, part := range c.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q lacks %q", c.name, err, part)
			}
		}
	}
}

func TestNewRefuses(t *testing.T) {
	if _, err := New(Params{Temperature: 9}, 10, nil, nil); !errors.Is(err, ErrParams) {
		t.Errorf("bad temperature: %v", err)
	}
	_, err := New(Params{LogitBias: map[int32]float64{10: 1}}, 10, nil, nil)
	if !errors.Is(err, ErrParams) || !strings.Contains(err.Error(), "token 10") {
		t.Errorf("bias beyond the vocabulary: %v", err)
	}
}

func TestParamsJSON(t *testing.T) {
	var p Params
	in := `{"temperature":0.5,"top_k":3,"seed":18446744073709551615,"logit_bias":{"50256":-100}}`
	if err := json.Unmarshal([]byte(in), &p); err != nil {
		t.Fatal(err)
	}
	if p.Seed != math.MaxUint64 || p.LogitBias[50256] != -100 {
		t.Errorf("decoded %+v", p)
	}
	out, err := json.Marshal(p)
	if err != nil || string(out) != `{"temperature":0.5,"top_k":3,"seed":18446744073709551615,"logit_bias":{"50256":-100}}` {
		t.Errorf("encoded %s, %v", out, err)
	}
}

func TestGreedy(t *testing.T) {
	for _, c := range []struct {
		p    Params
		want bool
	}{{Params{}, true}, {Params{Temperature: 1e-6}, true}, {Params{Temperature: 1, TopK: 1}, true}, {Params{Temperature: 0.01}, false}} {
		if c.p.Greedy() != c.want {
			t.Errorf("%+v: greedy is %v", c.p, !c.want)
		}
	}
}
