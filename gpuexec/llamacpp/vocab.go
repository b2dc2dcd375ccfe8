package llamacpp

import (
	"fmt"
	"runtime"
	"unicode/utf8"

	"github.com/weir-dev/weir/gpuexec"
)

// maxText bounds the text of one Tokenize call, in bytes: the library counts in
// int32, and a text of this size takes seconds already.
const maxText = 64 << 20

// vocab implements gpuexec.Vocab on a loaded model. It only reads, so it may be
// used from several goroutines at once.
type vocab struct {
	model *model
	size  int
	name  string
}

func newVocab(m *model) *vocab {
	v := &vocab{model: m, size: int(m.lib.api.vocabTokens(m.vocab))}
	v.name = fmt.Sprintf("llama %s/%s/%d", m.meta("tokenizer.ggml.model"), m.meta("tokenizer.ggml.pre"), v.size)
	return v
}

// Vocab is the token alphabet of the engine's model. It is valid until Close.
func (e *Engine) Vocab() gpuexec.Vocab { return newVocab(e.model) }

// ChatTemplate is the Jinja source of the model's default chat template; "" when
// the model has none.
func (e *Engine) ChatTemplate() string { return e.model.chatTemplate() }

// VocabModel is a model opened for its vocabulary only: no weights in memory.
type VocabModel struct {
	gpuexec.Vocab
	model *model
}

// OpenVocab loads the vocabulary of a GGUF file. Errors wrap ErrModel.
func OpenVocab(l *Library, modelPath string) (*VocabModel, error) {
	m, err := loadModel(l, modelPath, 0, true)
	if err != nil {
		return nil, err
	}
	return &VocabModel{Vocab: newVocab(m), model: m}, nil
}

// ChatTemplate is the Jinja source of the model's default chat template, or "".
func (v *VocabModel) ChatTemplate() string { return v.model.chatTemplate() }

// Meta reads a metadata value of the GGUF file as text, or "".
func (v *VocabModel) Meta(key string) string { return v.model.meta(key) }

// Close frees the vocabulary; no method may be called afterwards.
func (v *VocabModel) Close() error {
	v.model.free()
	return nil
}

// Size is the number of token ids.
func (v *vocab) Size() int { return v.size }

// Name says that the library tokenizes, and with which vocabulary.
func (v *vocab) Name() string { return v.name }

// BOS is the token that begins a text, or -1.
func (v *vocab) BOS() int32 { return v.model.lib.api.vocabBOS(v.model.vocab) }

// EOG tells whether token ends a generation. False for ids outside the vocabulary.
func (v *vocab) EOG(token int32) bool {
	return v.contains(token) && v.model.lib.api.vocabIsEOG(v.model.vocab, token)
}

func (v *vocab) contains(token int32) bool { return token >= 0 && int(token) < v.size }

// Piece is the bytes of one token, nil for ids outside the vocabulary.
func (v *vocab) Piece(token int32, special bool) []byte {
	if !v.contains(token) {
		return nil // the library throws on it
	}
	buf := make([]byte, 32)
	n := v.piece(token, buf, special)
	if n < 0 {
		buf = make([]byte, -n)
		n = v.piece(token, buf, special)
	}
	return buf[:max(n, 0)]
}

func (v *vocab) piece(token int32, buf []byte, special bool) int {
	return int(v.model.lib.api.tokenToPiece(v.model.vocab, token, &buf[0], int32(len(buf)), 0, special))
}

// Tokenize turns text into tokens. Errors wrap gpuexec.ErrUnsupported: text that
// is too long or not UTF-8, which some of the library's tokenizers throw on.
func (v *vocab) Tokenize(text string, addSpecial, parseSpecial bool) ([]int32, error) {
	if len(text) > maxText {
		return nil, fmt.Errorf("%w: text of %d bytes, at most %d can be tokenized at once", gpuexec.ErrUnsupported, len(text), maxText)
	}
	if !utf8.ValidString(text) {
		return nil, fmt.Errorf("%w: text is not valid UTF-8", gpuexec.ErrUnsupported)
	}
	// Most vocabularies have a token per 3 to 4 bytes; the library answers the
	// negative count when the guess is too small.
	out := make([]int32, len(text)/2+16)
	n := v.tokenize(text, out, addSpecial, parseSpecial)
	if n < 0 {
		out = make([]int32, -n)
		n = v.tokenize(text, out, addSpecial, parseSpecial)
	}
	if n < 0 || n > len(out) {
		return nil, fmt.Errorf("%w: the library cannot tokenize %d bytes of text (code %d)", gpuexec.ErrUnsupported, len(text), n)
	}
	return out[:n:n], nil
}

func (v *vocab) tokenize(text string, out []int32, addSpecial, parseSpecial bool) int {
	// The library takes pointer and length, so NUL bytes inside the text are text.
	// One byte more keeps the pointer valid for an empty text.
	buf := append(make([]byte, 0, len(text)+1), text...)
	buf = append(buf, 0)
	n := v.model.lib.api.tokenize(v.model.vocab, &buf[0], int32(len(text)), &out[0], int32(len(out)), addSpecial, parseSpecial)
	runtime.KeepAlive(buf)
	runtime.KeepAlive(out)
	return int(n)
}
