package grammar

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrUnsupported: the schema uses what the subset lacks. Errors are of type
// *UnsupportedError.
var ErrUnsupported = errors.New("grammar: unsupported JSON Schema")

// ErrSchema: the text is no JSON Schema.
var ErrSchema = errors.New("grammar: bad JSON Schema")

// UnsupportedError names the place that FromSchema cannot convert.
type UnsupportedError struct {
	Pointer string // JSON pointer of the schema that holds the keyword, "" for the whole
	Keyword string
	Reason  string
}

// Error implements error.
func (e *UnsupportedError) Error() string {
	at := e.Pointer
	if at == "" {
		at = "/"
	}
	return fmt.Sprintf("%v: %q at %s: %s", ErrUnsupported, e.Keyword, at, e.Reason)
}

// Unwrap makes errors.Is(err, ErrUnsupported) true.
func (e *UnsupportedError) Unwrap() error { return ErrUnsupported }

// Annotations say nothing about which values conform.
var annotations = []string{
	"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly",
	"$schema", "$id", "$comment", "$defs", "definitions",
}

// FromSchema makes a GBNF grammar whose texts all conform to a JSON Schema. The
// subset, all else is an *UnsupportedError:
//
//	type        one name or several of object array string number integer boolean null
//	object      properties, required, additionalProperties (false, true or a schema)
//	array       items, minItems, maxItems (to 1,000)
//	string      minLength, maxLength (to 1,000), format date time date-time uuid
//	any         enum, const, anyOf, oneOf (as anyOf), allOf of one, $ref within the document
//	annotations title, description, default, …: without effect
//
// The grammar writes one form of many: properties in the order of the schema,
// numbers of at most 16 digits before and after the point, days up to the 28th,
// values of enum and const as compact JSON. Where properties are listed and additionalProperties
// is not, no others are written. Errors wrap ErrUnsupported or ErrSchema.
func FromSchema(schema json.RawMessage) (string, error) {
	root, err := parseJSON(schema)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrSchema, err)
	}
	c := &converter{root: root, bodies: map[string]string{}, refs: map[string]string{}}
	expr, err := c.schema(root, "")
	if err != nil {
		return "", err
	}
	return c.finish(expr)
}

// JSONObject is the grammar of any JSON object: response_format json_object.
func JSONObject() string {
	c := &converter{}
	text, err := c.finish(c.use("object"))
	if err != nil {
		panic("grammar: the built-in rules are wrong: " + err.Error()) // a test guards it
	}
	return text
}

// converter builds rules. A schema becomes an expression of GBNF.
type converter struct {
	root    *node
	rules   strings.Builder
	count   int
	bodies  map[string]string // body of a rule → its name
	refs    map[string]string // pointer of a referenced schema → rule name
	builtin []string          // names of built-in rules in use
	// lenient leaves out what the subset lacks: the grammar then allows more than the
	// schema. See ToolCalls.
	lenient bool
}

// rule adds a rule and returns its name. Equal bodies share one rule: a schema
// has many strings of the same length, and each costs a rule per character.
func (c *converter) rule(body string) string {
	if name, ok := c.bodies[body]; ok {
		return name
	}
	name := c.reserve()
	c.bodies[body] = name
	c.define(name, body)
	return name
}

func (c *converter) reserve() string {
	c.count++
	return fmt.Sprintf("r%d", c.count)
}

func (c *converter) define(name, body string) {
	fmt.Fprintf(&c.rules, "%s ::= %s\n", name, body)
}

func (c *converter) finish(root string) (string, error) {
	text := "root ::= " + root + "\n" + c.rules.String()
	for i := 0; i < len(c.builtin); i++ { // grows while it runs: rules use rules
		name := c.builtin[i]
		for _, used := range builtins[name].uses {
			c.use(used)
		}
		text += name + " ::= " + builtins[name].body + "\n"
	}
	if err := Check(text); err != nil {
		return "", fmt.Errorf("%w: it has no finite value or is too large: %w", ErrSchema, err)
	}
	return text, nil
}

// use makes sure that a built-in rule is part of the grammar.
func (c *converter) use(name string) string {
	if !slices.Contains(c.builtin, name) {
		c.builtin = append(c.builtin, name)
	}
	return name
}

// schema converts the schema n at a JSON pointer.
func (c *converter) schema(n *node, at string) (string, error) {
	expr, err := c.convert(n, at)
	if c.lenient && errors.Is(err, ErrUnsupported) {
		return c.use("value"), nil
	}
	return expr, err
}

