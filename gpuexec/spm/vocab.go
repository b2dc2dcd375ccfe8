package spm

import (
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/gpuexec/gguf"
)

// space stands for a space inside tokens (U+2581).
const space = "\u2581"

// Vocab is a vocabulary with its tokenizer. It is immutable and may be shared.
type Vocab struct {
	name     string
	text     []string
	scores   []float32
	types    []int32
	byText   map[string]int32
	bytes    [256]int32 // token of each byte, -1 for none
	special  []int32    // control, user-defined and unknown tokens, longest text first
	eog      map[int32]bool
	longest  int // bytes of the longest token
	bos, eos int32

	addBOS, addEOS, spacePrefix bool
}

var _ gpuexec.Vocab = (*Vocab)(nil)

// New reads the vocabulary of a model. name identifies it in block keys (use the
// digest of the model file). Errors wrap ErrVocab.
func New(f *gguf.File, name string) (*Vocab, error) {
	v := &Vocab{name: "spm1:" + name, bos: -1, eos: -1, eog: map[int32]bool{}}
	model, ok, err := gguf.Get[string](f, "tokenizer.ggml.model")
	if err != nil || !ok || model != "llama" {
		return nil, fmt.Errorf("tokenizer.ggml.model is %q, only \"llama\" (SentencePiece) is known here: %w", model, ErrVocab)
	}
	if err := v.readTokens(f); err != nil {
		return nil, err
	}
	if err := v.readFlags(f); err != nil {
		return nil, err
	}
	v.index()
	if err := v.markEOG(f); err != nil {
		return nil, err
	}
	v.collectSpecial()
	return v, v.check()
}

func (v *Vocab) readTokens(f *gguf.File) (err error) {
	if v.text, err = slice[string](f, "tokenizer.ggml.tokens"); err != nil {
		return err
	}
	if v.scores, err = slice[float32](f, "tokenizer.ggml.scores"); err != nil {
		return err
	}
	if v.types, err = slice[int32](f, "tokenizer.ggml.token_type"); err != nil {
		return err
	}
	n := len(v.text)
	if n == 0 || len(v.scores) != n || len(v.types) != n {
		return fmt.Errorf("%d tokens, %d scores, %d types: %w", n, len(v.scores), len(v.types), ErrVocab)
	}
	v.types = append([]int32(nil), v.types...) // control-looking tokens are retyped below
	return nil
}

func slice[T any](f *gguf.File, key string) ([]T, error) {
	s, ok, err := gguf.Get[[]T](f, key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrVocab, err)
	}
	if !ok {
		return nil, fmt.Errorf("key %s is missing: %w", key, ErrVocab)
	}
	return s, nil
}

// readFlags reads ids and flags; the defaults are llama.cpp's for this tokenizer.
func (v *Vocab) readFlags(f *gguf.File) error {
	v.addBOS, v.spacePrefix = true, true
	for key, to := range map[string]*bool{"add_bos_token": &v.addBOS, "add_eos_token": &v.addEOS, "add_space_prefix": &v.spacePrefix} {
		if b, ok, err := gguf.Get[bool](f, "tokenizer.ggml."+key); err != nil {
			return fmt.Errorf("%w: %w", ErrVocab, err)
		} else if ok {
			*to = b
		}
	}
	v.bos, v.eos = 1, 2
	for key, to := range map[string]*int32{"bos": &v.bos, "eos": &v.eos} {
		id, ok, err := v.id(f, key)
		if err != nil {
			return err
		}
		if ok {
			*to = id
		}
		if int(*to) >= len(v.text) {
			*to = -1
		}
	}
	return nil
}

// id reads the key of a special token id.
func (v *Vocab) id(f *gguf.File, name string) (int32, bool, error) {
	key := "tokenizer.ggml." + name + "_token_id"
	n, ok, err := f.Uint(key)
	if err != nil {
		return -1, false, fmt.Errorf("%w: %w", ErrVocab, err)
	}
	if ok && n >= uint64(len(v.text)) {
		return -1, false, fmt.Errorf("%s is %d, the vocabulary has %d tokens: %w", key, n, len(v.text), ErrVocab)
	}
	return int32(n), ok, nil
}

