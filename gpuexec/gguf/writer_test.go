package gguf_test

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-dev/weir/gpuexec/gguf"
)

func TestRoundTrip(t *testing.T) {
	meta := []gguf.Pair{
		{"b", true},
		{"no", false},
		{"i", int32(-3)},
		{"u", uint32(4)},
		{"l", uint64(1 << 40)},
		{"f", float32(0.1)},
		{"s", "text"},
		{"as", []string{"a", "bc"}},
		{"af", []float32{1, -2}},
		{"ai", []int32{5, -6}},
	}
	x := make([]float32, 64)
	for i := range x {
		x[i] = float32(i-20) / 8
	}
	values := func() []float32 { return x }
	var b bytes.Buffer
	err := gguf.Write(&b, meta, []gguf.Source{
		{"plain", []int{3, 2}, gguf.F32, func() []float32 { return x[:6] }},
		{"half", []int{64}, gguf.F16, values},
		{"quant", []int{32, 2}, gguf.Q8_0, values},
	})
	if err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Parse(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range meta {
		if d := cmp.Diff(p.Value, f.Meta[p.Key]); d != "" {
			t.Errorf("%s: %s", p.Key, d)
		}
	}
	for name, want := range map[string][]float32{"plain": x[:6], "half": x, "quant": x} {
		tensor := f.Tensor(name)
		got, err := tensor.Float32()
		if err != nil {
			t.Fatal(err)
		}
		for i := range want {
			allowed := 0.0
			if name == "quant" {
				allowed = 5.5 / 127 / 2 * 1.01 // half a step of the larger block
			}
			if math.Abs(float64(got[i]-want[i])) > allowed {
				t.Errorf("%s[%d] = %v, want %v", name, i, got[i], want[i])
			}
		}
	}
	if q := f.Tensor("quant"); q.Rows() != 2 || q.Cols() != 32 || q.Type.String() != "Q8_0" {
		t.Errorf("quant is %d × %d of %v", q.Cols(), q.Rows(), q.Type)
	}
	if f.Tensor("none") != nil {
		t.Error("an absent tensor was found")
	}
}

// failing is a writer whose disk is full after n bytes.
type failing struct{ n int }

var errFull = errors.New("no space left")

func (w *failing) Write(b []byte) (int, error) {
	if w.n -= len(b); w.n < 0 {
		return 0, errFull
	}
	return len(b), nil
}

func TestWriteRefuses(t *testing.T) {
	one := func() []float32 { return []float32{1} }
	cases := map[string]struct {
		meta   []gguf.Pair
		source gguf.Source
		want   error
	}{
		"value type": {[]gguf.Pair{{"k", struct{}{}}}, gguf.Source{Name: "t", Dims: []int{1}, Values: one}, gguf.ErrUnsupported},
		"no dims":    {nil, gguf.Source{Name: "t", Values: one}, gguf.ErrFormat},
		"zero dim":   {nil, gguf.Source{Name: "t", Dims: []int{0}, Values: one}, gguf.ErrFormat},
		"count":      {nil, gguf.Source{Name: "t", Dims: []int{2}, Values: one}, gguf.ErrFormat},
		"ragged":     {nil, gguf.Source{Name: "t", Dims: []int{31}, Type: gguf.Q8_0, Values: one}, gguf.ErrUnsupported},
		"type":       {nil, gguf.Source{Name: "t", Dims: []int{1}, Type: 2, Values: one}, gguf.ErrUnsupported},
	}
	for name, c := range cases {
		if err := gguf.Write(&bytes.Buffer{}, c.meta, []gguf.Source{c.source}); !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", name, err, c.want)
		}
	}
	for _, n := range []int{10, 300000} {
		if err := gguf.WritePreset(&failing{n}, "tiny"); !errors.Is(err, errFull) {
			t.Errorf("full after %d bytes: error %v", n, err)
		}
	}
	if err := gguf.WritePreset(&bytes.Buffer{}, "huge"); !errors.Is(err, gguf.ErrUnsupported) {
		t.Errorf("unknown preset: %v", err)
	}
}

// TestHalf walks all 65,536 half precision numbers and the points between them.
func TestHalf(t *testing.T) {
	for i := range 1 << 16 {
		h := uint16(i)
		f := gguf.HalfToFloat(h)
		if f != f {
			if g := gguf.HalfToFloat(gguf.FloatToHalf(f)); g == g {
				t.Fatalf("NaN %x became %v", h, g)
			}
			continue
		}
		if got := gguf.FloatToHalf(f); got != h {
			t.Fatalf("%x is %v, which rounds to %x", h, f, got)
		}
		if h&0x7fff >= 0x7bff { // no finite neighbour above
			continue
		}
		up := gguf.HalfToFloat(h + 1)
		mid := float32((float64(f) + float64(up)) / 2)
		if want := h + h&1; gguf.FloatToHalf(mid) != want {
			t.Fatalf("the middle of %x and its neighbour rounds to %x, want the even %x", h, gguf.FloatToHalf(mid), want)
		}
		if got := gguf.FloatToHalf(math.Nextafter32(mid, f)); got != h {
			t.Fatalf("just below the middle of %x: %x", h, got)
		}
		if got := gguf.FloatToHalf(math.Nextafter32(mid, up)); got != h+1 {
			t.Fatalf("just above the middle of %x: %x", h, got)
		}
	}
	if gguf.FloatToHalf(65520) != 0x7c00 || gguf.FloatToHalf(65519) != 0x7bff || gguf.FloatToHalf(-1e30) != 0xfc00 {
		t.Error("overflow is not at 65520")
	}
}
