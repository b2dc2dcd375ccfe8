package gguf

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/weir-dev/weir/gpuexec/chat"
)

// seed of all presets: one fixed number, so that every machine makes the same bytes.
const seed = 42

// presetVocab is the number of tokens of a preset's vocabulary.
const presetVocab = 512

// Preset returns the shape of a named random model: "tiny" (1 MB, for tests) or
// "small" (24 million parameters, 26 MB, the default model). They compute for
// real and write gibberish.
func Preset(name string) (Shape, error) {
	s := Shape{Name: "weir-random-" + name, Context: 32768, RopeBase: 500000, Type: Q8_0}
	switch name {
	case "tiny":
		s.Dim, s.Layers, s.Heads, s.KVHeads, s.HeadDim, s.FFN = 128, 4, 4, 2, 32, 384
	case "small":
		s.Dim, s.Layers, s.Heads, s.KVHeads, s.HeadDim, s.FFN = 512, 8, 8, 4, 64, 1408
	default:
		return Shape{}, fmt.Errorf("model preset %q, want tiny or small: %w", name, ErrUnsupported)
	}
	return s, nil
}

// WritePreset writes the named random model with the preset vocabulary. The same
// name gives the same bytes on every machine.
func WritePreset(w io.Writer, name string) error {
	s, err := Preset(name)
	if err != nil {
		return err
	}
	return WriteRandom(w, s, PresetVocabulary())
}

// WriteRandom writes a model of shape s with seeded random weights.
func WriteRandom(w io.Writer, s Shape, v Vocabulary) error {
	r := &randomModel{typ: s.Type}
	q, kv := s.Heads*s.HeadDim, s.KVHeads*s.HeadDim
	r.matrix("token_embd.weight", s.Dim, len(v.Tokens), 1)
	for l := range s.Layers {
		p := fmt.Sprintf("blk.%d.", l)
		r.ones(p+"attn_norm.weight", s.Dim)
		// Above 1/sqrt(n), so that attention is sharp and outputs depend on single
		// tokens of the prefix: a wrong KV byte must change the generated text.
		sharp := 1.7 / math.Sqrt(float64(s.Dim))
		r.matrix(p+"attn_q.weight", s.Dim, q, sharp)
		r.matrix(p+"attn_k.weight", s.Dim, kv, sharp)
		r.scaled(p+"attn_v.weight", s.Dim, kv)
		r.scaled(p+"attn_output.weight", q, s.Dim)
		r.ones(p+"ffn_norm.weight", s.Dim)
		r.scaled(p+"ffn_gate.weight", s.Dim, s.FFN)
		r.scaled(p+"ffn_up.weight", s.Dim, s.FFN)
		r.scaled(p+"ffn_down.weight", s.FFN, s.Dim)
	}
	r.ones("output_norm.weight", s.Dim)
	r.scaled("output.weight", s.Dim, len(v.Tokens))
	return Write(w, metadata(s, v), r.tensors)
}

// randomModel collects tensors; each draws from its own stream of the seed.
type randomModel struct {
	typ     TensorType
	tensors []Source
}

func (r *randomModel) scaled(name string, cols, rows int) {
	r.matrix(name, cols, rows, 1/math.Sqrt(float64(cols)))
}

// matrix adds a matrix of roughly normal numbers with the given deviation.
func (r *randomModel) matrix(name string, cols, rows int, deviation float64) {
	stream := uint64(len(r.tensors) + 1)
	r.tensors = append(r.tensors, Source{name, []int{cols, rows}, r.typ, func() []float32 {
		g := rand.NewPCG(seed, stream)
		// The sum of four uniform 16-bit numbers, centred: integers and one
		// multiplication, so every processor makes the same bits. The deviation of
		// the sum is 65536 / sqrt(3).
		scale := float32(deviation * math.Sqrt(3) / 65536)
		x := make([]float32, cols*rows)
		for i := range x {
			u := g.Uint64()
			sum := int32(u&0xffff) + int32(u>>16&0xffff) + int32(u>>32&0xffff) + int32(u>>48) - 2*65535
			x[i] = float32(sum) * scale
		}
		return x
	}})
}

func (r *randomModel) ones(name string, n int) {
	r.tensors = append(r.tensors, Source{name, []int{n}, F32, func() []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = 1
		}
		return x
	}})
}

// Control tokens of the preset vocabulary. EndOfTurn is its end-of-sequence token.
const (
	StartOfTurn = "<|im_start|>"
	EndOfTurn   = "<|im_end|>"
)

// mergedPieces are the multi-character tokens of the preset vocabulary, best
// score first ("_" stands for a space). Each is two earlier tokens joined, so
// that bigram merging can reach it.
const mergedPieces = `th he in er an re on _t the _a _the at en or es is it ed ar te nd st to ing al _s ou _o _w
_in _b le _c and _and as _f ion _p _m _h _to _of of _d se ent ha hi ve de ll me io ic ne ro li ra co ri
ea ti _be us _l _re _th ch _is ur om ol el ly ma la et no _y be _g _n ac il un ut ad ation _for for
_it ot id _he am _on ow if ce ee pe ho wa si tr ca su ge ul ss ec ir ay _you you ke em lo _we _e
_i {" "} ": ", }} }, [" "] // == () )) __ -- .. ok
ith _with _that _this _are not ers out per con com pro ain ant int est ver ex`

// PresetVocabulary is the 512-token vocabulary of the presets: <unk>, <s>, </s>,
// the 256 bytes, two chat control tokens, every printable ASCII character and
// common pieces, so that any text can be written and most letters are one token.
func PresetVocabulary() Vocabulary {
	v := Vocabulary{BOS: 1, Unknown: 0, Template: chat.Fallback}
	v.add("<unk>", 0, TokenUnknown)
	v.add("<s>", 0, TokenControl)
	v.add("</s>", 0, TokenControl)
	for i := range 256 {
		v.add(fmt.Sprintf("<0x%02X>", i), 0, TokenByte)
	}
	v.add(StartOfTurn, 0, TokenControl)
	v.EOS = int32(len(v.Tokens))
	v.add(EndOfTurn, 0, TokenControl)
	known := map[string]bool{}
	add := func(piece string, score float32) {
		if !known[piece] && len(v.Tokens) < presetVocab {
			known[piece] = true
			v.add(piece, score, TokenNormal)
		}
	}
	// Single characters score below every merge; their score is never compared.
	add(spmSpace, -1000)
	for c := '!'; c <= '~'; c++ {
		add(string(c), -1000)
	}
	for rank, piece := range strings.Fields(mergedPieces) {
		add(strings.ReplaceAll(piece, "_", spmSpace), float32(-rank))
	}
	return v
}

// spmSpace stands for a space in SentencePiece tokens.
const spmSpace = "\u2581"
