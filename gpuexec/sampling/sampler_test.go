package sampling

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"testing"

	"pgregory.net/rapid"
)

var inf = float32(math.Inf(1))

func sampler(t testing.TB, p Params, vocab int) *Sampler {
	t.Helper()
	s, err := New(p, vocab, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func next(t testing.TB, s *Sampler, index int, logits []float32) int32 {
	t.Helper()
	token, err := s.Next(index, logits)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestGreedyTakesLowestOfEqual(t *testing.T) {
	nan := float32(math.NaN())
	for _, c := range []struct {
		logits []float32
		want   int32
	}{
		{[]float32{1, 3, 3, 2}, 1},
		{[]float32{nan, -inf, -5}, 2},
		{[]float32{inf, 1, inf}, 0},
		{[]float32{-3e38, 3e38}, 1},
	} {
		for _, temperature := range []float64{0, 1e-9} {
			if got := next(t, sampler(t, Params{Temperature: temperature}, len(c.logits)), 0, c.logits); got != c.want {
				t.Errorf("%v at %v: token %d, want %d", c.logits, temperature, got, c.want)
			}
		}
	}
}

func TestNothingAllowed(t *testing.T) {
	s := sampler(t, Params{Temperature: 1}, 2)
	if _, err := s.Next(3, []float32{-inf, float32(math.NaN())}); !errors.Is(err, ErrNoCandidate) {
		t.Errorf("got %v", err)
	}
	if _, err := s.Next(0, []float32{1}); !errors.Is(err, ErrLogits) {
		t.Errorf("got %v", err)
	}
	if _, err := sampler(t, Params{}, 0).Next(0, nil); !errors.Is(err, ErrNoCandidate) {
		t.Errorf("empty vocabulary: %v", err)
	}
}

// reference computes the kept set and its probabilities the plain way: a full sort.
func reference(p Params, logits []float32) map[int32]float64 {
	type entry struct {
		id int32
		w  float64
	}
	var all []entry
	best := logits[argmax(logits)]
	for id, l := range logits {
		// The limit is part of what is kept, so it is computed as the sampler does: of two
		// roundings one would leave out all tokens that lie on it together.
		if d := (float64(best) - float64(l)) * (1 / p.Temperature); d <= maxDistance {
			all = append(all, entry{int32(id), math.Exp(-d)})
		}
	}
	sort.SliceStable(all, func(i, j int) bool { return logits[all[i].id] > logits[all[j].id] })
	if p.TopK > 0 && p.TopK < len(all) {
		all = all[:p.TopK]
	}
	mass := func() (m float64) {
		for _, e := range all {
			m += e.w
		}
		return m
	}
	if p.TopP > 0 && p.TopP < 1 {
		target, sum := p.TopP*mass(), 0.0
		for i, e := range all {
			if sum += e.w; sum >= target {
				all = all[:i+1]
				break
			}
		}
	}
	all = slices.DeleteFunc(all, func(e entry) bool { return e.w < p.MinP })
	out, m := map[int32]float64{}, mass()
	for _, e := range all {
		out[e.id] = e.w / m
	}
	return out
}

func drawParams(t *rapid.T) (Params, []float32) {
	n := rapid.IntRange(1, 300).Draw(t, "vocab")
	// Values on a grid of quarters give many ties; the cut must then follow ids.
	grid := rapid.IntRange(-60, 60)
	logits := make([]float32, n)
	for i := range logits {
		logits[i] = float32(grid.Draw(t, "logit")) / 4
	}
	return Params{
		Temperature: rapid.SampledFrom([]float64{0.1, 0.7, 1, 2}).Draw(t, "temperature"),
		TopK:        rapid.SampledFrom([]int{0, 1, 2, 10, 40, 1000}).Draw(t, "top_k"),
		TopP:        rapid.SampledFrom([]float64{0, 0.001, 0.33, 0.9, 0.999, 1}).Draw(t, "top_p"),
		MinP:        rapid.SampledFrom([]float64{0, 0.013, 0.5, 1}).Draw(t, "min_p"),
		Seed:        rapid.Uint64().Draw(t, "seed"),
	}, logits
}

// The candidates left by the bins are those that a full sort leaves.
func TestKeptSetMatchesFullSort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, logits := drawParams(t)
		want := reference(p, logits)
		s, err := New(p, len(logits), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		for index := range 20 {
			token, err := s.Next(index, logits)
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := want[token]; !ok {
				t.Fatalf("token %d is not among the %d kept", token, len(want))
			}
		}
		if p.Greedy() {
			return
		}
		if got := len(s.scratch.ids); math.Abs(float64(got-len(want))) > 1 { // one may differ by rounding at the edge
			t.Fatalf("%d candidates kept, want %d", got, len(want))
		}
	})
}

// Whatever was sampled before, in whatever order, and whichever sampler: the
// token depends on (params, accepted tokens, index, logits) only.
func TestNextIsAFunction(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, logits := drawParams(t)
		p.FrequencyPenalty = rapid.SampledFrom([]float64{0, 0.5}).Draw(t, "frequency")
		p.RepeatPenalty = rapid.SampledFrom([]float64{0, 1.3}).Draw(t, "repeat")
		prompt := []int32{0, 0, int32(len(logits) - 1), 70000, -1}
		shared := &Scratch{}
		a, errA := New(p, len(logits), prompt, shared)
		b, errB := New(p, len(logits), prompt, nil)
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		var answer []int32
		before := slices.Clone(logits)
		for index := range 8 {
			token, err := a.Next(index, logits)
			if err != nil {
				t.Fatal(err)
			}
			answer = append(answer, token)
			a.Accept(token)
		}
		if !slices.Equal(before, logits) {
			t.Fatal("Next changed the logits")
		}
		// The second attempt is forced along the first five tokens.
		for _, token := range answer[:5] {
			b.Accept(token)
		}
		if _, err := b.Next(77, logits); err != nil { // a draw that must not disturb
			t.Fatal(err)
		}
		for index := 5; index < 8; index++ {
			token, err := b.Next(index, logits)
			if err != nil || token != answer[index] {
				t.Fatalf("index %d: %d, first attempt had %d (%v)", index, token, answer[index], err)
			}
			b.Accept(token)
		}
	})
}

