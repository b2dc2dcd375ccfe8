package goengine_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/gpuexec/gguf"
	"github.com/weir-dev/weir/gpuexec/goengine"
	"github.com/weir-dev/weir/gpuexec/spm"
)

func random(t *testing.T, s gguf.Shape) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := gguf.WriteRandom(&b, s, gguf.PresetVocabulary()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func parse(t *testing.T, b []byte) *gguf.File {
	t.Helper()
	f, err := gguf.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestShapes: exactness and scalar equality for every weight type and for widths
// that fill no whole register.
func TestShapes(t *testing.T) {
	base := gguf.Shape{Name: "x", Layers: 2, Context: 256, RopeBase: 1e4}
	with := func(typ gguf.TensorType, dim, heads, kv, head, ffn int) gguf.Shape {
		s := base
		s.Type, s.Dim, s.Heads, s.KVHeads, s.HeadDim, s.FFN = typ, dim, heads, kv, head, ffn
		return s
	}
	for name, s := range map[string]gguf.Shape{
		"F32 odd":         with(gguf.F32, 30, 3, 1, 10, 37),
		"F16":             with(gguf.F16, 48, 6, 2, 8, 100),
		"F32 head 72":     with(gguf.F32, 144, 2, 2, 72, 64),
		"Q8_0":            with(gguf.Q8_0, 96, 3, 3, 32, 160),
		"Q8_0 wide heads": with(gguf.Q8_0, 64, 4, 2, 64, 96),
	} {
		t.Run(name, func(t *testing.T) {
			f := parse(t, random(t, s))
			const n = 100
			tokens := prompt(3, n, 512)
			e := engine(t, f, goengine.Options{Slots: 2})
			prefill(t, e, 0, tokens, gpuexec.BlockTokens)
			want := snapshot(t, e, 0, (n-1)%gpuexec.BlockTokens)
			prefill(t, e, 1, tokens, 1)
			want.equal(t, "token by token", snapshot(t, e, 1, 0))
			scalar := engine(t, f, goengine.Options{Slots: 2, Scalar: true})
			prefill(t, scalar, 0, tokens, 5)
			want.equal(t, "scalar", snapshot(t, scalar, 0, (n-1)%5))
		})
	}
}

// TestNewRefuses: a model that would be computed wrongly, or not at all, is an error
// that says what is wrong.
func TestNewRefuses(t *testing.T) {
	shape, err := gguf.Preset("tiny")
	if err != nil {
		t.Fatal(err)
	}
	shape.Layers, shape.Dim = 1, 64
	good := random(t, shape)
	set := func(key string, v any) func(*gguf.File) {
		return func(f *gguf.File) { f.Meta[key] = v }
	}
	rename := func(from, to string) func(*gguf.File) { // a tensor of another name
		return func(f *gguf.File) {
			b := bytes.Replace(good, []byte(from), []byte(to), 1)
			*f = *parse(t, b)
		}
	}
	cases := []struct {
		name   string
		change func(*gguf.File)
		opt    goengine.Options
		text   string
	}{
		{"architecture", set("general.architecture", "qwen3moe"), goengine.Options{}, `architecture "qwen3moe"`},
		{"no width", func(f *gguf.File) { delete(f.Meta, "llama.embedding_length") }, goengine.Options{}, "embedding_length"},
		{"huge width", set("llama.embedding_length", uint32(1<<31)), goengine.Options{}, "embedding_length"},
		{"zero heads", set("llama.attention.head_count", uint32(0)), goengine.Options{}, "head_count"},
		{"odd groups", set("llama.attention.head_count_kv", uint32(3)), goengine.Options{}, "3 KV heads"},
		{"values", set("llama.attention.value_length", uint32(16)), goengine.Options{}, "values of 16"},
		{"experts", set("llama.expert_count", uint32(8)), goengine.Options{}, "8 experts"},
		{"scaling", set("llama.rope.scaling.type", "yarn"), goengine.Options{}, `"yarn"`},
		{"epsilon", set("llama.attention.layer_norm_rms_epsilon", float32(-1)), goengine.Options{}, "epsilon"},
		{"base", set("llama.rope.freq_base", float32(0)), goengine.Options{}, "freq_base"},
		{"other width", set("llama.feed_forward_length", uint32(96)), goengine.Options{}, "dimensions"},
		{"missing tensor", rename("blk.0.attn_q.weight", "blk.0.attn_x.weight"), goengine.Options{}, "lacks tensor blk.0.attn_q.weight"},
		{"more layers", set("llama.block_count", uint32(2)), goengine.Options{}, "lacks tensor blk.1."},
		{"tensor type", func(f *gguf.File) { f.Tensor("output.weight").Type = 12 }, goengine.Options{}, "ggml type 12"},
		{"context", nil, goengine.Options{Context: 40000}, "context of 40000"},
		{"slots", nil, goengine.Options{Slots: -1}, "-1 slots"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := parse(t, good)
			if c.change != nil {
				c.change(f)
			}
			_, err := goengine.New(f, c.opt)
			if !errors.Is(err, gpuexec.ErrUnsupported) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("error %v, want ErrUnsupported with %q", err, c.text)
			}
		})
	}
	// A tied output is the embedding; a tensor that nothing reads is refused.
	f := parse(t, bytes.Replace(good, []byte("\x00output.weight"), []byte("\x00outpux.weight"), 1))
	if _, err := goengine.New(f, goengine.Options{}); err == nil || !strings.Contains(err.Error(), "outpux.weight") {
		t.Errorf("a tensor that nothing reads: error %v", err)
	}
	f.Tensors = f.Tensors[:len(f.Tensors)-1]
	if _, err := goengine.New(f, goengine.Options{Slots: 1, Context: 64}); err != nil {
		t.Errorf("tied output: %v", err)
	}
}

