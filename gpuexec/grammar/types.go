package grammar

import (
	"fmt"
	"slices"
	"strings"
)

// builtins are rules of JSON itself. White space is bounded, so that a model
// cannot fill an answer with it; the pattern is llama.cpp's.
var builtins = map[string]struct {
	body string
	uses []string
}{
	"ws":      {`(" " | "\n" [ \t]{0,20})?`, nil},
	"value":   {`object | array | string | number | boolean | null`, []string{"object", "array", "string", "number", "boolean", "null"}},
	"object":  {`"{" ws (string ws ":" ws value ws ("," ws string ws ":" ws value ws)*)? "}"`, []string{"ws", "string", "value"}},
	"array":   {`"[" ws (value ws ("," ws value ws)*)? "]"`, []string{"ws", "value"}},
	"string":  {`"\"" char* "\""`, []string{"char"}},
	"number":  {`integer ("." [0-9]{1,16})? ([eE] [-+]? [0-9]{1,3})?`, []string{"integer"}},
	"integer": {`"-"? ("0" | [1-9] [0-9]{0,15})`, nil},
	"boolean": {`"true" | "false"`, nil},
	"null":    {`"null"`, nil},
	// One char is one code point: halves of surrogate pairs are left out, so
	// that minLength and maxLength count right.
	// Ranges instead of a negated class, because llama.cpp counts byte sequences
	// beyond U+10FFFF as characters, too.
	"char": {`[ !#-\[\]-\uD7FF\uE000-\U0010FFFF] | "\\" (["\\/bfnrt] | "u" ([0-9a-cA-CefEF] hex hex hex | [dD] [0-7] hex hex))`, []string{"hex"}},
	"hex":  {`[0-9a-fA-F]`, nil},
	"date": {`[0-9]{4} "-" ("0" [1-9] | "1" [0-2]) "-" ("0" [1-9] | "1" [0-9] | "2" [0-8])`, nil},
	"time": {`([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9] ":" [0-5] [0-9] ("." [0-9]{1,9})? ("Z" | [-+] ([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9])`, nil},
	"uuid": {`hex{8} "-" hex{4} "-" hex{4} "-" hex{4} "-" hex{12}`, []string{"hex"}},
}

// typeKeywords are the keywords that each type understands.
var typeKeywords = map[string][]string{
	"object":  {"properties", "required", "additionalProperties"},
	"array":   {"items", "minItems", "maxItems"},
	"string":  {"minLength", "maxLength", "format"},
	"number":  {},
	"integer": {},
	"boolean": {},
	"null":    {},
}

func typeNames(t *node, at string) ([]string, error) {
	values := t.items
	if t.kind == '"' {
		values = []*node{t}
	}
	var names []string
	for _, v := range values {
		if _, ok := typeKeywords[v.text]; v.kind != '"' || !ok {
			return nil, fmt.Errorf("%w: %s/type: %.40s is no type", ErrSchema, at, v.source)
		}
		names = append(names, v.text)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%w: %s/type must be a type or an array of types", ErrSchema, at)
	}
	return names, nil
}

// byType converts a schema that is described by its type and its keywords.
func (c *converter) byType(n *node, at string) (string, error) {
	var names []string
	if t := n.get("type"); t != nil {
		var err error
		if names, err = typeNames(t, at); err != nil {
			return "", err
		}
	} else if names = impliedType(n); names == nil {
		if err := only(n, at, "without a type"); err != nil && !c.lenient {
			return "", err
		}
		return c.use("value"), nil
	}
	allowed := []string{"type"}
	for _, name := range names {
		allowed = append(allowed, typeKeywords[name]...)
	}
	if err := only(n, at, "for "+strings.Join(names, ", "), allowed...); err != nil && !c.lenient {
		return "", err
	}
	var alts []string
	for _, name := range names {
		var expr string
		var err error
		switch name {
		case "object":
			expr, err = c.object(n, at)
		case "array":
			expr, err = c.array(n, at)
		case "string":
			expr, err = c.string(n, at)
		default:
			expr = c.use(name)
		}
		if err != nil {
			return "", err
		}
		alts = append(alts, expr)
	}
	if len(alts) == 1 {
		return alts[0], nil
	}
	return "(" + strings.Join(alts, " | ") + ")", nil
}

