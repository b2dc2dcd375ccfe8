package grammar

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// ErrTools: tools cannot be forced as asked.
var ErrTools = errors.New("grammar: bad tools")

// Calls are tool calls that an answer must consist of.
type Calls struct {
	// Family is how the model writes them, as gpuexec/chat names it.
	Family string
	// Template is the source of the chat template. It decides between the forms that
	// one family has.
	Template string
	Tools    []json.RawMessage // objects of Chat Completions
	Only     []string          // names of the tools that may be called; none: all of them
	One      bool              // exactly one call, otherwise up to 16
	Thinks   bool              // the prompt has opened the reasoning, which comes first
}

const (
	maxParallel = 16       // calls in one answer
	maxTools    = 2048     // tools to choose from
	maxToolText = 16 << 20 // bytes of all tools
)

// ToolCalls makes the grammar of forced calls: required, or a named function, as
// tool_choice. Names are those of the tools; arguments follow the tool's schema by
// FromSchema. What the subset there lacks is left out: a keyword, or the schema of a
// value, or in the end the whole schema, so that any JSON object passes. Where the
// grammar would become too large, the tools with the longest schemas go without.
// Errors wrap ErrTools.
func ToolCalls(calls Calls) (string, error) {
	form := formOf(calls.Family, calls.Template)
	if form == nil {
		return "", fmt.Errorf("%w: models of the family %q cannot be made to call tools", ErrTools, calls.Family)
	}
	tools, err := calls.parse(form)
	if err != nil {
		return "", err
	}
	var text string
	for follow := len(tools); ; follow /= 2 {
		if text, err = calls.grammar(form, tools, follow); err == nil || follow == 0 {
			break
		}
	}
	if err != nil {
		return "", fmt.Errorf("%w: the grammar of %d tools is too large; offer fewer of them or force one: %w", ErrTools, len(tools), err)
	}
	return text, nil
}

// tool is one that may be called.
type tool struct {
	name       string
	parameters json.RawMessage
	rank       int // number of tools with shorter schemas
}

// parse picks the tools that may be called.
func (calls Calls) parse(f *form) ([]tool, error) {
	size := 0
	var tools []tool
	seen := map[string]bool{}
	for i, raw := range calls.Tools {
		if size += len(raw); size > maxToolText {
			return nil, fmt.Errorf("%w: more than %d bytes", ErrTools, maxToolText)
		}
		var t struct {
			Function struct {
				Name       string          `json:"name"`
				Parameters json.RawMessage `json:"parameters"`
			} `json:"function"`
		}
		if err := json.Unmarshal(raw, &t); err != nil || t.Function.Name == "" {
			return nil, fmt.Errorf("%w: tools[%d] must be an object with function.name", ErrTools, i)
		}
		name := t.Function.Name
		if len(calls.Only) > 0 && !slices.Contains(calls.Only, name) || seen[name] {
			continue
		}
		if len(name) > maxToolName || !f.json && strings.ContainsAny(name, unnamed) || !utf8.ValidString(name) {
			return nil, fmt.Errorf("%w: tools[%d].function.name %.80q cannot be written by models of the family %q: letters, digits, _ and - are sure", ErrTools, i, name, calls.Family)
		}
		seen[name] = true
		tools = append(tools, tool{name: name, parameters: t.Function.Parameters})
	}
	for _, name := range calls.Only {
		if !seen[name] {
			return nil, fmt.Errorf("%w: no tool is called %.80q", ErrTools, name)
		}
	}
	switch {
	case len(tools) == 0:
		return nil, fmt.Errorf("%w: there are none to call", ErrTools)
	case len(tools) > maxTools:
		return nil, fmt.Errorf("%w: %d to choose from, at most %d", ErrTools, len(tools), maxTools)
	}
	slices.SortStableFunc(tools, func(a, b tool) int { return len(a.parameters) - len(b.parameters) })
	for i := range tools {
		tools[i].rank = i
	}
	slices.SortFunc(tools, func(a, b tool) int { return strings.Compare(f.quote(a.name), f.quote(b.name)) })
	return tools, nil
}

// unnamed are characters that end a name where it is written without quotes.
const (
	unnamed     = " \t\r\n<>{}[]()\"'`,;="
	maxToolName = 200
)

