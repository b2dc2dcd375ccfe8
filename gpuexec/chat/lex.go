package chat

import (
	"fmt"
	"strings"
)

// word is one token inside a tag with the white space before it.
type word struct {
	space string
	text  string
	kind  wordKind
}

type wordKind uint8

const (
	wordName wordKind = iota
	wordNumber
	wordString
	wordSign // operator or bracket
)

// maxWords bounds a tag, because rewriting takes the square of its length. The
// longest ones of models in use have some hundred.
const maxWords = 4096

// tag is one {{ … }} or {% … %}.
type tag struct {
	open, close string // with their white space marks
	words       []word
	tail        string // white space before close
}

// lexTag reads the tag that starts at src[0:2] and returns its length in bytes.
func lexTag(src string) (tag, int, error) {
	t := tag{open: src[:2]}
	i := 2
	if i < len(src) && (src[i] == '-' || src[i] == '+') {
		t.open = src[:3]
		i++
	}
	closing := "}}"
	if src[1] == '%' {
		closing = "%}"
	}
	depth, start := 0, i
	for i < len(src) {
		for i < len(src) && strings.IndexByte(" \t\r\n", src[i]) >= 0 {
			i++
		}
		space := src[start:i]
		if n := closeLength(src[i:], closing); n > 0 && depth == 0 {
			t.tail, t.close = space, src[i:i+n]
			return t, i + n, nil
		}
		if i == len(src) {
			break
		}
		w, err := lexWord(src[i:])
		if err != nil {
			return t, 0, err
		}
		w.space = space
		switch w.text {
		case "(", "[", "{":
			depth++
		case ")", "]", "}":
			depth--
		}
		if depth < 0 || depth > maxDepth {
			return t, 0, fmt.Errorf("brackets do not match or nest deeper than %d", maxDepth)
		}
		if t.words = append(t.words, w); len(t.words) > maxWords {
			return t, 0, fmt.Errorf("a tag has more than %d words", maxWords)
		}
		i += len(w.text)
		start = i
	}
	return t, 0, fmt.Errorf("%q has no %q", t.open, closing)
}

func closeLength(src, closing string) int {
	if strings.HasPrefix(src, closing) {
		return len(closing)
	}
	if len(src) > 0 && (src[0] == '-' || src[0] == '+') && strings.HasPrefix(src[1:], closing) {
		return len(closing) + 1
	}
	return 0
}

func lexWord(src string) (word, error) {
	c := src[0]
	switch {
	case c == '"' || c == '\'':
		for i := 1; i < len(src); i++ {
			switch src[i] {
			case '\\':
				i++
			case c:
				return word{text: src[:i+1], kind: wordString}, nil
			}
		}
		return word{}, fmt.Errorf("string without end: %.20s", src)
	case isNameByte(c):
		n := 1
		for n < len(src) && isNameByte(src[n]) {
			n++
		}
		kind := wordName
		if c >= '0' && c <= '9' {
			kind = wordNumber
		}
		return word{text: src[:n], kind: kind}, nil
	}
	if len(src) > 1 {
		switch src[:2] {
		case "==", "!=", "<=", ">=", "//", "**":
			return word{text: src[:2], kind: wordSign}, nil
		}
	}
	return word{text: src[:1], kind: wordSign}, nil
}

func isNameByte(c byte) bool {
	return c == '_' || c >= 0x80 || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')
}
