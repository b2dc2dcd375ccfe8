package gguf

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"strings"
)

// ConvertLlama2c writes the GGUF of a llama2.c checkpoint (version 0: seven int32
// and float32 tensors) and its tokenizer file. Matrices are F32. The format is
// described by export.py and run.c of github.com/karpathy/llama2.c. Errors wrap
// ErrTruncated or ErrFormat.
func ConvertLlama2c(w io.Writer, model, tokenizer []byte, name string) error {
	c, err := readLlama2c(model)
	if err != nil {
		return fmt.Errorf("llama2.c model: %w", err)
	}
	v, err := readLlama2cVocab(tokenizer)
	if err != nil {
		return fmt.Errorf("llama2.c tokenizer: %w", err)
	}
	if len(v.Tokens) != c.vocab {
		return fmt.Errorf("llama2.c tokenizer has %d tokens, the model %d: %w", len(v.Tokens), c.vocab, ErrFormat)
	}
	c.shape.Name = name
	return Write(w, metadata(c.shape, v), c.sources())
}

// llama2c is a parsed checkpoint. Per-layer tensors hold all layers in a row.
type llama2c struct {
	shape                                   Shape
	vocab                                   int
	embed, normAttn, wq, wk, wv, wo         []float32
	normFFN, gate, down, up, normOut, logit []float32
}

const llama2cMax = 1 << 24 // bound on every count of the header

func readLlama2c(b []byte) (*llama2c, error) {
	const headerInts = 7
	if len(b) < 4*headerInts {
		return nil, fmt.Errorf("%d bytes, the header alone has %d: %w", len(b), 4*headerInts, ErrTruncated)
	}
	var h [headerInts]int
	for i := range h {
		h[i] = int(int32(binary.LittleEndian.Uint32(b[4*i:])))
	}
	shared := h[5] > 0 // a negative count says that the output matrix is stored apart
	h[5] = max(h[5], -h[5])
	for _, n := range h {
		if n <= 0 || n > llama2cMax {
			return nil, fmt.Errorf("header %v: %w", h, ErrFormat)
		}
	}
	c := &llama2c{vocab: h[5], shape: Shape{Dim: h[0], FFN: h[1], Layers: h[2], Heads: h[3], KVHeads: h[4], Context: h[6], RopeBase: 10000, Type: F32}}
	s := &c.shape
	if s.Dim%s.Heads != 0 || s.Heads%s.KVHeads != 0 {
		return nil, fmt.Errorf("%d wide, %d heads, %d KV heads: %w", s.Dim, s.Heads, s.KVHeads, ErrFormat)
	}
	s.HeadDim = s.Dim / s.Heads
	return c, c.readTensors(b[4*headerInts:], shared)
}

func (c *llama2c) readTensors(b []byte, shared bool) error {
	s, kv := c.shape, c.shape.KVHeads*c.shape.HeadDim
	var unused []float32 // RoPE tables, which the engines compute themselves
	parts := []struct {
		to    *[]float32
		count int
	}{
		{&c.embed, c.vocab * s.Dim},
		{&c.normAttn, s.Layers * s.Dim},
		{&c.wq, s.Layers * s.Dim * s.Dim},
		{&c.wk, s.Layers * s.Dim * kv},
		{&c.wv, s.Layers * s.Dim * kv},
		{&c.wo, s.Layers * s.Dim * s.Dim},
		{&c.normFFN, s.Layers * s.Dim},
		{&c.gate, s.Layers * s.Dim * s.FFN},
		{&c.down, s.Layers * s.Dim * s.FFN},
		{&c.up, s.Layers * s.Dim * s.FFN},
		{&c.normOut, s.Dim},
		{&unused, s.Context * s.HeadDim},
		{&c.logit, c.vocab * s.Dim},
	}
	if shared {
		parts = parts[:len(parts)-1]
	}
	for i, p := range parts {
		if p.count > len(b)/4 {
			return fmt.Errorf("tensor %d needs %d numbers, %d bytes are left: %w", i, p.count, len(b), ErrTruncated)
		}
		x := make([]float32, p.count)
		for j := range x {
			x[j] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*j:]))
		}
		*p.to, b = x, b[4*p.count:]
	}
	if len(b) != 0 {
		return fmt.Errorf("%d bytes behind the last tensor: %w", len(b), ErrFormat)
	}
	if shared {
		c.logit = c.embed
	}
	return nil
}

func (c *llama2c) sources() []Source {
	s, kv := c.shape, c.shape.KVHeads*c.shape.HeadDim
	var out []Source
	add := func(name string, x []float32, dims ...int) {
		out = append(out, Source{name + ".weight", dims, F32, func() []float32 { return x }})
	}
	add("token_embd", c.embed, s.Dim, c.vocab)
	for l := range s.Layers {
		p := fmt.Sprintf("blk.%d.", l)
		part := func(x []float32) []float32 { n := len(x) / s.Layers; return x[l*n : (l+1)*n] }
		add(p+"attn_norm", part(c.normAttn), s.Dim)
		add(p+"attn_q", part(c.wq), s.Dim, s.Dim)
		add(p+"attn_k", part(c.wk), s.Dim, kv)
		add(p+"attn_v", part(c.wv), s.Dim, kv)
		add(p+"attn_output", part(c.wo), s.Dim, s.Dim)
		add(p+"ffn_norm", part(c.normFFN), s.Dim)
		add(p+"ffn_gate", part(c.gate), s.Dim, s.FFN)
		add(p+"ffn_up", part(c.up), s.Dim, s.FFN)
		add(p+"ffn_down", part(c.down), s.FFN, s.Dim)
	}
	add("output_norm", c.normOut, s.Dim)
	add("output", c.logit, s.Dim, c.vocab)
	return out
}

// readLlama2cVocab reads a tokenizer file: uint32 longest token, then per token
// float32 score, uint32 length and the text. Ids 0 to 2 are <unk>, <s>, </s>, and
// 3 to 258 the bytes.
func readLlama2cVocab(b []byte) (Vocabulary, error) {
	v := Vocabulary{BOS: 1, EOS: 2, Unknown: 0, SpacePrefix: true}
	if len(b) < 4 {
		return v, fmt.Errorf("%d bytes: %w", len(b), ErrTruncated)
	}
	for b = b[4:]; len(b) > 0; {
		if len(b) < 8 {
			return v, fmt.Errorf("token %d: %d bytes left: %w", len(v.Tokens), len(b), ErrTruncated)
		}
		score := math.Float32frombits(binary.LittleEndian.Uint32(b))
		n := uint64(binary.LittleEndian.Uint32(b[4:]))
		if b = b[8:]; n > uint64(len(b)) {
			return v, fmt.Errorf("token %d has %d bytes, %d are left: %w", len(v.Tokens), n, len(b), ErrTruncated)
		}
		text := string(b[:n])
		b = b[n:]
		switch id := len(v.Tokens); {
		case id == 0:
			v.add("<unk>", score, TokenUnknown)
		case id == 1:
			v.add("<s>", score, TokenControl)
		case id == 2:
			v.add("</s>", score, TokenControl)
		case id < 3+256:
			v.add(fmt.Sprintf("<0x%02X>", id-3), score, TokenByte)
		default:
			v.add(strings.ReplaceAll(text, " ", spmSpace), score, TokenNormal)
		}
	}
	return v, nil
}
