package sampling

import (
	"math"
	"testing"
)

func TestExpAgainstMath(t *testing.T) {
	for i := range 200_000 {
		x := -700 * float64(i) / 200_000
		got, want := exp(x), math.Exp(x)
		if math.Abs(got-want) > 1e-15*want {
			t.Fatalf("exp(%v) = %v, want %v (off by %.2g)", x, got, want, got/want-1)
		}
	}
	for x, want := range map[float64]float64{0: 1, -701: 0, math.Inf(-1): 0, math.NaN(): 0} {
		if got := exp(x); got != want {
			t.Errorf("exp(%v) = %v, want %v", x, got, want)
		}
	}
}

func TestExpNeverRises(t *testing.T) {
	last := exp(0)
	for i := range 1_000_000 {
		v := exp(-float64(i) * 4e-5)
		if v > last {
			t.Fatalf("exp(-%v) = %v is above its left neighbour %v", float64(i)*4e-5, v, last)
		}
		last = v
	}
}

func TestLogAgainstMath(t *testing.T) {
	for i := range 100_000 {
		x := math.Exp(-5 + float64(i)*2e-4)
		got, want := log(x), math.Log(x)
		if math.Abs(got-want) > 1e-15*math.Max(1, math.Abs(want)) {
			t.Fatalf("log(%v) = %v, want %v", x, got, want)
		}
	}
	if log(1) != 0 {
		t.Errorf("log(1) = %v", log(1))
	}
}

// The bits are part of the promise: another machine must find the same ones.
func TestExactBits(t *testing.T) {
	for _, c := range []struct {
		f    func(float64) float64
		x    float64
		bits uint64
	}{
		{exp, -1, 0x3fd78b56362cef38},
		{exp, -10.25, 0x3f02899a7a835446},
		{exp, -39.9, 0x3c55a7104ddea036},
		{log, 10, 0x40026bb1bbb55516},
		{log, 0.3, 0xbff34378fcbda721},
	} {
		if got := math.Float64bits(c.f(c.x)); got != c.bits {
			t.Errorf("f(%v) has bits %#x, want %#x", c.x, got, c.bits)
		}
	}
}

// Published outputs of SplitMix64 for seed 1234567 (Rosetta Code,
// "Pseudo-random numbers/Splitmix64").
func TestSplitMix64KnownAnswers(t *testing.T) {
	state := uint64(1234567)
	for i, want := range []uint64{
		6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821,
	} {
		state += goldenGamma
		if got := mix64(state); got != want {
			t.Errorf("output %d is %d, want %d", i, got, want)
		}
	}
}

func TestUniform(t *testing.T) {
	const n, cells = 200_000, 100
	for seed := range uint64(3) {
		var counts [cells]float64
		for i := range n {
			u := Uniform(seed, i)
			if u < 0 || u >= 1 {
				t.Fatalf("Uniform(%d, %d) = %v", seed, i, u)
			}
			counts[int(u*cells)]++
		}
		chi := 0.0
		for _, c := range counts {
			chi += (c - n/cells) * (c - n/cells) / (n / cells)
		}
		if chi > 160 { // 99 degrees of freedom: p < 0.0001
			t.Errorf("seed %d: chi-square %.1f", seed, chi)
		}
	}
	// Neighbouring seeds must not be one stream shifted by a token.
	for i := range 1000 {
		if Uniform(7, i+1) == Uniform(8, i) || Uniform(7, i+1) == Uniform(7+goldenGamma, i) {
			t.Fatalf("streams overlap at %d", i)
		}
	}
}
