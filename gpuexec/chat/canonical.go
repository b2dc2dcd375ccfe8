package chat

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// Canonical names what a message says: role, content and tool calls, as compact
// JSON with sorted keys. Two messages with equal canonical text were the same
// answer: clients re-order keys, turn null content into "" or leave it out, wrap
// text in parts, change the white space of tool arguments and re-issue call ids.
// Reasoning and other fields do not count: clients drop them.
// The error wraps ErrMessage.
func Canonical(raw json.RawMessage) (string, error) {
	m, err := message(0, raw)
	if err != nil {
		return "", err
	}
	out := map[string]any{"role": field(m, "role"), "content": ""}
	if content := plain(field(m, "content")); content != nil {
		out["content"] = content
	}
	if calls, ok := field(m, "tool_calls").(list); ok && len(calls) > 0 {
		var named []any
		for _, call := range calls {
			f := object(field(object(call), "function"))
			arguments := plain(field(f, "arguments"))
			if arguments == nil || arguments == "" {
				arguments = map[string]any{} // no arguments
			}
			named = append(named, map[string]any{"name": field(f, "name"), "arguments": arguments})
		}
		out["tool_calls"] = named
	}
	for _, key := range []string{"name", "tool_call_id"} {
		if s, ok := field(m, key).(string); ok && field(m, "role") != "assistant" {
			out[key] = s
		}
	}
	return marshalSorted(out)
}

// Digest is the SHA-256 of a canonical message in hex.
func Digest(canonical string) string {
	sum := sha256.Sum256([]byte(canonical))
	return hex.EncodeToString(sum[:])
}