// impliedType is the type of a schema that names none but has its keywords:
// {"properties": …} is meant as an object, although it allows a 7, too.
func impliedType(n *node) []string {
	for _, name := range []string{"object", "array", "string"} {
		for _, k := range n.keys {
			if slices.Contains(typeKeywords[name], k) {
				return []string{name}
			}
		}
	}
	return nil
}

// bound is the value of a keyword like minItems, or fallback when absent.
func bound(n *node, at, keyword string, fallback int) (int, error) {
	v := n.get(keyword)
	if v == nil {
		return fallback, nil
	}
	i, ok := v.number()
	if !ok {
		return 0, fmt.Errorf("%w: %s/%s must be a non-negative integer", ErrSchema, at, keyword)
	}
	if i > maxRepeat {
		return 0, &UnsupportedError{at, keyword, fmt.Sprintf("it is %d, supported are 0 to %d", i, maxRepeat)}
	}
	return i, nil
}

// bounds reads a pair of bounds; most is -1 when there is no upper one.
func bounds(n *node, at, lowest, highest string) (least, most int, err error) {
	if least, err = bound(n, at, lowest, 0); err != nil {
		return 0, 0, err
	}
	if most, err = bound(n, at, highest, -1); err != nil {
		return 0, 0, err
	}
	if most >= 0 && most < least {
		return 0, 0, fmt.Errorf("%w: %s: %s %d is above %s %d", ErrSchema, pointer(at), lowest, least, highest, most)
	}
	return least, most, nil
}

// times is the repetition sign for least to most.
func times(least, most int) string {
	if most < 0 {
		return fmt.Sprintf("{%d,}", least)
	}
	return fmt.Sprintf("{%d,%d}", least, most)
}

func (c *converter) string(n *node, at string) (string, error) {
	least, most, err := bounds(n, at, "minLength", "maxLength")
	if err != nil {
		return "", err
	}
	f := n.get("format")
	if f == nil || c.lenient && (n.get("minLength") != nil || n.get("maxLength") != nil || !knownFormat(f.text)) {
		if least == 0 && most < 0 {
			return c.use("string"), nil
		}
		return c.rule(`"\"" ` + c.use("char") + times(least, most) + ` "\""`), nil
	}
	if n.get("minLength") != nil || n.get("maxLength") != nil {
		return "", &UnsupportedError{at, "format", "it is not supported together with a length"}
	}
	switch f.text {
	case "date", "time", "uuid":
		return `"\"" ` + c.use(f.text) + ` "\""`, nil
	case "date-time":
		return `"\"" ` + c.use("date") + ` "T" ` + c.use("time") + ` "\""`, nil
	default:
		return "", &UnsupportedError{at, "format", fmt.Sprintf("%.40s is not supported", f.source)}
	}
}

func knownFormat(name string) bool {
	return name == "date" || name == "time" || name == "uuid" || name == "date-time"
}

func (c *converter) array(n *node, at string) (string, error) {
	least, most, err := bounds(n, at, "minItems", "maxItems")
	if err != nil {
		return "", err
	}
	ws := c.use("ws")
	if most == 0 {
		return `"[" ` + ws + ` "]"`, nil
	}
	item := "value"
	if v := n.get("items"); v == nil {
		c.use(item)
	} else if item, err = c.schema(v, at+"/items"); err != nil {
		return "", err
	}
	item = c.rule(item + " " + ws)
	// The first item stands alone, the others follow a comma.
	rest := most
	if most > 0 {
		rest = most - 1
	}
	body := item + " (\",\" " + ws + " " + item + ")" + times(max(least-1, 0), rest)
	if least == 0 {
		body = "(" + body + ")?"
	}
	return `"[" ` + ws + " " + body + ` "]"`, nil
}
