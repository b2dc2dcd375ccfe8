package schemas

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxMessageDepth bounds the nesting of a chat message's JSON.
const MaxMessageDepth = 64

// CanonicalForm is what a chat message says, apart from how it is spelt.
type CanonicalForm struct {
	// JSON is role, content and tool calls as compact JSON with sorted keys.
	JSON   []byte
	Digest [16]byte // the first half of SHA-256 over JSON
	Role   string
	Media  bool            // holds a part that is not text
	Calls  []CanonicalCall // of an assistant
	// ToolCall is the id of the call that a tool message answers.
	ToolCall  string
	Reasoning bool // comes with reasoning, which is no part of JSON
}

// CanonicalCall names a tool call. The id is no part of the canonical JSON.
type CanonicalCall struct{ ID, Name string }

// CanonicalMessage returns a chat message as compact JSON with sorted keys, and
// the first half of its SHA-256. Equal digests are equal messages: clients re-order
// keys, turn null content into "" or leave it out, wrap text in parts, change the
// white space of tool arguments and issue call ids of their own. None of it counts,
// nor do reasoning and fields that no model sees. Numbers keep their value: 1.0
// and 1 are equal, 2^53+1 and 2^53 are not. The error wraps ErrMessage.
func CanonicalMessage(raw json.RawMessage) (canonical []byte, digest [16]byte, err error) {
	f, err := Canonical(raw)
	return f.JSON, f.Digest, err
}

// Canonical is CanonicalMessage with what else is read on the way.
func Canonical(raw json.RawMessage) (CanonicalForm, error) {
	if f, ok := plainMessage(raw); ok {
		return f, nil
	}
	return canonicalOfAny(raw)
}

func canonicalOfAny(raw json.RawMessage) (CanonicalForm, error) {
	var f CanonicalForm
	v, err := decodeAny(raw)
	if err != nil {
		return f, bad("the message %s", err)
	}
	m, ok := v.(map[string]any)
	if !ok {
		return f, bad("a message must be an object")
	}
	if f.Role, _ = m["role"].(string); f.Role == "" {
		return f, bad("role must be a string")
	}
	b := append(make([]byte, 0, len(raw)+32), `{"content":`...)
	if b, f.Media, err = appendContent(b, m["content"]); err != nil {
		return f, err
	}
	if s, ok := m["name"].(string); ok && f.Role != "assistant" {
		b = appendString(append(b, `,"name":`...), s)
	}
	b = appendString(append(b, `,"role":`...), f.Role)
	if s, ok := m["tool_call_id"].(string); ok && f.Role != "assistant" {
		b = appendString(append(b, `,"tool_call_id":`...), s)
		f.ToolCall = s
	}
	if b, f.Calls, err = appendCalls(b, m["tool_calls"]); err != nil {
		return f, err
	}
	for _, key := range [...]string{"reasoning_content", "reasoning"} {
		if s, ok := m[key].(string); ok && s != "" {
			f.Reasoning = true
		}
	}
	f.JSON = append(b, '}')
	sum := sha256.Sum256(f.JSON)
	copy(f.Digest[:], sum[:])
	return f, nil
}

// CanonicalJSON is any JSON value as compact JSON with sorted keys. The error wraps
// ErrMessage.
func CanonicalJSON(raw json.RawMessage) ([]byte, error) {
	v, err := decodeAny(raw)
	if err != nil {
		return nil, bad("the value %s", err)
	}
	return appendAny(nil, v, 0)
}

// appendContent writes text as one string. Parts that are all text are joined by
// line feeds, as templates of text models see them.
func appendContent(b []byte, v any) (out []byte, media bool, err error) {
	switch c := v.(type) {
	case nil:
		return append(b, `""`...), false, nil
	case string:
		return appendString(b, c), false, nil
	case []any:
		var texts []string
		for i, p := range c {
			part, _ := p.(map[string]any)
			kind, _ := part["type"].(string)
			if kind == "" {
				return b, false, bad("content[%d] must be an object with a type", i)
			}
			s, isText, err := partText(i, kind, part)
			if err != nil {
				return b, false, err
			}
			if !isText {
				media = true
				continue
			}
			texts = append(texts, s)
		}
		if !media {
			return appendString(b, strings.Join(texts, "\n")), false, nil
		}
		b = append(b, '[')
		for i, p := range c {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = appendPart(b, i, p.(map[string]any)); err != nil {
				return b, true, err
			}
		}
		return append(b, ']'), true, nil
	}
	return b, false, bad("content must be a string, an array of parts or null")
}

func partText(i int, kind string, part map[string]any) (text string, isText bool, err error) {
	key := "text"
	switch kind {
	case "refusal":
		key = kind
	case "text", "input_text", "output_text":
	default:
		return "", false, nil
	}
	s, ok := part[key].(string)
	if !ok {
		return "", true, bad("content[%d].%s must be a string", i, key)
	}
	return s, true, nil
}

