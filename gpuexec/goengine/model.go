package goengine

import (
	"bytes"
	"fmt"

	"github.com/weir-dev/weir/gpuexec/gguf"
)

// model is the weights, repacked for the kernels.
type model struct {
	shape
	embed   gguf.Tensor // vocab rows of dim elements, still encoded
	blocks  []layer
	normOut []float32
	output  matrix
	ropeDiv []float32 // rope_freqs.weight: divisors per rotary pair; nil for none
}

type layer struct {
	normAttn, normFFN []float32
	q, k, v, o        matrix
	gate, up, down    matrix
}

// loader reads tensors by name and notes which were used.
type loader struct {
	file *gguf.File
	used map[string]bool
	err  error
}

// loadModel copies and repacks all weights; the file's bytes are not needed
// afterwards. A tensor that this engine would not use is an error: a model with
// biases or adapters must not run as if they were not there.
func loadModel(f *gguf.File) (*model, error) {
	s, err := readShape(f)
	if err != nil {
		return nil, err
	}
	l := &loader{file: f, used: map[string]bool{}}
	m := &model{shape: *s}
	embed := l.tensor("token_embd.weight")
	if l.err != nil {
		return nil, l.err
	}
	m.vocab = embed.Rows()
	if l.sized(embed.Name, s.dim, m.vocab); l.err != nil {
		return nil, l.err
	}
	m.embed = *embed
	m.embed.Data = bytes.Clone(embed.Data)
	for i := range s.layers {
		m.blocks = append(m.blocks, l.layer(fmt.Sprintf("blk.%d.", i), s))
		if l.err != nil {
			return nil, l.err
		}
	}
	m.normOut = l.floats("output_norm.weight", s.dim, 1)
	out := "output.weight"
	if f.Tensor(out) == nil {
		out = "token_embd.weight" // tied
	}
	m.output = l.matrix(out, s.dim, m.vocab)
	if f.Tensor("rope_freqs.weight") != nil {
		m.ropeDiv = l.floats("rope_freqs.weight", s.rotary/2, 1)
	}
	if l.err != nil {
		return nil, l.err
	}
	for _, t := range f.Tensors {
		if !l.used[t.Name] {
			return nil, unsupported("tensor %s is not a part of the plain llama architecture", t.Name)
		}
	}
	return m, nil
}

func (l *loader) layer(p string, s *shape) layer {
	return layer{
		normAttn: l.floats(p+"attn_norm.weight", s.dim, 1),
		q:        l.matrix(p+"attn_q.weight", s.dim, s.qWidth()),
		k:        l.matrix(p+"attn_k.weight", s.dim, s.kvWidth()),
		v:        l.matrix(p+"attn_v.weight", s.dim, s.kvWidth()),
		o:        l.matrix(p+"attn_output.weight", s.qWidth(), s.dim),
		normFFN:  l.floats(p+"ffn_norm.weight", s.dim, 1),
		gate:     l.matrix(p+"ffn_gate.weight", s.dim, s.ffn),
		up:       l.matrix(p+"ffn_up.weight", s.dim, s.ffn),
		down:     l.matrix(p+"ffn_down.weight", s.ffn, s.dim),
	}
}

// tensor finds a tensor; after the first error everything returns nil.
func (l *loader) tensor(name string) *gguf.Tensor {
	if l.err != nil {
		return nil
	}
	t := l.file.Tensor(name)
	switch {
	case t == nil:
		l.err = unsupported("the model lacks tensor %s", name)
		return nil
	case !t.Type.Known():
		l.err = unsupported("tensor %s has %v, want F32, F16 or Q8_0 (convert the model, or use the llama.cpp engine)", name, t.Type)
		return nil
	}
	l.used[name] = true
	return t
}

func (l *loader) sized(name string, cols, rows int) *gguf.Tensor {
	t := l.tensor(name)
	if t != nil && (t.Cols() != cols || t.Rows() != rows) {
		l.err = unsupported("tensor %s has dimensions %v, want %d × %d", name, t.Dims, cols, rows)
		return nil
	}
	return t
}

func (l *loader) floats(name string, cols, rows int) []float32 {
	t := l.sized(name, cols, rows)
	if t == nil {
		return nil
	}
	x, err := t.Float32()
	if err != nil {
		l.err = err
	}
	return x
}

func (l *loader) matrix(name string, cols, rows int) matrix {
	t := l.sized(name, cols, rows)
	if t == nil {
		return matrix{}
	}
	if t.Type == gguf.Q8_0 {
		return packQ8(t)
	}
	x, err := t.Float32()
	if err != nil {
		l.err = err
		return matrix{}
	}
	return packFloat(x, cols, rows)
}