func (v *Vocab) index() {
	for i := range v.bytes {
		v.bytes[i] = -1
	}
	v.byText = make(map[string]int32, len(v.text))
	for id, s := range v.text {
		v.byText[s] = int32(id) // of equal texts the last id wins, as in llama.cpp
		v.longest = max(v.longest, len(s))
	}
	for b := range v.bytes {
		if id, ok := v.byText[fmt.Sprintf("<0x%02X>", b)]; ok {
			v.bytes[b] = id
		} else if id, ok := v.byText[string([]byte{byte(b)})]; ok {
			v.bytes[b] = id // vocabularies without byte tokens spell ASCII themselves
		}
	}
}

// eogTexts are the tokens that llama.cpp takes for ends of generation by their text.
var eogTexts = map[string]bool{
	"<|eot_id|>": true, "<|im_end|>": true, "<|end|>": true, "<|return|>": true, "<|call|>": true, "<|flush|>": true, "<|calls|>": true,
	"<end_of_turn>": true, "<|endoftext|>": true, "</s>": true, "<|eom_id|>": true, "<EOT>": true, "_<EOT>": true, "[EOT]": true, "[EOS]": true,
	"<|end_of_text|>": true, "<end_of_utterance>": true, "<eos>": true,
}

func (v *Vocab) markEOG(f *gguf.File) error {
	for text := range eogTexts {
		if id, ok := v.byText[text]; ok {
			v.eog[id] = true
			if v.types[id] != gguf.TokenUnknown {
				v.types[id] = gguf.TokenControl
			}
		}
	}
	if v.eos >= 0 {
		v.eog[v.eos] = true
	}
	for _, name := range []string{"eot", "eom"} {
		id, ok, err := v.id(f, name)
		if err != nil {
			return err
		}
		if ok {
			v.eog[id] = true
		}
	}
	return nil
}

func (v *Vocab) collectSpecial() {
	for id, t := range v.types {
		if (t == gguf.TokenControl || t == gguf.TokenUserDefined || t == gguf.TokenUnknown) && v.text[id] != "" {
			v.special = append(v.special, int32(id))
		}
	}
	sort.SliceStable(v.special, func(i, j int) bool { return len(v.text[v.special[i]]) > len(v.text[v.special[j]]) })
}

func (v *Vocab) check() error {
	if v.addBOS && v.bos < 0 || v.addEOS && v.eos < 0 {
		return fmt.Errorf("the model wants a begin or end token but names none: %w", ErrVocab)
	}
	return nil
}

// Size is the number of tokens.
func (v *Vocab) Size() int { return len(v.text) }

// BOS is the token that begins a sequence, -1 when there is none.
func (v *Vocab) BOS() int32 { return v.bos }

// EOS is the model's end-of-sequence token, -1 when there is none.
func (v *Vocab) EOS() int32 { return v.eos }

// EOG reports whether a token ends a generation.
func (v *Vocab) EOG(token int32) bool { return v.eog[token] }

// Name identifies implementation and vocabulary in block keys.
func (v *Vocab) Name() string { return v.name }

// Piece is the bytes of a token, possibly a part of a character; nil for an id
// outside the vocabulary, an unused token, or a control token unless special.
func (v *Vocab) Piece(token int32, special bool) []byte {
	if token < 0 || int(token) >= len(v.text) {
		return nil
	}
	s := v.text[token]
	switch v.types[token] {
	case gguf.TokenNormal:
		return []byte(strings.ReplaceAll(s, space, " "))
	case gguf.TokenByte:
		// The text is <0xNN>.
		if len(s) != 6 {
			return nil
		}
		b, err := strconv.ParseUint(s[3:5], 16, 8)
		if err != nil {
			return nil
		}
		return []byte{byte(b)}
	case gguf.TokenUserDefined:
		return []byte(s)
	case gguf.TokenControl, gguf.TokenUnknown:
		if special {
			return []byte(s)
		}
	}
	return nil
}