// appendPart writes one part of a content that holds media: text, an image's url
// and detail, or any other part whole but for cache_control, which clients move
// from turn to turn.
func appendPart(b []byte, i int, part map[string]any) ([]byte, error) {
	kind, _ := part["type"].(string)
	if s, isText, _ := partText(i, kind, part); isText {
		return append(appendString(append(b, `{"text":`...), s), `,"type":"text"}`...), nil
	}
	kept := map[string]any{}
	for k, v := range part {
		if k != "cache_control" {
			kept[k] = v
		}
	}
	if kind == "image_url" {
		image := map[string]any{}
		switch u := part["image_url"].(type) {
		case string:
			image["url"] = u
		case map[string]any:
			for _, k := range [...]string{"url", "detail"} {
				if v, ok := u[k]; ok && v != nil {
					image[k] = v
				}
			}
		}
		kept = map[string]any{"type": kind, "image_url": image}
	}
	return appendAny(b, kept, 0)
}

func appendCalls(b []byte, v any) (out []byte, calls []CanonicalCall, err error) {
	list, ok := v.([]any)
	if !ok && v != nil {
		return b, nil, bad("tool_calls must be an array")
	}
	for i, item := range list {
		call, _ := item.(map[string]any)
		f, _ := call["function"].(map[string]any)
		name, _ := f["name"].(string)
		if name == "" {
			return b, nil, bad("tool_calls[%d].function.name must be a string", i)
		}
		id, _ := call["id"].(string)
		calls = append(calls, CanonicalCall{ID: id, Name: name})
		if i == 0 {
			b = append(b, `,"tool_calls":[`...)
		} else {
			b = append(b, ',')
		}
		if b, err = appendAny(append(b, `{"arguments":`...), arguments(f["arguments"]), 0); err != nil {
			return b, nil, err
		}
		b = append(appendString(append(b, `,"name":`...), name), '}')
	}
	if len(list) > 0 {
		b = append(b, ']')
	}
	return b, calls, nil
}

// arguments is the object that a string of arguments holds; what is no object
// stays text.
func arguments(v any) any {
	s, ok := v.(string)
	switch {
	case v == nil, ok && s == "":
		return map[string]any{}
	case !ok:
		return v
	}
	if o, err := decodeAny([]byte(s)); err == nil {
		if _, ok := o.(map[string]any); ok {
			return o
		}
	}
	return s
}

// decodeAny reads one JSON value, numbers as they are written.
func decodeAny(raw []byte) (any, error) {
	if !utf8.Valid(raw) {
		return nil, errors.New("is not valid UTF-8")
	}
	if nesting(raw) > MaxMessageDepth {
		return nil, fmt.Errorf("is nested deeper than %d", MaxMessageDepth)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("is not valid JSON: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("has data after its JSON")
	}
	return v, nil
}

// nesting is how deep brackets stand in each other, outside strings.
func nesting(raw []byte) (deepest int) {
	depth, quoted := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{', c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}', c == ']':
			depth--
		}
	}
	return deepest
}

// appendAny writes a decoded value as compact JSON with sorted keys.
func appendAny(b []byte, v any, depth int) ([]byte, error) {
	if depth > 2*MaxMessageDepth {
		return b, bad("the message is nested too deep")
	}
	var err error
	switch t := v.(type) {
	case nil:
		return append(b, "null"...), nil
	case bool:
		return strconv.AppendBool(b, t), nil
	case string:
		return appendString(b, t), nil
	case json.Number:
		return appendNumber(b, t), nil
	case []any:
		b = append(b, '[')
		for i, item := range t {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = appendAny(b, item, depth+1); err != nil {
				return b, err
			}
		}
		return append(b, ']'), nil
	case map[string]any:
		keys := make([]string, 0, len(t))
		for k := range t {
			keys = append(keys, k)
		}
		sort.Strings(keys)
		b = append(b, '{')
		for i, k := range keys {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendString(b, k), ':')
			if b, err = appendAny(b, t[k], depth+1); err != nil {
				return b, err
			}
		}
		return append(b, '}'), nil
	}
	return b, bad("a %T has no JSON form", v)
}

// appendNumber writes a number so that equal values are equal text: integers as
// they are, fractions as encoding/json writes a float64.
func appendNumber(b []byte, n json.Number) []byte {
	s := string(n)
	if !strings.ContainsAny(s, ".eE") {
		if s == "-0" {
			s = "0"
		}
		return append(b, s...)
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return append(b, s...) // out of range
	}
	const exact = 1 << 53
	if f > -exact && f < exact && f == float64(int64(f)) {
		return strconv.AppendInt(b, int64(f), 10)
	}
	text, err := json.Marshal(f)
	if err != nil {
		return append(b, s...)
	}
	return append(b, text...)
}

const hexDigits = "0123456789abcdef"

// appendString writes a JSON string as encoding/json does without HTML escapes.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		// U+2028 and U+2029, which JavaScript takes for ends of lines, are E2 80 A8 and A9.
		line := c == 0xE2 && i+2 < len(s) && s[i+1] == 0x80 && s[i+2]&^1 == 0xA8
		if c >= 0x20 && c != '"' && c != '\\' && !line {
			continue
		}
		b = append(b, s[start:i]...)
		switch {
		case line:
			b = append(b, `\u202`...)
			b = append(b, hexDigits[s[i+2]&0xF])
			i += 2
		case c == '"', c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, `\n`...)
		case c == '\r':
			b = append(b, `\r`...)
		case c == '\t':
			b = append(b, `\t`...)
		case c == '\b':
			b = append(b, `\b`...)
		case c == '\f':
			b = append(b, `\f`...)
		default:
			b = append(b, `\u00`...)
			b = append(b, hexDigits[c>>4], hexDigits[c&0xF])
		}
		start = i + 1
	}
	return append(append(b, s[start:]...), '"')
}
