package calib_test

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weir-dev/weir/schemas/calib"
)

// load reads a given calibration, or skips: they are no part of the repository.
func load(t *testing.T, name string) *calib.Calibration {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		b, err := os.ReadFile(filepath.Join(dir, "shared", "calib", name+".json"))
		if err == nil {
			c, err := calib.Parse(b)
			if err != nil {
				t.Fatal(err)
			}
			c.Derate = 1
			return c
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Skipf("no shared/calib/%s.json above the working folder", name)
		}
		dir = up
	}
}

const glm, kimi = "glm-5.2_gb300_dep4", "kimi-k2.6_gb300_dep4"

func near(t *testing.T, what string, got time.Duration, wantMS float64) {
	t.Helper()
	if ms := got.Seconds() * 1e3; math.Abs(ms-wantMS) > 0.0006 {
		t.Errorf("%s takes %.3f ms, want %.3f", what, ms, wantMS)
	}
}

// TestGolden: the vectors that stand beside the given calibrations.
func TestGolden(t *testing.T) {
	for i, name := range []string{glm, kimi} {
		c := load(t, name)
		for _, v := range []struct {
			n, prefix int
			ms        [2]float64
		}{
			{512, 0, [2]float64{107.826, 54.452}},
			{1024, 8192, [2]float64{117.941, 67.138}},
			{2048, 32768, [2]float64{157.841, 144.801}},
			{4096, 65536, [2]float64{322.306, 361.341}},
			{8192, 0, [2]float64{553.118, 396.025}},
			{8192, 32768, [2]float64{593.115, 558.429}},
			{8192, 131072, [2]float64{713.106, 1045.639}},
		} {
			rank := []calib.Chunk{{Tokens: v.n, Prefix: v.prefix}}
			d, err := c.PrefillStep(rank, rank, rank, rank)
			if err != nil {
				t.Fatal(err)
			}
			near(t, name+" prefill", d, v.ms[i])
		}
		for _, v := range []struct {
			b  int
			ms [2]float64
		}{{16, [2]float64{27.761, 29.908}}, {64, [2]float64{32.343, 41.632}}, {256, [2]float64{44.973, 82.828}}} {
			d, err := c.DecodeStep(v.b, float64(v.b)*100_000)
			if v.b == 256 { // beyond the memory of a worker, and the file says so
				if !errors.Is(err, calib.ErrRange) {
					t.Errorf("%s: 25.6 M tokens of context: %v", name, err)
				}
				c.Extrapolate = true
				d, err = c.DecodeStep(v.b, float64(v.b)*100_000)
			}
			if err != nil {
				t.Fatal(err)
			}
			near(t, name+" decode", d, v.ms[i])
		}
	}
}

// TestSmallSteps: below the closed form's range the measured grid stands, which knows
// the launch floor of small chunks.
func TestSmallSteps(t *testing.T) {
	c := load(t, kimi)
	step := func(n, prefix int) float64 {
		d, err := c.PrefillStep([]calib.Chunk{{Tokens: n, Prefix: prefix}})
		if err != nil {
			t.Fatal(err)
		}
		return d.Seconds() * 1e3
	}
	for _, r := range c.Prefill.Grid {
		if r[0] < c.Range.N[0] && r[1] <= c.Range.Prefix[1] {
			if got := step(int(r[0]), int(r[1])); math.Abs(got-r[2]) > 0.001 {
				t.Errorf("%v: %.3f ms", r, got)
			}
		}
	}
	if a, b, x := step(64, 0), step(128, 0), step(96, 0); x < min(a, b) || x > max(a, b) {
		t.Errorf("96 tokens take %.2f ms, 64 take %.2f and 128 %.2f", x, a, b)
	}
}

// TestDecodeRun: the closed form is the sum of its steps, and StepsWithin its inverse.
func TestDecodeRun(t *testing.T) {
	c := load(t, kimi)
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.IntRange(1, 256).Draw(t, "b")
		k := rapid.Float64Range(0, 4e6).Draw(t, "k")
		n := rapid.IntRange(1, 400).Draw(t, "n")
		var sum time.Duration
		for i := range n {
			d, err := c.DecodeStep(b, k+float64(i)*c.Spec.AL*float64(b))
			if err != nil {
				t.Fatal(err)
			}
			sum += d
		}
		run, err := c.DecodeRun(b, k, n)
		if err != nil {
			t.Fatal(err)
		}
		if diff := run - sum; diff.Abs() > time.Duration(n) {
			t.Fatalf("%d steps take %s, one by one %s", n, run, sum)
		}
		if got := c.StepsWithin(b, k, run+time.Microsecond); got != n {
			t.Fatalf("%d steps fit into %s, want %d", got, run, n)
		}
	})
}

// TestRefuses: what is outside the range, and files that contradict themselves.
func TestRefuses(t *testing.T) {
	c := load(t, glm)
	for what, err := range map[string]error{
		"too many tokens": second(c.PrefillStep([]calib.Chunk{{Tokens: 9000}})),
		"too long":        second(c.PrefillStep([]calib.Chunk{{Tokens: 600, Prefix: 300_000}})),
		"too many ranks":  second(c.PrefillStep(make([][]calib.Chunk, 4)...)),
		"five ranks":      second(c.PrefillStep([]calib.Chunk{{Tokens: 1}}, nil, nil, nil, nil)),
		"negative":        second(c.PrefillStep([]calib.Chunk{{Tokens: -1}})),
		"too many rows":   second(c.DecodeStep(257, 0)),
		"too much KV":     second(c.DecodeRun(256, 8e6, 1000)),
	} {
		if what == "too many ranks" { // four empty ranks are no work
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
			continue
		}
		if !errors.Is(err, calib.ErrRange) {
			t.Errorf("%s: %v", what, err)
		}
	}
	const good = `{"schema":"calib/v1","id":"x","layout":{"gpus":1,"attn_dp":1},"prefill":{"form":"max(floor,a*n)+c*S+m0+m1*N","coef":{"floor":1}},` +
		`"decode":{"grid_B":[0,4],"ms":[1,2],"max_B":4},"mem":{"kv_bytes_tok":1,"kv_tokens":10}}`
	if _, err := calib.Parse([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for _, r := range [][2]string{
		{"calib/v1", "calib/v2"},
		{`"gpus":1`, `"gpus":0`},
		{"c*S", "c*S*S"},
		{`"floor":1`, `"floor":-1`},
		{"[0,4]", "[4,0]"},
		{"[0,4]", "[4,4]"},
		{"[0,4]", "[4]"},
		{`"kv_tokens":10`, `"kv_tokens":0`},
		{"{", "["},
	} {
		if _, err := calib.Parse([]byte(strings.Replace(good, r[0], r[1], 1))); !errors.Is(err, calib.ErrFile) {
			t.Errorf("%s for %s: %v", r[1], r[0], err)
		}
	}
}

func second(_ time.Duration, err error) error { return err }

// TestLinks: a transfer takes its latency and its bytes.
func TestLinks(t *testing.T) {
	c := load(t, glm)
	l, ok := c.Link("p2d")
	if !ok {
		t.Fatal("no link p2d")
	}
	near(t, "5 GB from prefill to decode", l.Time(5e9), 3+5e9/150e9*1e3)
	if _, ok := c.Link("telegraph"); ok {
		t.Error("a link that no file names")
	}
}