// stories is the converted story model from beside the repository.
func stories(t *testing.T) *gguf.File {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			break
		}
		if filepath.Dir(dir) == dir {
			t.Skip("no go.work above the test: the repository root is unknown")
		}
		dir = filepath.Dir(dir)
	}
	var parts [2][]byte
	for i, name := range []string{"stories260K.bin", "tok512.bin"} {
		if parts[i], err = os.ReadFile(filepath.Join(dir, "..", "shared", "models", name)); err != nil {
			t.Skipf("the test model is absent: %v", err)
		}
	}
	var b bytes.Buffer
	if err := gguf.ConvertLlama2c(&b, parts[0], parts[1], "stories260K"); err != nil {
		t.Fatal(err)
	}
	return parse(t, b.Bytes())
}

// TestStories: greedy text of a trained model. The tokens are those of llama.cpp
// v0.4.0 (one thread, flash attention off) for the same prompt.
func TestStories(t *testing.T) {
	f := stories(t)
	want := []int32{
		432, 383, 286, 261, 376, 298, 315, 421, 395, 317, 426, 338, 401, 396, 267, 337, 410, 408, 419, 292, 411, 322, 265, 282, 295,
		433, 426, 385, 328, 432, 358, 394, 261, 370, 432, 352, 266, 268, 388, 426, 338, 391, 266, 267, 337, 335, 312, 432, 398, 312,
		286, 267, 414, 270, 333, 415, 426, 13, 438, 310, 439, 419, 357, 336, 432, 313, 438, 310, 432, 278, 316, 439, 419, 298, 414,
		267, 265, 282, 295, 433, 426, 436, 317, 286, 296, 418, 269, 279, 292, 416, 439, 413, 409, 416, 327, 263, 415, 294, 267, 400,
	}
	v, err := spm.New(f, "stories260K")
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := v.Tokenize("Once upon a time", true, true)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]int32{1, 403, 407, 261, 378}, tokens); d != "" {
		t.Fatal(d)
	}
	e := engine(t, f, goengine.Options{Slots: 1})
	prefill(t, e, 0, tokens, gpuexec.BlockTokens)
	next := best(e.Logits(len(tokens) - 1))
	var got []int32
	for range want {
		got = append(got, next)
		if err := e.Step(gpuexec.PhaseDecode, []gpuexec.Row{{Token: next, Pos: int32(e.Len(0)), Logits: true}}); err != nil {
			t.Fatal(err)
		}
		next = best(e.Logits(0))
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func best(logits []float32) int32 {
	top := 0
	for i, v := range logits {
		if v > logits[top] {
			top = i
		}
	}
	return int32(top)
}
