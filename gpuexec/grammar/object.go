package grammar

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxKeys bounds the names, in bytes together, that other keys must differ from.
const maxKeys = 4096

// property is one member of an object as the grammar writes it.
type property struct {
	rule     string // key, colon, value
	required bool
}

// object converts the keywords of an object. Its members stand in the order of
// the schema, optional ones may be missing. For n properties there are 2n rules,
// whichever are optional:
//
//	first-i ::= prop-i rest-(i+1) | first-(i+1)        nothing written yet
//	rest-i  ::= "," prop-i rest-(i+1) | rest-(i+1)     something was written
//
// where the second alternative exists for optional properties only.
func (c *converter) object(n *node, at string) (string, error) {
	props, names, err := c.properties(n, at)
	if err != nil {
		return "", err
	}
	ws := c.use("ws")
	first, rest, err := c.additional(n, at, names)
	if err != nil {
		return "", err
	}
	comma := `"," ` + ws + " "
	for _, p := range slices.Backward(props) {
		f, r := p.rule+" "+rest, comma+p.rule+" "+rest
		if !p.required {
			f, r = f+" | "+first, r+" | "+rest
		}
		first, rest = c.rule(f), c.rule(r)
	}
	return `"{" ` + ws + " " + first + ` "}"`, nil
}

// properties makes a rule for each listed property.
func (c *converter) properties(n *node, at string) ([]property, []string, error) {
	required := map[string]bool{}
	if v := n.get("required"); v != nil {
		if v.kind != '[' {
			return nil, nil, fmt.Errorf("%w: %s/required must be an array of strings", ErrSchema, at)
		}
		for _, item := range v.items {
			if item.kind != '"' {
				return nil, nil, fmt.Errorf("%w: %s/required must be an array of strings", ErrSchema, at)
			}
			required[item.text] = true
		}
	}
	var props []property
	var names []string
	if v := n.get("properties"); v != nil {
		if v.kind != '{' {
			return nil, nil, fmt.Errorf("%w: %s/properties must be an object", ErrSchema, at)
		}
		ws := c.use("ws")
		for i, key := range v.keys {
			value, err := c.schema(v.items[i], at+"/properties/"+escapeKey(key))
			if err != nil {
				return nil, nil, err
			}
			body := literal(quoteJSON(key)) + " " + ws + ` ":" ` + ws + " " + value + " " + ws
			props = append(props, property{c.rule(body), required[key]})
			names = append(names, key)
			delete(required, key)
		}
	}
	if v := n.get("required"); v != nil {
		for _, item := range v.items { // in the order of the schema, so that the error is the same each time
			if required[item.text] {
				return nil, nil, &UnsupportedError{at, "required", fmt.Sprintf("%q is not among the properties", item.text)}
			}
		}
	}
	return props, names, nil
}

// additional makes the rules for members that are not listed: what may stand
// first in the object and what may follow. Without any they are empty strings.
func (c *converter) additional(n *node, at string, names []string) (first, rest string, err error) {
	v := n.get("additionalProperties")
	if (v == nil && n.get("properties") != nil) || (v != nil && v.kind == 't' && !v.truth) {
		return `""`, `""`, nil
	}
	value := c.use("value")
	if v != nil {
		if value, err = c.schema(v, at+"/additionalProperties"); err != nil {
			return "", "", err
		}
	}
	ws := c.use("ws")
	key := c.use("string")
	if len(names) > 0 {
		if size := len(strings.Join(names, "")); size > maxKeys {
			return "", "", &UnsupportedError{at, "additionalProperties", fmt.Sprintf("beside properties whose names have %d bytes, at most %d", size, maxKeys)}
		}
		key = c.otherKey(names)
	}
	member := c.rule(key + " " + ws + ` ":" ` + ws + " " + value + " " + ws)
	rest = c.rule(`("," ` + ws + " " + member + ")*")
	return c.rule("(" + member + " " + rest + ")?"), rest, nil
}

// otherKey makes a rule for keys that are none of names; such keys are written
// without escapes, so that no name can hide behind one. It walks a trie of the
// names: a key may leave it at any character, and end where no name ends.
func (c *converter) otherKey(names []string) string {
	c.use("ws")
	const plain = `"\\\x00-\x1f` // excluded from every character of a key
	tail := c.rule(`[^` + plain + `]*`)
	var walk func(prefix string, names []string) string
	walk = func(prefix string, names []string) string {
		var next []rune
		ends := false
		for _, name := range names {
			if name == prefix {
				ends = true
			} else if rest, ok := strings.CutPrefix(name, prefix); ok {
				if r, _ := utf8.DecodeRuneInString(rest); !slices.Contains(next, r) {
					next = append(next, r)
				}
			}
		}
		slices.Sort(next)
		excluded := plain
		var alts []string
		for _, r := range next {
			if r == '"' || r == '\\' || r < 0x20 {
				continue // cannot be written without an escape
			}
			excluded += classChar(r)
			alts = append(alts, classOf(r)+" "+walk(prefix+string(r), names))
		}
		alts = append(alts, "[^"+excluded+"] "+tail)
		if !ends {
			alts = append(alts, `""`)
		}
		return c.rule(strings.Join(alts, " | "))
	}
	return c.rule(`"\"" ` + walk("", names) + ` "\""`)
}

// classChar is a character inside a class; '-' and '^' need a form that is not
// their sign.
func classChar(r rune) string {
	switch {
	case r == ']' || r == '[' || r == '\\' || r == '"':
		return `\` + string(r)
	case r == '-' || r == '^' || r < 0x20 || r == 0x7f:
		return fmt.Sprintf(`\x%02x`, r)
	default:
		return string(r)
	}
}

func classOf(r rune) string { return "[" + classChar(r) + "]" }
