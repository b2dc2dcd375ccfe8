package chat

import (
	"strings"
	"unicode/utf8"
)

// Text assembles the bytes of streamed tokens into text that may be sent. What
// it returns never splits a character and never contains the beginning of a
// stop string that may still be completed:
//
//	bytes in   …text that is safe | a possible stop string | a partial character
//	           returned            held                     partial (at most 3 bytes)
//
// Bytes that can be no UTF-8 become U+FFFD each, as in Go's []rune conversion.
// All returned pieces together do not depend on how the bytes were cut.
type Text struct {
	stops   []string
	partial []byte // start of a character
	held    string // start of a stop string
	tokens  int    // tokens added
	stop    string // the stop string that was found
	ended   bool
}

// NewText makes an assembler. Empty stop strings are left out.
func NewText(stops []string) *Text {
	t := &Text{}
	for _, s := range stops {
		if s != "" {
			t.stops = append(t.stops, s)
		}
	}
	return t
}

// Add takes the bytes of the next token and returns the text that has become
// safe. Once a stop string is complete it returns the text before it and every
// later call returns "".
func (t *Text) Add(piece []byte) string {
	if t.ended {
		return ""
	}
	t.tokens++
	return t.feed(t.decode(piece, false))
}

// Flush ends the stream: it returns what was held back.
func (t *Text) Flush() string {
	if t.ended {
		return ""
	}
	out := t.feed(t.decode(nil, true))
	if !t.ended {
		out += t.held
		t.held, t.ended = "", true
	}
	return out
}

// Stopped returns the stop string that ended the text and the index of the
// token that completed it (the first token has index 0), or "" and -1.
func (t *Text) Stopped() (string, int) {
	if t.stop == "" {
		return "", -1
	}
	return t.stop, t.tokens - 1
}

// Tokens is the number of tokens that Add has taken, the completing one included.
func (t *Text) Tokens() int { return t.tokens }

// Pending tells whether text is held back.
func (t *Text) Pending() bool { return len(t.partial) > 0 || t.held != "" }

// decode returns the whole characters of partial and piece.
func (t *Text) decode(piece []byte, last bool) string {
	if len(t.partial) == 0 && utf8.Valid(piece) {
		return string(piece)
	}
	b := append(t.partial, piece...)
	var out strings.Builder
	for len(b) > 0 && (last || utf8.FullRune(b)) {
		r, n := utf8.DecodeRune(b)
		out.WriteRune(r)
		b = b[n:]
	}
	t.partial = append(t.partial[:0], b...)
	return out.String()
}

// feed looks for the stop string that ends first; where two end together the
// longer one counts. That choice does not depend on how the text arrives.
func (t *Text) feed(text string) string {
	if len(t.stops) == 0 || text == "" {
		return text
	}
	text = t.held + text
	t.held = ""
	start, end := -1, -1
	for _, s := range t.stops {
		at := strings.Index(text, s)
		if at < 0 {
			continue
		}
		if e := at + len(s); end < 0 || e < end || (e == end && at < start) {
			start, end, t.stop = at, e, s
		}
	}
	if end >= 0 {
		t.ended, t.partial = true, nil
		return text[:start]
	}
	hold := 0
	for _, s := range t.stops {
		for n := min(len(s)-1, len(text)); n > hold; n-- {
			if strings.HasSuffix(text, s[:n]) {
				hold = n
				break
			}
		}
	}
	t.held = text[len(text)-hold:]
	return text[:len(text)-hold]
}
