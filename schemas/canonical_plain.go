package schemas

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"unicode/utf8"
)

// plainMessage reads a message that has a role and a text and nothing else, which
// most have, in a quarter of the time that decoding any JSON takes. ok is false for
// all others, and for what may be wrong.
func plainMessage(raw []byte) (f CanonicalForm, ok bool) {
	raw = bytes.TrimSpace(raw)
	if len(raw) < 2 || raw[0] != '{' || raw[len(raw)-1] != '}' || !utf8.Valid(raw) {
		return f, false
	}
	var content string
	var hasContent bool
	for i, n := 1, len(raw)-1; ; {
		var key, value string
		if key, i, ok = plainString(raw[:n], skipSpace(raw[:n], i)); !ok {
			return f, false
		}
		if i = skipSpace(raw[:n], i); i >= n || raw[i] != ':' {
			return f, false
		}
		if value, i, ok = plainString(raw[:n], skipSpace(raw[:n], i+1)); !ok {
			return f, false
		}
		switch {
		case key == "role" && f.Role == "" && value != "":
			f.Role = value
		case key == "content" && !hasContent:
			content, hasContent = value, true
		default:
			return f, false
		}
		if i = skipSpace(raw[:n], i); i >= n {
			break
		}
		if raw[i] != ',' {
			return f, false
		}
		i++
	}
	if f.Role == "" {
		return f, false
	}
	b := append(make([]byte, 0, len(raw)+32), `{"content":`...)
	b = appendString(append(appendString(b, content), `,"role":`...), f.Role)
	f.JSON = append(b, '}')
	sum := sha256.Sum256(f.JSON)
	copy(f.Digest[:], sum[:])
	return f, true
}

// plainString reads the JSON string that begins at i, and returns where it ends.
func plainString(raw []byte, i int) (s string, end int, ok bool) {
	if i >= len(raw) || raw[i] != '"' {
		return "", i, false
	}
	escaped := false
	for end = i + 1; end < len(raw); end++ {
		switch c := raw[end]; {
		case c == '\\':
			escaped = true
			end++
		case c < 0x20:
			return "", i, false
		case c == '"':
			end++
			if !escaped {
				return string(raw[i+1 : end-1]), end, true
			}
			return s, end, json.Unmarshal(raw[i:end], &s) == nil
		}
	}
	return "", i, false
}
