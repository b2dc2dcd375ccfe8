package spm

import (
	"fmt"
	"strings"

	"github.com/weir-dev/weir/gpuexec/gguf"
)

// fragment is a special token (token >= 0) or raw text between special tokens.
type fragment struct {
	text  string
	token int32
}

// Tokenize turns text into tokens. addSpecial adds the begin and end tokens that
// the model asks for; parseSpecial turns the text of control tokens into them
// (user-defined tokens are always recognised). Invalid UTF-8 becomes byte tokens; a
// lead byte without its continuation takes the bytes that follow, as in llama.cpp.
// The error wraps ErrText: the vocabulary lacks a byte of the text.
func (v *Vocab) Tokenize(text string, addSpecial, parseSpecial bool) ([]int32, error) {
	var out []int32
	if addSpecial && v.addBOS {
		out = append(out, v.bos)
	}
	afterSpecial := true
	for _, f := range v.split(text, parseSpecial) {
		if f.token >= 0 {
			out = append(out, f.token)
			afterSpecial = true
			continue
		}
		s := f.text
		if v.spacePrefix && afterSpecial {
			s = " " + s
		}
		afterSpecial = false
		var err error
		if out, err = v.merge(out, strings.ReplaceAll(s, " ", space)); err != nil {
			return nil, err
		}
	}
	if addSpecial && v.addEOS {
		out = append(out, v.eos)
	}
	return out, nil
}

// split cuts special tokens out of text, those with the longest text first.
func (v *Vocab) split(text string, parseSpecial bool) []fragment {
	if text == "" {
		return nil
	}
	parts := []fragment{{text, -1}}
	for _, id := range v.special {
		if !parseSpecial && v.types[id] != gguf.TokenUserDefined {
			continue
		}
		if strings.Contains(text, v.text[id]) {
			parts = cut(parts, v.text[id], id)
		}
	}
	return parts
}

// cut splits every raw part at the occurrences of one special token.
func cut(parts []fragment, special string, id int32) []fragment {
	out := make([]fragment, 0, len(parts))
	for _, p := range parts {
		if p.token >= 0 {
			out = append(out, p)
			continue
		}
		rest := p.text
		for {
			at := strings.Index(rest, special)
			if at < 0 {
				break
			}
			if at > 0 {
				out = append(out, fragment{rest[:at], -1})
			}
			out = append(out, fragment{"", id})
			rest = rest[at+len(special):]
		}
		if rest != "" {
			out = append(out, fragment{rest, -1})
		}
	}
	return out
}

// spell appends the byte tokens of s.
func (v *Vocab) spell(out []int32, s string) ([]int32, error) {
	for i := range len(s) {
		id := v.bytes[s[i]]
		if id < 0 {
			return nil, fmt.Errorf("the vocabulary has no token for byte 0x%02X: %w", s[i], ErrText)
		}
		out = append(out, id)
	}
	return out, nil
}
