package chat

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/nikolalohinski/gonja/v2/exec"
)

// message decodes message i of a request for a template:
//   - parts that are all text become one string, joined by line feeds, because
//     templates of text models know strings only (vLLM and llama.cpp do the same);
//     a message with an image keeps its parts;
//   - the arguments of a tool call, a string in Chat Completions, become the
//     object that templates expect, if they are one.
func message(i int, raw json.RawMessage) (*exec.Dict, error) {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: messages[%d]%s", ErrMessage, i, fmt.Sprintf(format, args...))
	}
	v, err := decode(raw)
	if err != nil {
		return nil, bad(" is not valid JSON: %v", err)
	}
	m := object(v)
	if m == nil {
		return nil, bad(" must be an object")
	}
	role, ok := field(m, "role").(string)
	if !ok || role == "" {
		return nil, bad(".role must be a string")
	}
	switch content := field(m, "content").(type) {
	case nil, *null, string:
	case list:
		text, images, err := flatten(content)
		if err != nil {
			return nil, bad(".content%v", err)
		}
		if !images {
			setField(m, "content", text)
		}
	default:
		return nil, bad(".content must be a string, an array of parts or null")
	}
	switch calls := field(m, "tool_calls").(type) {
	case nil, *null:
	case list:
		for j, call := range calls {
			if err := parseArguments(call); err != nil {
				return nil, bad(".tool_calls[%d]%v", j, err)
			}
		}
	default:
		return nil, bad(".tool_calls must be an array")
	}
	return m, nil
}

// flatten joins text parts and tells whether there are parts of another kind.
func flatten(parts list) (text string, others bool, err error) {
	var texts []string
	for i, p := range parts {
		part := object(p)
		kind, _ := field(part, "type").(string)
		switch kind {
		case "text", "input_text", "output_text", "refusal":
			key := "text"
			if kind == "refusal" {
				key = kind
			}
			s, ok := field(part, key).(string)
			if !ok {
				return "", false, fmt.Errorf("[%d].%s must be a string", i, key)
			}
			texts = append(texts, s)
		case "":
			return "", false, fmt.Errorf("[%d] must be an object with a type", i)
		default:
			others = true
		}
	}
	return strings.Join(texts, "\n"), others, nil
}

// parseArguments replaces the arguments string of a call by the object in it.
func parseArguments(call any) error {
	c := object(call)
	if c == nil {
		return fmt.Errorf(" must be an object")
	}
	f := object(field(c, "function"))
	if f == nil {
		return fmt.Errorf(".function must be an object")
	}
	if name, ok := field(f, "name").(string); !ok || name == "" {
		return fmt.Errorf(".function.name must be a string")
	}
	s, ok := field(f, "arguments").(string)
	if !ok {
		return nil
	}
	if v, err := decode(json.RawMessage(s)); err == nil && object(v) != nil {
		setField(f, "arguments", v)
	}
	return nil
}
