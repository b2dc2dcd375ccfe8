package agree

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/weir-dev/weir/schemas"
)

const (
	p = schemas.RolePrefill
	d = schemas.RoleDecode
)

func TestCompare(t *testing.T) {
	log := []Change{{10, 3, d}, {12, 2, d}, {50, 2, p}, {55, 3, p}}
	tests := map[string]struct {
		live          []Change
		matched, ties int
		share         float64
	}{
		"the same":                   {log, 4, 0, 1},
		"a little later":             {[]Change{{13, 3, d}, {15, 2, d}, {52, 2, p}, {58, 3, p}}, 4, 0, 1},
		"other executors, same role": {[]Change{{10, 1, d}, {12, 2, d}, {50, 1, p}, {55, 2, p}}, 4, 3, 1},
		"one is missing":             {[]Change{{10, 3, d}, {50, 2, p}, {55, 3, p}}, 3, 0, 0.75},
		"one is too late":            {[]Change{{10, 3, d}, {40, 2, d}, {50, 2, p}, {55, 3, p}}, 3, 0, 0.75},
		"the other way":              {[]Change{{10, 3, p}, {12, 2, p}, {50, 2, d}, {55, 3, d}}, 0, 0, 0},
		"more than there are":        {append([]Change{{1, 8, p}, {3, 8, d}}, log...), 4, 0, 4.0 / 6},
		"nothing":                    {nil, 0, 0, 0},
	}
	for name, tt := range tests {
		a := Compare(log, tt.live, 5)
		if a.Matched != tt.matched || a.Ties != tt.ties || math.Abs(a.Share-tt.share) > 1e-9 {
			t.Errorf("%s: %+v, want %d matched, %d ties, share %.2f", name, a, tt.matched, tt.ties, tt.share)
		}
		if n := len(a.Pairs); n != len(log)+len(tt.live)-tt.matched {
			t.Errorf("%s: %d pairs of %d and %d changes", name, n, len(log), len(tt.live))
		}
	}
	if a := Compare(nil, nil, 5); a.Share != 1 {
		t.Errorf("two empty logs agree by %g", a.Share)
	}
}

func TestCompareProperties(t *testing.T) {
	logs := rapid.Custom(func(t *rapid.T) []Change {
		var out []Change
		at := 0.0
		for range rapid.IntRange(0, 12).Draw(t, "n") {
			at += rapid.Float64Range(0, 9).Draw(t, "gap")
			out = append(out, Change{at, rapid.IntRange(0, 8).Draw(t, "executor"), rapid.SampledFrom([]schemas.Role{p, d}).Draw(t, "to")})
		}
		return out
	})
	rapid.Check(t, func(rt *rapid.T) {
		x, y := logs.Draw(rt, "x"), logs.Draw(rt, "y")
		if a := Compare(x, x, 1); a.Share != 1 || a.Ties != 0 || a.MaxLagS != 0 {
			rt.Fatalf("a log agrees with itself by %+v", a)
		}
		a, b := Compare(x, y, 5), Compare(y, x, 5)
		if a.Matched != b.Matched || a.Ties != b.Ties || a.Matched > min(len(x), len(y)) || a.Ties > a.Matched {
			rt.Fatalf("%+v one way, %+v the other", a, b)
		}
		if wide := Compare(x, y, 50); wide.Matched < a.Matched {
			rt.Fatalf("a wider tolerance matches less: %+v, %+v", wide, a)
		}
	})
}

func TestSplitShare(t *testing.T) {
	one := []Change{{10, 1, d}, {30, 1, p}}
	for name, tt := range map[string]struct {
		live []Change
		want float64
	}{
		"the same":        {one, 1},
		"never changes":   {nil, 0.6},
		"2 s later":       {[]Change{{12, 1, d}, {32, 1, p}}, 0.92},
		"other executors": {[]Change{{10, 2, d}, {30, 3, p}}, 1},
	} {
		if got := splitShare(one, tt.live, 50); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%s: %g, want %g", name, got, tt.want)
		}
	}
}