// grammar writes the rules. It follows the shortest schemas, as many as follow says.
func (calls Calls) grammar(f *form, tools []tool, follow int) (string, error) {
	c := &converter{bodies: map[string]string{}, refs: map[string]string{}}
	arguments := make([]string, len(tools))
	for i, t := range tools {
		arguments[i] = c.rule(c.argumentsOf(t, f, t.rank >= follow))
		if c.rules.Len() > maxSource {
			return "", fmt.Errorf("more than %d bytes", maxSource)
		}
	}
	call := func(first bool) string {
		all := make([]named, len(tools))
		for i, t := range tools {
			all[i] = named{f.quote(t.name), seq(f.index(first), literal(f.middle), arguments[i])}
		}
		return c.rule(seq(literal(f.open), c.choice(all, ""), literal(f.close)))
	}
	parts := []string{literal(f.before), call(true)}
	if calls.Thinks {
		parts = append([]string{c.rule(f.thought)}, parts...)
	}
	if !calls.One {
		parts = append(parts, c.rule(seq(literal(f.between), call(false)))+times(0, maxParallel-1))
	}
	return c.finish(seq(append(parts, literal(f.after))...))
}

// seq is a sequence of expressions, without the empty ones.
func seq(parts ...string) string {
	var out []string
	for _, p := range parts {
		if p != `""` {
			out = append(out, p)
		}
	}
	return strings.Join(out, " ")
}

// named is a tool's name as it is written, and the expression of what follows it.
type named struct{ name, rest string }

// choice writes names as a tree by their first characters, so that the library
// follows one of them and not all: names share long beginnings, and every token is
// tried against each alternative. Behind a name comes what belongs to it.
func (c *converter) choice(from []named, written string) string {
	if len(from) == 1 {
		return seq(literal(from[0].name[len(written):]), from[0].rest)
	}
	// What all have in common.
	common := from[0].name
	for _, n := range from[1:] {
		for !strings.HasPrefix(n.name, common) {
			_, size := utf8.DecodeLastRuneInString(common)
			common = common[:len(common)-size]
		}
	}
	var alts []string
	for len(from) > 0 {
		if from[0].name == common { // sorted: the shortest is the first
			alts = append(alts, from[0].rest)
			from = from[1:]
			continue
		}
		r, _ := utf8.DecodeRuneInString(from[0].name[len(common):])
		prefix := common + string(r)
		n := 1
		for n < len(from) && strings.HasPrefix(from[n].name, prefix) {
			n++
		}
		alts = append(alts, c.choice(from[:n], common))
		from = from[n:]
	}
	rest := c.rule(strings.Join(alts, " | "))
	return seq(literal(common[len(written):]), rest)
}

// argumentsOf is the expression of a tool's arguments.
func (c *converter) argumentsOf(t tool, f *form, plain bool) string {
	if f.members != nil {
		return c.writeMembers(t, f, plain)
	}
	if p := strings.TrimSpace(string(t.parameters)); p == "" || p == "null" {
		return `"{}"`
	}
	if !plain {
		if expr, ok := c.try(t.parameters, (*converter).objectSchema); ok {
			return expr
		}
	}
	return c.use("object")
}

// objectSchema converts a schema that is of an object.
func (c *converter) objectSchema(n *node) (string, error) {
	t := n.get("type")
	if n.kind != '{' || t != nil && t.text != "object" || t == nil && !slices.Equal(impliedType(n), []string{"object"}) {
		return "", &UnsupportedError{"", "type", "arguments are an object"}
	}
	return c.convert(n, "")
}

// try converts a document of its own. It is tried alone first: a schema that cannot
// be converted, or has no finite value, leaves nothing behind. Equal rules of several
// documents are written once.
func (c *converter) try(schema json.RawMessage, convert func(*converter, *node) (string, error)) (string, bool) {
	root, err := parseJSON(schema)
	if err != nil {
		return "", false
	}
	alone := &converter{root: root, lenient: true, bodies: map[string]string{}, refs: map[string]string{}}
	expr, err := convert(alone, root)
	if err == nil {
		_, err = alone.finish(expr)
	}
	if err != nil {
		return "", false
	}
	c.root, c.lenient, c.refs = root, true, map[string]string{}
	expr, err = convert(c, root)
	return expr, err == nil
}
