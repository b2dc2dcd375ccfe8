package turns

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"github.com/weir-dev/weir/schemas"
)

// decodeFrame reads a frame. At 50,000 frames per second the reflecting codec
// would take a third of a core, so frames in the very form that schemas.Encode
// writes, without logprobs and refusals, are read by hand. Everything else, valid
// or not, goes to the codec, whose judgement is the contract.
func decodeFrame(b []byte) (*schemas.Frame, error) {
	f := new(schemas.Frame)
	if quickFrame(b, f) {
		return f, nil
	}
	*f = schemas.Frame{}
	if err := schemas.Decode(b, f); err != nil {
		return nil, err
	}
	return f, nil
}

// quickFrame reads {"v":1,"a":1,"i":0,"t":[1,2],"x":"ab","xi":7,"p":"hermes"}, of
// which x, xi and p may be absent. It returns false for anything else.
func quickFrame(b []byte, f *schemas.Frame) bool {
	b, ok := bytes.CutPrefix(b, []byte(`{"v":1,"a":`))
	if !ok || len(b) > schemas.MaxMessage/2 {
		return false
	}
	if f.Attempt, b, ok = number(b, `,"i":`); !ok {
		return false
	}
	if f.First, b, ok = number(b, `,"t":`); !ok {
		return false
	}
	end := bytes.IndexByte(b, ']')
	if end < 1 || f.Tokens.UnmarshalJSON(b[:end+1]) != nil {
		return false
	}
	b = b[end+1:]
	if rest, has := bytes.CutPrefix(b, []byte(`,"x":`)); has {
		if f.Text, b, ok = text(rest); !ok {
			return false
		}
	}
	if rest, has := bytes.CutPrefix(b, []byte(`,"xi":`)); has {
		if f.TextAt, b, ok = number(rest, ""); !ok {
			return false
		}
	}
	if rest, has := bytes.CutPrefix(b, []byte(`,"p":`)); has {
		if f.Parse, b, ok = text(rest); !ok {
			return false
		}
	}
	if string(b) != "}" {
		return false
	}
	f.V = schemas.Version
	return f.Check() == nil
}

// number reads a non-negative integer without leading zeros up to next, which it
// skips.
func number(b []byte, next string) (int, []byte, bool) {
	n, i := 0, 0
	for i < len(b) && i < 9 && b[i] >= '0' && b[i] <= '9' {
		n = n*10 + int(b[i]-'0')
		i++
	}
	if i == 0 || i > 1 && b[0] == '0' {
		return 0, nil, false
	}
	rest, ok := bytes.CutPrefix(b[i:], []byte(next))
	return n, rest, ok
}

// text reads a JSON string.
func text(b []byte) (string, []byte, bool) {
	if len(b) == 0 || b[0] != '"' {
		return "", nil, false
	}
	plain := true
	for i := 1; i < len(b); i++ {
		switch c := b[i]; {
		case c == '\\':
			plain = false
			i++
		case c < 0x20:
			return "", nil, false
		case c == '"':
			rest := b[i+1:]
			if !utf8.Valid(b[1:i]) {
				return "", nil, false
			}
			if plain {
				return string(b[1:i]), rest, true
			}
			var s string
			if json.Unmarshal(b[:i+1], &s) != nil {
				return "", nil, false
			}
			return s, rest, true
		}
	}
	return "", nil, false
}