func (c *converter) convert(n *node, at string) (string, error) {
	switch {
	case n.kind == 't' && n.truth:
		return c.use("value"), nil
	case n.kind == 't':
		return "", &UnsupportedError{at, "false", "nothing conforms to it"}
	case n.kind != '{':
		return "", fmt.Errorf("%w: %q is neither an object nor a boolean", ErrSchema, pointer(at))
	}
	for _, form := range []struct {
		keyword string
		convert func(v *node, at string) (string, error)
	}{
		{"$ref", c.ref}, {"const", c.constant}, {"enum", c.enum}, {"anyOf", c.anyOf}, {"oneOf", c.anyOf}, {"allOf", c.allOf},
	} {
		v := n.get(form.keyword)
		if v == nil {
			continue
		}
		allowed := []string{form.keyword}
		if form.keyword == "enum" || form.keyword == "const" {
			allowed = append(allowed, "type") // the usual, redundant, companion
		}
		if err := only(n, at, "beside "+form.keyword, allowed...); err != nil && c.lenient && n.get("type") != nil {
			continue // the type says more
		} else if err != nil && !c.lenient {
			return "", err
		}
		if err := c.agree(n, v, at, form.keyword); err != nil {
			return "", err
		}
		return form.convert(v, at+"/"+form.keyword)
	}
	return c.byType(n, at)
}

// only refuses keywords that the caller does not handle.
func only(n *node, at, where string, allowed ...string) error {
	for _, k := range n.keys {
		if !slices.Contains(allowed, k) && !slices.Contains(annotations, k) {
			return &UnsupportedError{at, k, "it is not supported " + where}
		}
	}
	return nil
}

// agree checks that the values of enum and const have the type beside them.
func (c *converter) agree(n, v *node, at, keyword string) error {
	t := n.get("type")
	if t == nil || (keyword != "enum" && keyword != "const") {
		return nil
	}
	names, err := typeNames(t, at)
	if err != nil {
		return err
	}
	values := []*node{v}
	if keyword == "enum" {
		values = v.items
	}
	for _, value := range values {
		if !slices.ContainsFunc(names, func(name string) bool { return value.is(name) }) {
			return &UnsupportedError{at, keyword, fmt.Sprintf("%.40s is not of the type beside it", value.source)}
		}
	}
	return nil
}

// is tells whether a value has a type of JSON Schema.
func (n *node) is(name string) bool {
	switch name {
	case "object":
		return n.kind == '{'
	case "array":
		return n.kind == '['
	case "string":
		return n.kind == '"'
	case "number":
		return n.kind == '0'
	case "integer":
		return n.kind == '0' && !strings.ContainsAny(n.text, ".eE")
	case "boolean":
		return n.kind == 't'
	default:
		return n.kind == 'n'
	}
}

func (c *converter) constant(v *node, _ string) (string, error) { return literal(v.source), nil }

func (c *converter) enum(v *node, at string) (string, error) {
	if v.kind != '[' || len(v.items) == 0 {
		return "", fmt.Errorf("%w: %s must be an array with values", ErrSchema, at)
	}
	var alts []string
	for _, item := range v.items {
		alts = append(alts, literal(item.source))
	}
	return "(" + strings.Join(alts, " | ") + ")", nil
}

func (c *converter) anyOf(v *node, at string) (string, error) {
	if v.kind != '[' || len(v.items) == 0 {
		return "", fmt.Errorf("%w: %s must be an array with schemas", ErrSchema, at)
	}
	var alts []string
	for i, item := range v.items {
		expr, err := c.schema(item, fmt.Sprintf("%s/%d", at, i))
		if err != nil {
			return "", err
		}
		alts = append(alts, expr)
	}
	return "(" + strings.Join(alts, " | ") + ")", nil
}

func (c *converter) allOf(v *node, at string) (string, error) {
	if v.kind != '[' || len(v.items) != 1 {
		return "", &UnsupportedError{strings.TrimSuffix(at, "/allOf"), "allOf", "only one schema in it is supported"}
	}
	return c.schema(v.items[0], at+"/0")
}

// ref converts a referenced schema once, to a rule that may use itself.
func (c *converter) ref(v *node, at string) (string, error) {
	at = strings.TrimSuffix(at, "/$ref")
	if v.kind != '"' || !strings.HasPrefix(v.text, "#") {
		return "", &UnsupportedError{at, "$ref", "only references within the document (#/…) are supported"}
	}
	target := v.text[1:]
	if name, ok := c.refs[target]; ok {
		return name, nil
	}
	n := c.root
	for _, step := range strings.Split(target, "/")[1:] {
		n = child(n, strings.NewReplacer("~1", "/", "~0", "~").Replace(step))
		if n == nil {
			return "", fmt.Errorf("%w: %s/$ref: %q leads nowhere", ErrSchema, at, v.text)
		}
	}
	name := c.reserve()
	c.refs[target] = name
	expr, err := c.schema(n, target)
	if err != nil {
		return "", err
	}
	c.define(name, expr)
	return name, nil
}

func child(n *node, step string) *node {
	if n.kind != '[' {
		return n.get(step)
	}
	for i, item := range n.items {
		if fmt.Sprint(i) == step {
			return item
		}
	}
	return nil
}

func pointer(at string) string {
	if at == "" {
		return "/"
	}
	return at
}

// escapeKey is a key as a step of a JSON pointer.
func escapeKey(key string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(key) }

// literal is a GBNF string.
func literal(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
