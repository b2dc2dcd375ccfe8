package chat

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
)

// The set of string parameters is a Bloom filter in base64, two bytes per parameter
// in each frame instead of the tools' schemas. Its first byte is a salt, which is
// chosen so that none of the other parameters is taken for a string.
const (
	bloomBits   = 16  // per member; 4 hashes: 1 of 400 others would be taken for a member
	bloomHashes = 4   //
	bloomMost   = 512 // members
)

// StringParameters is the set for Spec.Strings: which parameters of which tools are
// strings, as far as their schemas say so by "type". tools are objects of Chat
// Completions. It is "" for families that write arguments as JSON, and when there
// are more than 512 such parameters.
func StringParameters(f Family, tools []json.RawMessage) string {
	if f != Coder && f != GLM {
		return ""
	}
	type tool struct {
		Function struct {
			Name       string `json:"name"`
			Parameters struct {
				Properties map[string]json.RawMessage `json:"properties"`
			} `json:"parameters"`
		} `json:"function"`
	}
	var members, others [][2]string
	for _, raw := range tools {
		var t tool
		if json.Unmarshal(raw, &t) != nil {
			continue // a schema of another form tells nothing
		}
		for name, schema := range t.Function.Parameters.Properties {
			var s struct {
				Type string `json:"type"`
			}
			if json.Unmarshal(schema, &s) == nil && s.Type == "string" {
				members = append(members, [2]string{t.Function.Name, name})
			} else {
				others = append(others, [2]string{t.Function.Name, name})
			}
		}
	}
	if len(members) == 0 || len(members) > bloomMost {
		return ""
	}
	for salt := range 256 {
		set := make([]byte, 1+len(members)*bloomBits/8)
		set[0] = byte(salt)
		for _, m := range members { // in any order: setting bits commutes
			for _, bit := range bloomAt(set, m[0], m[1]) {
				set[1+bit/8] |= 1 << (bit % 8)
			}
		}
		if !hasAnyOf(set, others) {
			return base64.RawURLEncoding.EncodeToString(set)
		}
	}
	return ""
}

func hasAnyOf(set []byte, parameters [][2]string) bool {
	for _, p := range parameters {
		if bloomHas(set, p[0], p[1]) {
			return true
		}
	}
	return false
}

func bloomOf(text string) []byte {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) < 2 || len(b) > 1+bloomMost*bloomBits/8 {
		return nil
	}
	return b
}

// bloomAt are the bits of a tool's parameter in a set.
func bloomAt(set []byte, tool, parameter string) (at [bloomHashes]int) {
	sum := sha256.Sum256([]byte(string(set[:1]) + tool + "\x00" + parameter))
	for i := range at {
		at[i] = (int(sum[2*i])<<8 | int(sum[2*i+1])) % (8 * (len(set) - 1))
	}
	return at
}

func bloomHas(set []byte, tool, parameter string) bool {
	if len(set) == 0 {
		return false
	}
	for _, bit := range bloomAt(set, tool, parameter) {
		if set[1+bit/8]&(1<<(bit%8)) == 0 {
			return false
		}
	}
	return true
}
