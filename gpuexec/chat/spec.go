package chat

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
)

// Family names models that write reasoning and tool calls in the same way.
type Family string

// The families. What each of them reads is in families.go.
const (
	Coder    Family = "coder"    // Qwen3-Coder and later: reads as Hermes, strings without quotes
	Hermes   Family = "hermes"   // Hermes 2 and 3, Qwen 2.5 and 3
	Llama3   Family = "llama3"   // Llama 3.1 to 3.3
	Kimi     Family = "kimi"     // Kimi K2
	GLM      Family = "glm"      // GLM 4.5 and later
	DeepSeek Family = "deepseek" // DeepSeek V3, V3.1, R1
	Mistral  Family = "mistral"  // Mistral, Magistral, Devstral
)

// Families are all families, in the order of their names.
func Families() []Family { return []Family{Coder, DeepSeek, GLM, Hermes, Kimi, Llama3, Mistral} }

// ErrSpec: a text is no parser spec.
var ErrSpec = errors.New("chat: bad parser spec")

// Spec says how an answer's text becomes a message. The zero Spec takes all text
// as content.
type Spec struct {
	Family Family
	Tools  bool // tool calls are looked for; otherwise their markers are text
	Thinks bool // the prompt has already opened the reasoning
	One    bool // at most one call: the others are left out
	// Strings is a set of parameters that are strings, for families that write
	// strings without quotes; see StringParameters. Empty: values that are JSON
	// are taken as JSON.
	Strings string
}

// String is the text of a spec, such as "hermes+tools+think"; "" for the zero Spec.
func (s Spec) String() string {
	if s == (Spec{}) {
		return ""
	}
	text := string(s.Family)
	for _, flag := range []struct {
		on   bool
		name string
	}{{s.Tools, "+tools"}, {s.Thinks, "+think"}, {s.One, "+one"}} {
		if flag.on {
			text += flag.name
		}
	}
	if s.Strings != "" {
		text += "+str:" + s.Strings
	}
	return text
}

// ParseSpec reads what Spec.String writes. The error wraps ErrSpec.
func ParseSpec(text string) (Spec, error) {
	if text == "" {
		return Spec{}, nil
	}
	family, flags, more := strings.Cut(text, "+")
	s := Spec{Family: Family(family)}
	if syntaxOf(s.Family) == nil {
		return Spec{}, fmt.Errorf("%w: %.60q names no family; there are %v", ErrSpec, text, Families())
	}
	for more {
		var flag string
		flag, flags, more = strings.Cut(flags, "+")
		set, isSet := strings.CutPrefix(flag, "str:")
		switch {
		case flag == "tools":
			s.Tools = true
		case flag == "think":
			s.Thinks = true
		case flag == "one":
			s.One = true
		case isSet && bloomOf(set) != nil:
			s.Strings = set
		default:
			return Spec{}, fmt.Errorf("%w: %.60q has the unknown flag %.40q", ErrSpec, text, flag)
		}
	}
	return s, nil
}

// FamilyOf finds the family in the source of a Jinja template, by the markers that
// it writes; false when it writes none that is known.
func FamilyOf(template string) (Family, bool) {
	for _, sign := range []struct {
		text   string
		family Family
	}{
		{"<|tool_call_begin|>", Kimi},
		{"<｜tool▁call▁begin｜>", DeepSeek},
		{"｜DSML｜", DeepSeek},
		{"<arg_key>", GLM},
		{"[TOOL_CALLS]", Mistral},
		{"<|python_tag|>", Llama3},
		{"<function=", Coder},
		{"<tool_call>", Hermes},
		// Templates without tools.
		{"<｜Assistant｜>", DeepSeek},
		{"<|start_header_id|>", Llama3},
		{"<|im_middle|>", Kimi},
		{"[THINK]", Mistral},
		{"[gMASK]", GLM},
		{"<|im_start|>", Hermes},
	} {
		if strings.Contains(template, sign.text) {
			return sign.family, true
		}
	}
	return "", false
}

// Markers are the texts that a parser of a family must see. Where one of them is a
// control token of the model, its text is not hidden. nil for no family.
func Markers(f Family) []string {
	s := syntaxOf(f)
	if s == nil {
		return nil
	}
	var out []string
	add := func(text string) {
		text = strings.Trim(text, "\n")
		for _, known := range out {
			if known == text {
				return
			}
		}
		if len(text) > 1 && (text[0] == '<' || text[0] == '[') { // not what lies between them
			out = append(out, text)
		}
	}
	for _, m := range s.markers {
		add(m.text)
	}
	for _, st := range s.steps {
		for _, w := range st.words {
			add(w.text)
		}
	}
	return out
}

// CallID is the id of a job's call by its index: the same for every reader.
// Mistral's templates take ids of nine letters and digits only.
func CallID(f Family, job string, index int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", job, index))
	const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	n, prefix := 24, "call_"
	if f == Mistral {
		n, prefix = 9, ""
	}
	id := []byte(prefix)
	for _, b := range sum[:n] {
		id = append(id, alphabet[int(b)%len(alphabet)])
	}
	return string(id)
}
