package llamacpp_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/gpuexec/gguf"
	"github.com/weir-dev/weir/gpuexec/llamacpp"
)

// TestBadModels: no file, however damaged, ends the process.
func TestBadModels(t *testing.T) {
	l := library(t)
	good, err := os.ReadFile(preset(t, "tiny"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := func(name string, b []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	replace := func(from, to string) []byte {
		if len(from) != len(to) || !strings.Contains(string(good), from) {
			t.Fatalf("cannot replace %q by %q", from, to)
		}
		return []byte(strings.ReplaceAll(string(good), from, to))
	}
	patch := func(at int, v uint32) []byte {
		b := bytes.Clone(good)
		binary.LittleEndian.PutUint32(b[at:], v)
		return b
	}
	// scalar replaces the value of a 4-byte key, tensorType that of a 2-D tensor.
	scalar := func(key string, v uint32) []byte {
		return patch(bytes.Index(good, []byte(key))+len(key)+4, v)
	}
	tensorType := func(name string, v uint32) []byte {
		return patch(bytes.Index(good, []byte(name))+len(name)+4+2*8, v)
	}
	cases := map[string]string{
		"absent":        filepath.Join(dir, "absent.gguf"),
		"a folder":      dir,
		"empty":         file("empty", nil),
		"text":          file("text", []byte("once upon a time")),
		"magic only":    file("magic", good[:4]),
		"header only":   file("header", good[:24]),
		"cut in keys":   file("keys", good[:3000]),
		"cut in data":   file("data", good[:len(good)-1000]),
		"half":          file("half", good[:len(good)/2]),
		"version 99":    file("version", append([]byte("GGUF\x63\x00\x00\x00"), good[8:]...)),
		"random counts": file("counts", append([]byte("GGUF\x03\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x7f"), good[24:]...)),
		"architecture":  file("arch", replace("llama.block_count", "llama.block_cound")),
		"tensor name":   file("tensor", replace("blk.2.attn_q", "blk.7.attn_q")),
		// Each of the following ends the process when it reaches the library.
		"twice a token": file("twice", replace("<0x41>", "<0x42>")),
		"no layers":     file("layers", scalar("llama.block_count", 0)),
		"many layers":   file("many", scalar("llama.block_count", 100_000)),
		"NaN epsilon":   file("epsilon", scalar("llama.attention.layer_norm_rms_epsilon", 0x7fc00000)),
		"alignment 8":   file("align", scalar("general.alignment", 8)),
		"int8 matrix":   file("int8", tensorType("\x00output.weight", 24)),
	}
	for name, path := range cases {
		if _, err := llamacpp.Open(l, path, llamacpp.Options{Context: 64}); !errors.Is(err, llamacpp.ErrModel) {
			t.Errorf("%s: error %v, want ErrModel", name, err)
		} else {
			t.Logf("%s: %s", name, strings.ReplaceAll(err.Error(), dir, "DIR"))
		}
	}
	for _, name := range []string{"absent", "text", "cut in keys", "version 99"} {
		if _, err := llamacpp.OpenVocab(l, cases[name]); !errors.Is(err, llamacpp.ErrModel) {
			t.Errorf("%s: vocabulary error %v, want ErrModel", name, err)
		}
	}
}

func TestBadOptions(t *testing.T) {
	l, path := library(t), preset(t, "tiny")
	for _, o := range []llamacpp.Options{
		{Slots: -1},
		{Slots: 1000},
		{Context: -5},
		{Context: 32769},
		{Context: 1 << 40},
		{Threads: -1},
		{Threads: 1 << 20},
		{GPULayers: -2},
		{FlashAttention: 9},
		{KVType: "f8"},
	} {
		if _, err := llamacpp.Open(l, path, o); !errors.Is(err, gpuexec.ErrUnsupported) {
			t.Errorf("%+v: error %v, want ErrUnsupported", o, err)
		} else {
			t.Logf("%v", err)
		}
	}
}

// TestUnsupportedModel: a model whose state is not a row per token is refused with
// the property named.
func TestUnsupportedModel(t *testing.T) {
	l := library(t)
	path := filepath.Join(t.TempDir(), "window.gguf")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(writeWindowModel(f), f.Close()); err != nil {
		t.Fatal(err)
	}
	_, err = llamacpp.Open(l, path, llamacpp.Options{Context: 128})
	if !errors.Is(err, gpuexec.ErrUnsupported) || !strings.Contains(err.Error(), "sliding-window") {
		t.Errorf("a sliding-window model gives %v", err)
	}
}

// writeWindowModel writes a minimal gemma2 model, which has sliding-window layers.
func writeWindowModel(f *os.File) error {
	const dim, ffn, head, layers = 64, 128, 16, 2
	v := gguf.PresetVocabulary()
	meta := []gguf.Pair{
		{Key: "general.architecture", Value: "gemma2"},
		{Key: "gemma2.context_length", Value: uint32(256)},
		{Key: "gemma2.embedding_length", Value: uint32(dim)},
		{Key: "gemma2.block_count", Value: uint32(layers)},
		{Key: "gemma2.feed_forward_length", Value: uint32(ffn)},
		{Key: "gemma2.attention.head_count", Value: uint32(4)},
		{Key: "gemma2.attention.head_count_kv", Value: uint32(4)},
		{Key: "gemma2.attention.key_length", Value: uint32(head)},
		{Key: "gemma2.attention.value_length", Value: uint32(head)},
		{Key: "gemma2.attention.sliding_window", Value: uint32(64)},
		{Key: "gemma2.attention.layer_norm_rms_epsilon", Value: float32(1e-5)},
		{Key: "tokenizer.ggml.model", Value: "llama"},
		{Key: "tokenizer.ggml.tokens", Value: v.Tokens},
		{Key: "tokenizer.ggml.scores", Value: v.Scores},
		{Key: "tokenizer.ggml.token_type", Value: v.Types},
		{Key: "tokenizer.ggml.bos_token_id", Value: uint32(1)},
		{Key: "tokenizer.ggml.eos_token_id", Value: uint32(2)},
	}
	var tensors []gguf.Source
	add := func(name string, dims ...int) {
		n := 1
		for _, d := range dims {
			n *= d
		}
		tensors = append(tensors, gguf.Source{Name: name + ".weight", Dims: dims, Type: gguf.F32, Values: func() []float32 { return make([]float32, n) }})
	}
	add("token_embd", dim, len(v.Tokens))
	add("output_norm", dim)
	for _, p := range []string{"blk.0.", "blk.1."} {
		for _, norm := range []string{"attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"} {
			add(p+norm, dim)
		}
		for _, m := range []string{"attn_q", "attn_k", "attn_v", "attn_output"} {
			add(p+m, dim, dim)
		}
		add(p+"ffn_gate", dim, ffn)
		add(p+"ffn_up", dim, ffn)
		add(p+"ffn_down", ffn, dim)
	}
	return gguf.Write(f, meta, tensors)
}
