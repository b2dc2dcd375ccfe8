package sampling

import (
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestLogprobs(t *testing.T) {
	logits := []float32{1, 3, 3, float32(math.NaN()), -inf, 2}
	got, top, err := Logprobs(logits, 5, 3, nil)
	if err != nil {
		t.Fatal(err)
	}
	norm := math.Log(math.Exp(1) + 2*math.Exp(3) + math.Exp(2))
	if math.Abs(got-(2-norm)) > 1e-14 {
		t.Errorf("logprob %v, want %v", got, 2-norm)
	}
	want := []Logprob{{1, 3 - norm}, {2, 3 - norm}, {5, 2 - norm}}
	if diff := cmp.Diff(want, top, cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-14 })); diff != "" {
		t.Error(diff)
	}
	for _, token := range []int32{3, 4} {
		if got, _, err := Logprobs(logits, token, 0, nil); err != nil || got != floorLogprob {
			t.Errorf("forbidden token %d: %v, %v", token, got, err)
		}
	}
}

func TestLogprobsRefuses(t *testing.T) {
	for _, c := range []struct {
		logits []float32
		token  int32
		n      int
		want   error
	}{
		{[]float32{1}, 0, 21, ErrParams},
		{[]float32{1}, 0, -1, ErrParams},
		{[]float32{1}, 1, 0, ErrLogits},
		{[]float32{1}, -1, 0, ErrLogits},
		{[]float32{-inf}, 0, 0, ErrNoCandidate},
	} {
		if _, _, err := Logprobs(c.logits, c.token, c.n, nil); !errors.Is(err, c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestLogprobsSumToOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		logits := rapid.SliceOfN(rapid.Float32Range(-30, 30), 1, 20).Draw(t, "logits")
		_, top, err := Logprobs(logits, 0, len(logits), nil)
		if err != nil {
			t.Fatal(err)
		}
		sum := 0.0
		for i, l := range top {
			sum += math.Exp(l.Logprob)
			if i == 0 {
				continue
			}
			a, b := logits[top[i-1].Token], logits[l.Token]
			if b > a || (b == a && l.Token < top[i-1].Token) {
				t.Fatalf("order of %v", top)
			}
		}
		if math.Abs(sum-1) > 1e-12 {
			t.Fatalf("probabilities sum to %v", sum)
		}
	})
}
