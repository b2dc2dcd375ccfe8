package nullengine

import (
	"strings"

	"github.com/weir-dev/weir/gpuexec"
)

// Control tokens, behind the 256 bytes.
const (
	tokenBOS int32 = 256 + iota
	tokenStart
	tokenEnd
	// TokenImage stands in the prompt for a piece of an image.
	TokenImage
	vocabSize
)

var controlText = [...]string{tokenBOS - 256: "<s>", tokenStart - 256: "<|im_start|>", tokenEnd - 256: "<|im_end|>", TokenImage - 256: ImageText}

// ImageText is the text of TokenImage.
const ImageText = "<|image_pad|>"

// Vocab is the fake engine's alphabet: every byte is a token, and four control
// tokens. It has no state.
type Vocab struct{}

var _ gpuexec.Vocab = Vocab{}

// Size is the number of tokens.
func (Vocab) Size() int { return int(vocabSize) }

// BOS is the token that begins a sequence.
func (Vocab) BOS() int32 { return tokenBOS }

// EOG reports whether the token is <|im_end|>; the engine never proposes it.
func (Vocab) EOG(token int32) bool { return token == tokenEnd }

// Name identifies the vocabulary in block keys.
func (Vocab) Name() string { return "null-bytes-2" }

// Piece is the byte, or the text of a control token when special is set.
func (Vocab) Piece(token int32, special bool) []byte {
	switch {
	case token >= 0 && token < 256:
		return []byte{byte(token)}
	case token >= 256 && token < vocabSize && special:
		return []byte(controlText[token-256])
	}
	return nil
}

// Tokenize turns bytes into tokens; it never fails.
func (Vocab) Tokenize(text string, addSpecial, parseSpecial bool) ([]int32, error) {
	out := make([]int32, 0, len(text)+1)
	if addSpecial {
		out = append(out, tokenBOS)
	}
next:
	for i := 0; i < len(text); i++ {
		if parseSpecial && text[i] == '<' {
			for j, c := range controlText {
				if strings.HasPrefix(text[i:], c) {
					out = append(out, 256+int32(j))
					i += len(c) - 1
					continue next
				}
			}
		}
		out = append(out, int32(text[i]))
	}
	return out, nil
}
