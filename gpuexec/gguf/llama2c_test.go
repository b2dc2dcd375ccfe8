package gguf_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/weir-dev/weir/gpuexec/gguf"
)

// shared finds a file of the test models beside the repository, or skips.
func shared(t *testing.T, name string) []byte {
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
	b, err := os.ReadFile(filepath.Join(dir, "..", "shared", "models", name))
	if err != nil {
		t.Skipf("the test model is absent: %v", err)
	}
	return b
}

func TestConvertStories(t *testing.T) {
	var b bytes.Buffer
	if err := gguf.ConvertLlama2c(&b, shared(t, "stories260K.bin"), shared(t, "tok512.bin"), "stories260K"); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Parse(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	q := f.Tensor("blk.4.ffn_down.weight")
	if q == nil || q.Cols() != 172 || q.Rows() != 64 {
		t.Fatalf("blk.4.ffn_down.weight is %+v", q)
	}
	if n, _, _ := f.Uint("llama.attention.head_count_kv"); n != 4 {
		t.Errorf("%d KV heads", n)
	}
}

// checkpoint is a llama2.c file with one layer; negative vocab stores the output
// matrix apart.
func checkpoint(vocab int32) []byte {
	h := []int32{4, 6, 1, 2, 1, vocab, 8}
	rows := max(vocab, -vocab)
	n := rows*4 + 4 + 16 + 8 + 8 + 16 + 4 + 24*3 + 4 + 8*2
	if vocab < 0 {
		n += rows * 4
	}
	var b []byte
	for _, v := range h {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	for i := range n {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(i)))
	}
	return b
}

func tokens(n int) []byte {
	b := []byte{1, 0, 0, 0}
	for i := range n {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(-i)))
		b = append(b, 1, 0, 0, 0, ' ')
	}
	return b
}

func TestConvertRefuses(t *testing.T) {
	good, vocab := checkpoint(300), tokens(300)
	with := func(at int, v int32) []byte {
		b := append([]byte(nil), good...)
		binary.LittleEndian.PutUint32(b[4*at:], uint32(v))
		return b
	}
	cases := map[string]struct {
		model, tokenizer []byte
		want             error
	}{
		"good":              {good, vocab, nil},
		"output apart":      {checkpoint(-300), vocab, nil},
		"empty":             {nil, vocab, gguf.ErrTruncated},
		"cut":               {good[:len(good)-1], vocab, gguf.ErrTruncated},
		"longer":            {append(append([]byte(nil), good...), 0), vocab, gguf.ErrFormat},
		"heads":             {with(3, 3), vocab, gguf.ErrFormat},
		"negative":          {with(0, -4), vocab, gguf.ErrFormat},
		"huge":              {with(2, 1<<20), vocab, gguf.ErrTruncated},
		"other vocabulary":  {good, tokens(299), gguf.ErrFormat},
		"no tokenizer":      {good, nil, gguf.ErrTruncated},
		"cut tokenizer":     {good, vocab[:len(vocab)-1], gguf.ErrTruncated},
		"cut in the middle": {good, vocab[:len(vocab)-5], gguf.ErrTruncated},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := gguf.ConvertLlama2c(&b, c.model, c.tokenizer, "x"); !errors.Is(err, c.want) {
				t.Fatalf("error %v, want %v", err, c.want)
			}
			if c.want != nil {
				return
			}
			f, err := gguf.Parse(b.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			embed, _ := f.Tensor("token_embd.weight").Float32()
			out, _ := f.Tensor("output.weight").Float32()
			if tied := embed[0] == out[0]; tied != (name == "good") {
				t.Errorf("output shared with the embedding: %v", tied)
			}
		})
	}
}