func TestDistribution(t *testing.T) {
	logits := []float32{0, 1, 2, 2, -1, 0.5, -3, -inf}
	for _, p := range []Params{
		{Temperature: 1},
		{Temperature: 0.7, Seed: 3},
		{Temperature: 1.5, TopK: 4, Seed: 9},
		{Temperature: 1, TopP: 0.8, Seed: 11},
		{Temperature: 1, MinP: 0.2, Seed: 12},
		{Temperature: 2, TopK: 6, TopP: 0.9, MinP: 0.05, Seed: 13},
	} {
		t.Run(fmt.Sprintf("%+v", p), func(t *testing.T) {
			const n = 50_000
			s := sampler(t, p, len(logits))
			counts := map[int32]float64{}
			for i := range n {
				counts[next(t, s, i, logits)]++
			}
			want, chi := reference(p, logits), 0.0
			for id := range counts {
				if want[id] == 0 {
					t.Fatalf("token %d was cut but sampled", id)
				}
			}
			for id, q := range want {
				chi += (counts[id] - n*q) * (counts[id] - n*q) / (n * q)
			}
			if chi > 26 { // at most 6 degrees of freedom: p < 0.0003
				t.Errorf("chi-square %.1f: counts %v, want shares %v", chi, counts, want)
			}
		})
	}
}

