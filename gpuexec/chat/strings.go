package chat

import (
	"encoding/base64"
	"encoding/json"
)

// StringParameters is the set for Spec.Strings: which parameters of which tools are
// strings, as far as their schemas say so by "type". tools are objects of Chat
// Completions. It is "" for families that write arguments as JSON, and when there
// are more than 512 such parameters.
func StringParameters(f Family, tools []json.RawMessage) string {
	if f != Hermes && f != GLM {
		return ""
	}
	type tool struct {
		Function struct {
			Name       string `json:"name"`
			Parameters struct {
				Properties map[string]struct {
					Type json.RawMessage `json:"type"`
				} `json:"properties"`
			} `json:"parameters"`
		} `json:"function"`
	}
	var members [][2]string
	for _, raw := range tools {
		var t tool
		if json.Unmarshal(raw, &t) != nil {
			continue // a schema of another form tells nothing
		}
		for name, p := range t.Function.Parameters.Properties {
			if string(p.Type) == `"string"` {
				members = append(members, [2]string{t.Function.Name, name})
			}
		}
	}
	if len(members) == 0 || len(members) > bloomMost {
		return ""
	}
	set := make([]byte, (len(members)*bloomBits+7)/8)
	for _, m := range members { // in any order: setting bits commutes
		for _, bit := range bloomAt(len(set), m[0], m[1]) {
			set[bit/8] |= 1 << (bit % 8)
		}
	}
	return base64.RawURLEncoding.EncodeToString(set)
}
