package grammar

import (
	"errors"
	"strings"
)

// form is how a family writes calls:
//
//	before CALL between CALL … after    with CALL = open NAME middle ARGUMENTS close
type form struct {
	before, between, after string
	open, middle, close    string
	json                   bool     // names stand in quotes
	numbered               bool     // an index stands before middle
	members                *members // arguments are written one by one
	thought                string   // expression: the rest of the reasoning
}

// members is how arguments are written that are no JSON object: begin KEY middle
// VALUE end for each of them. Strings stand without quotes.
type members struct {
	begin, middle, end string
	after              string // class: what may follow < in a string, so that it ends no value
}

// Classes of characters in texts without quotes. Ranges instead of negated classes,
// see builtins.
const (
	anyRest   = `\uE000-\U0010FFFF`
	noAngle   = `[\t\n\r -;=-\uD7FF` + anyRest + `]`       // no <
	noClose   = `[\t\n\r -.0-;=-\uD7FF` + anyRest + `]`    // nor /
	noTag     = `[\t\n\r -.0-;=-oq-\uD7FF` + anyRest + `]` // nor p
	noBracket = `[\t\n\r -Z\\-\uD7FF` + anyRest + `]`      // no [
	noEnd     = `[\t\n\r -.0-Z\\-\uD7FF` + anyRest + `]`   // nor /
)

// Reasoning ends with its closing tag, which cannot begin inside it.
const (
	thought        = `(` + noAngle + ` | "<" ` + noClose + `)* "</think>\n\n"`
	thoughtMistral = `(` + noBracket + ` | "[" ` + noEnd + `)* "[/THINK]"`
)

// formOf is the form of a family that its template shows, nil for an unknown one.
func formOf(family, template string) *form {
	f := &form{thought: thought}
	switch family {
	case "hermes":
		f.json, f.between = true, "\n"
		f.open, f.middle, f.close = "<tool_call>\n{\"name\": ", `, "arguments": `, "}\n</tool_call>"
	case "coder":
		f.between = "\n"
		f.open, f.middle, f.close = "<tool_call>\n<function=", ">\n", "</function>\n</tool_call>"
		f.members = &members{"<parameter=", ">\n", "\n</parameter>\n", noTag}
	case "llama3":
		f.json, f.between = true, "; "
		f.open, f.middle, f.close = `{"name": `, `, "parameters": `, "}"
	case "kimi":
		f.numbered = true
		f.before, f.after = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
		f.open, f.middle, f.close = "<|tool_call_begin|>functions.", "<|tool_call_argument_begin|>", "<|tool_call_end|>"
	case "glm":
		f.between = "\n"
		f.open, f.middle, f.close = "<tool_call>", "\n", "</tool_call>"
		f.members = &members{"<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n", noClose}
	case "deepseek":
		f.before, f.after = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
		f.open, f.middle, f.close = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
		if strings.Contains(template, "```json") {
			f.between = "\n"
			f.open, f.middle, f.close = f.open+"function"+f.middle, "\n```json\n", "\n```"+f.close
		}
	case "mistral":
		if strings.Contains(template, "[THINK]") {
			f.thought = thoughtMistral
		}
		if strings.Contains(template, "[ARGS]") {
			f.open, f.middle = "[TOOL_CALLS]", "[ARGS]"
			return f
		}
		f.json, f.between = true, ", "
		f.before, f.after = "[TOOL_CALLS][", "]"
		f.open, f.middle, f.close = `{"name": `, `, "arguments": `, "}"
	default:
		return nil
	}
	return f
}

// quote is a name as it is written.
func (f *form) quote(name string) string {
	if f.json {
		return quoteJSON(name)
	}
	return name
}

// index is the expression of what stands between name and middle in the first call
// and in the others.
func (f *form) index(first bool) string {
	switch {
	case !f.numbered:
		return `""`
	case first:
		return `":0"`
	}
	return `":" [1-9] [0-9]?`
}

// writeMembers is the expression of arguments that are written one by one. Which of
// them there are is left open where the schema does not list them.
func (c *converter) writeMembers(t tool, f *form, plain bool) string {
	m := f.members
	if p := strings.TrimSpace(string(t.parameters)); p == "" || p == "null" {
		return `""`
	}
	if !plain {
		expr, ok := c.try(t.parameters, func(c *converter, n *node) (string, error) { return c.listed(n, m) })
		if ok {
			return expr
		}
	}
	return c.rule(literal(m.begin)+" [0-9A-Z_a-z]{1,64} "+literal(m.middle)+" "+c.rule(m.string())+" "+literal(m.end)) + "*"
}

// listed writes the properties of an object in the order of the schema.
func (c *converter) listed(n *node, m *members) (string, error) {
	props := n.get("properties")
	if n.kind != '{' || props == nil || props.kind != '{' {
		return "", errors.New("no list of properties")
	}
	required := map[string]bool{}
	if r := n.get("required"); r != nil {
		for _, item := range r.items {
			required[item.text] = true
		}
	}
	var out []string
	for i, key := range props.keys {
		if strings.ContainsAny(key, "<>\n") || key != strings.TrimSpace(key) || key == "" || len(key) > maxToolName {
			if required[key] {
				return "", errors.New("a key that cannot be written")
			}
			continue // optional: never written
		}
		value, err := c.member(props.items[i], m, "/properties/"+escapeKey(key))
		if err != nil {
			return "", err
		}
		// The markers are rules of their own: every character counts, see maxElements.
		rule := c.rule(c.rule(literal(m.begin)) + " " + literal(key) + " " + c.rule(literal(m.middle)) + " " + value + " " + c.rule(literal(m.end)))
		if !required[key] {
			rule += "?"
		}
		out = append(out, rule)
	}
	return strings.Join(append(out, `""`), " "), nil
}

// string is the expression of any string without quotes.
func (m *members) string() string { return `(` + noAngle + ` | "<" ` + m.after + `)*` }

// member is the expression of a value: without quotes if it is a string by its type.
func (c *converter) member(n *node, m *members, at string) (string, error) {
	if t := n.get("type"); t == nil || t.text != "string" {
		return c.schema(n, at)
	}
	text := c.rule(m.string())
	values := n.get("enum")
	if v := n.get("const"); v != nil {
		values = &node{items: []*node{v}}
	}
	if values != nil {
		var alts []string
		for _, v := range values.items {
			if v.kind == '"' && !strings.Contains(v.text, "<") {
				alts = append(alts, literal(v.text))
			}
		}
		if len(alts) == len(values.items) && len(alts) > 0 {
			return "(" + strings.Join(alts, " | ") + ")", nil
		}
		return text, nil
	}
	least, most, err := bounds(n, at, "minLength", "maxLength")
	if err != nil {
		return text, nil //nolint:nilerr // bounds that the subset lacks
	}
	if f := n.get("format"); f != nil && least == 0 && most < 0 {
		switch f.text {
		case "date", "time", "uuid":
			return c.use(f.text), nil
		case "date-time":
			return c.use("date") + ` "T" ` + c.use("time"), nil
		}
	}
	if least == 0 && most < 0 {
		return text, nil
	}
	return noAngle + times(least, most), nil
}