func TestPenalties(t *testing.T) {
	for _, c := range []struct {
		name     string
		p        Params
		prompt   []int32
		accepted []int32
		logits   []float32
		want     int32
	}{
		{"frequency counts every one", Params{FrequencyPenalty: 1}, nil, []int32{0, 0}, []float32{3, 1.5}, 1},
		{"frequency once is not enough", Params{FrequencyPenalty: 1}, nil, []int32{0}, []float32{3, 1.5}, 0},
		{"presence counts once", Params{PresencePenalty: 1}, nil, []int32{0, 0, 0}, []float32{3, 1.5}, 0},
		{"presence", Params{PresencePenalty: 2}, nil, []int32{0}, []float32{3, 1.5}, 1},
		{"prompt is no presence", Params{PresencePenalty: 2}, []int32{0}, nil, []float32{3, 1.5}, 0},
		{"repetition sees the prompt", Params{RepeatPenalty: 3}, []int32{0}, nil, []float32{3, 1.5}, 1},
		{"repetition pushes negatives down", Params{RepeatPenalty: 3}, []int32{0}, nil, []float32{-1, -1.5}, 1},
		{"negative penalty lifts", Params{PresencePenalty: -2}, nil, []int32{1}, []float32{3, 1.5}, 1},
		{"bias", Params{LogitBias: map[int32]float64{1: 100}}, nil, nil, []float32{3, 1.5}, 1},
		{"bias cannot lift the forbidden", Params{LogitBias: map[int32]float64{1: 100}}, nil, nil, []float32{3, -inf}, 0},
		{"bias and penalty on one token", Params{LogitBias: map[int32]float64{1: 2}, PresencePenalty: 1}, nil, []int32{1}, []float32{3, 1.5}, 0},
	} {
		s, err := New(c.p, len(c.logits), c.prompt, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, token := range c.accepted {
			s.Accept(token)
		}
		before := slices.Clone(c.logits)
		if got := next(t, s, 0, c.logits); got != c.want {
			t.Errorf("%s: token %d, want %d", c.name, got, c.want)
		}
		if !slices.Equal(before, c.logits) {
			t.Errorf("%s: logits changed to %v", c.name, c.logits)
		}
	}
}

// The answer for a seed is public behaviour: a change would break attempts that
// cross an upgrade.
func TestGoldenTokens(t *testing.T) {
	logits := wave(1000)
	s := sampler(t, Params{Temperature: 0.8, TopK: 200, TopP: 0.95, MinP: 0.01, FrequencyPenalty: 0.4, Seed: 42}, len(logits))
	var got []int32
	for i := range 12 {
		token := next(t, s, i, logits)
		s.Accept(token)
		got = append(got, token)
	}
	want := []int32{490, 207, 207, 110, 965, 265, 371, 224, 843, 265, 672, 843}
	if !slices.Equal(got, want) {
		t.Errorf("tokens %v, want %v", got, want)
	}
}

// wave makes logits whose spread resembles a model's: most far below the best.
func wave(n int) []float32 {
	logits := make([]float32, n)
	for i := range logits {
		u := Uniform(1, i)
		logits[i] = float32(18*u*u*u*u - 6 + 2*Uniform(2, i))
	}
	return logits
}

func TestNoAllocation(t *testing.T) {
	logits := wave(4096)
	s := sampler(t, Params{Temperature: 1, TopK: 1000, TopP: 0.9, MinP: 0.01, FrequencyPenalty: 0.1}, len(logits))
	for i := range 100 {
		s.Accept(next(t, s, i, logits))
	}
	if n := testing.AllocsPerRun(100, func() { s.Accept(next(t, s, 5, logits)) }); n != 0 {
		t.Errorf("%v allocations per token", n)
	}
}

func BenchmarkNext(b *testing.B) {
	for _, vocab := range []int{32_000, 256_000} {
		for name, p := range map[string]Params{
			"greedy": {}, "pure": {Temperature: 1}, "top_k=40": {Temperature: 0.8, TopK: 40},
			"top_p=0.95": {Temperature: 1, TopP: 0.95}, "all": {Temperature: 0.8, TopK: 40, TopP: 0.95, MinP: 0.05, RepeatPenalty: 1.1},
		} {
			for _, shape := range []string{"peaked", "flat"} {
				b.Run(fmt.Sprintf("vocab=%d/%s/%s", vocab, name, shape), func(b *testing.B) {
					logits := wave(vocab)
					if shape == "flat" { // random weights: little opinion
						for i := range logits {
							logits[i] = float32(Uniform(3, i))
						}
					}
					s := sampler(b, p, vocab)
					b.ReportAllocs()
					for i := 0; b.Loop(); i++ {
						next(b, s, i, logits)
					}
				})
			}
		}
	}
}
