package jinja

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
)

// generator writes random templates. Expressions have a type, so that most
// templates render. What the engines print differently is left out: none, lists
// and objects go through tojson, and truth values through a condition.
type generator struct {
	*rand.Rand
	full   bool // more than @huggingface/jinja knows
	depth  int
	scopes [][]variable
	macros []string // names; each takes two strings
	loops  int      // loops around the place
	fresh  int      // for new names
}

// kind is the type of an expression.
type kind uint8

const (
	text kind = iota
	number
	truth
	messages // list of messages
	texts    // list of strings
	numbers
	object
	message
	kinds
)

type variable struct {
	name string
	kind kind
}

// maxDepth bounds the nesting of expressions and tags.
const maxDepth = 4

// Random is a template and its input, the same for every seed.
func Random(seed uint64, full bool) Case {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0x6a696e6a61)), full: full}
	c := Case{Messages: g.messages(), Kwargs: map[string]any{
		"s": g.words(), "n": g.IntN(9), "flag": g.IntN(2) == 0, "d": g.value(3, true), "names": []string{g.word(), g.word(), g.word()},
	}, Generate: g.IntN(2) == 0}
	if g.IntN(2) == 0 {
		c.Tools = []json.RawMessage{mustJSON(map[string]any{"type": "function", "function": map[string]any{"name": g.word(), "parameters": g.value(3, true)}})}
	}
	g.scopes = [][]variable{{{"s", text}, {"n", number}, {"flag", truth}, {"d", object}, {"names", texts}, {"messages", messages}}}
	var b strings.Builder
	b.WriteString("{%- set ns = namespace(count=0, text='') -%}\n")
	for range 1 + g.IntN(2) {
		g.macro(&b)
	}
	g.body(&b, 3+g.IntN(6))
	b.WriteString("{{ ns.count }}{{ ns.text }}")
	c.Template = b.String()
	return c
}

func mustJSON(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // maps, lists, strings and numbers always have a form
	}
	return b
}

func pick[T any](g *generator, from ...T) T { return from[g.IntN(len(from))] }

func (g *generator) word() string {
	if g.full && g.IntN(20) == 0 {
		return "😀" // two characters for the other engine
	}
	return pick(g, "alpha", "Beta", "c", "", "한국어", "날씨", "naïve", "a b", " pad ", "x\ny", "<tool_call>", "it's", `say "q"`, `back\slash`, "tab\t", "</think>", "12", "-3")
}

func (g *generator) words() string {
	var parts []string
	for range g.IntN(4) {
		parts = append(parts, g.word())
	}
	return strings.Join(parts, pick(g, " ", "\n", "", ", "))
}

// value is a random JSON value; an object at the top.
func (g *generator) value(depth int, top bool) any {
	if depth > 0 && (top || g.IntN(3) == 0) {
		m := map[string]any{}
		for range g.IntN(4) {
			m[pick(g, "a", "b", "키", "name", "x y")] = g.value(depth-1, false)
		}
		return m
	}
	switch g.IntN(6) {
	case 0:
		return g.IntN(100) - 50
	case 1:
		return g.IntN(2) == 0
	case 2:
		return nil
	case 3:
		return float64(g.IntN(1000))/8 + 0.0625
	case 4:
		return []any{g.IntN(3), g.word()}
	default:
		return g.words()
	}
}

func (g *generator) messages() []json.RawMessage {
	var out []json.RawMessage
	for range 1 + g.IntN(5) {
		role := pick(g, "system", "user", "assistant", "tool")
		m := map[string]any{"role": role, "content": g.words()}
		if role == "assistant" && g.IntN(2) == 0 {
			m["reasoning_content"] = g.words()
			m["tool_calls"] = []any{map[string]any{"id": "c1", "type": "function", "function": map[string]any{"name": g.word() + "f", "arguments": g.value(3, true)}}}
		}
		out = append(out, mustJSON(m))
	}
	return out
}

// body writes n things in a row.
func (g *generator) body(b *strings.Builder, n int) {
	g.depth++
	defer func() { g.depth-- }()
	g.scopes = append(g.scopes, nil)
	defer func() { g.scopes = g.scopes[:len(g.scopes)-1] }()
	for range n {
		if g.depth > maxDepth {
			g.output(b)
			continue
		}
		switch g.IntN(12) {
		case 0, 1, 2:
			g.output(b)
		case 3:
			b.WriteString(pick(g, "plain ", "  spaced  ", "\n", "\n    ", "line\n", "{ brace }", "100% ", "한국어", "<|end|>\n"))
		case 4, 5:
			g.condition(b)
		case 6, 7:
			g.loop(b)
		case 8:
			g.set(b)
		case 9:
			g.nsSet(b)
		case 10:
			g.rare(b)
		default:
			b.WriteString(pick(g, "{# note #}", "{#- note -#}", "{# two\nlines #}\n"))
		}
	}
}

func (g *generator) tag(b *strings.Builder, format string, args ...any) {
	b.WriteString(pick(g, "{%", "{%-", "{%", "    {%", "{%-") + " " + fmt.Sprintf(format, args...) + " " + pick(g, "%}", "-%}", "%}\n", "-%}\n", "%}"))
}

func (g *generator) output(b *strings.Builder) {
	b.WriteString(pick(g, "{{", "{{-") + " " + g.printable() + " " + pick(g, "}}", "-}}", "}}\n"))
}

// printable is an expression that all engines print alike.
func (g *generator) printable() string {
	switch g.IntN(8) {
	case 0, 1, 2, 3:
		return g.expr(text)
	case 4:
		return g.expr(number)
	case 5:
		return fmt.Sprintf("'T' if %s else 'F'", g.expr(truth))
	case 6:
		return g.expr(pick(g, texts, numbers, object)) + " | tojson"
	default:
		return g.expr(message) + " | tojson" + pick(g, "", "(indent=2)")
	}
}

func (g *generator) condition(b *strings.Builder) {
	g.tag(b, "if %s", g.expr(truth))
	g.body(b, 1+g.IntN(3))
	if g.IntN(3) == 0 {
		g.tag(b, "elif %s", g.expr(truth))
		g.body(b, 1)
	}
	if g.IntN(2) == 0 {
		g.tag(b, "else")
		g.body(b, 1)
	}
	g.tag(b, "endif")
}

func (g *generator) name() string {
	g.fresh++
	return fmt.Sprintf("v%d", g.fresh)
}

func (g *generator) declare(name string, k kind) {
	last := len(g.scopes) - 1
	g.scopes[last] = append(g.scopes[last], variable{name, k})
}

func (g *generator) loop(b *strings.Builder) {
	if g.loops >= 2 {
		g.output(b)
		return
	}
	name := g.name()
	g.scopes = append(g.scopes, nil)
	item, filter := message, ""
	list := ""
	switch g.IntN(5) {
	case 0, 1:
		list = g.expr(messages)
	case 2:
		list, item = g.expr(texts), text
		if g.full && g.IntN(3) == 0 {
			list = g.expr(text) // its characters
		}
	case 3:
		list, item = pick(g, "range(3)", "range(n)", "range(1, 6, 2)", "range(4, 0, -1)"), number
	default:
		value := g.name()
		g.tag(b, "for %s, %s in %s%s", name, value, g.expr(object), pick(g, ".items()", " | items", " | dictsort"))
		g.declare(name, text)
		list = ""
		g.inLoop(b, fmt.Sprintf("{{ %s }}={{ %s | tojson }};", name, value))
		return
	}
	g.declare(name, item)
	if g.IntN(4) == 0 {
		filter = " if " + g.expr(truth)
	}
	g.tag(b, "for %s in %s%s", name, list, filter)
	g.inLoop(b, "")
}

// inLoop writes the inside and the end of a loop.
func (g *generator) inLoop(b *strings.Builder, first string) {
	g.loops++
	// Jinja2 takes a loop that continues always for an empty one, so there is no
	// else behind it; the other engine drops what the iteration has written before.
	leaves := g.IntN(5) == 0
	leave := func() {
		if leaves {
			b.WriteString("{%- if " + g.expr(truth) + " -%}{%- " + pick(g, "break", "continue") + " -%}{%- endif %}")
		}
	}
	if !g.full {
		leave()
	}
	b.WriteString(first)
	if g.IntN(3) == 0 {
		b.WriteString(pick(g, "{{ loop.index }}", "{{ loop.index0 }}/{{ loop.length }}", "{{ ', ' if not loop.last }}", "{{- '\n' if not loop.first -}}", "{{ loop.revindex }}"))
	}
	if g.full {
		leave()
	}
	g.body(b, 1+g.IntN(3))
	g.loops--
	if !leaves && g.IntN(4) == 0 {
		g.scopes = g.scopes[:len(g.scopes)-1]
		g.tag(b, "else")
		g.body(b, 1)
		g.tag(b, "endfor")
		return
	}
	g.tag(b, "endfor")
	g.scopes = g.scopes[:len(g.scopes)-1]
}

func (g *generator) set(b *strings.Builder) {
	name := g.name()
	if g.IntN(4) == 0 {
		g.tag(b, "set %s", name)
		g.body(b, 1)
		g.tag(b, "endset")
		g.declare(name, text)
		return
	}
	k := kind(g.IntN(int(kinds)))
	g.tag(b, "set %s = %s", name, g.expr(k))
	g.declare(name, k)
}

func (g *generator) nsSet(b *strings.Builder) {
	if g.IntN(2) == 0 {
		g.tag(b, "set ns.count = ns.count + %s", pick(g, "1", "n", g.expr(number)))
		return
	}
	g.tag(b, "set ns.text = ns.text %s %s", pick(g, "~", "+"), pick(g, "'.'", "s", "s[:2]"))
}

// macro defines a macro of two strings.
func (g *generator) macro(b *strings.Builder) {
	name := fmt.Sprintf("m%d", len(g.macros))
	outer := g.scopes
	g.scopes = [][]variable{{{"p", text}, {"q", text}}}
	g.tag(b, "macro %s(p, q='dflt')", name)
	g.body(b, 1+g.IntN(2))
	if g.IntN(3) == 0 {
		fmt.Fprintf(b, "{%%- if p|length > 1 -%%}{{ %s(p[1:] | trim, 'r') if p|length < 9 }}{%%- endif -%%}", name)
	}
	g.tag(b, "endmacro")
	g.scopes = outer
	g.macros = append(g.macros, name)
}

// rare writes what few templates use.
func (g *generator) rare(b *strings.Builder) {
	of := 3
	if g.full {
		of = 5
	}
	switch g.IntN(of) {
	case 0:
		g.tag(b, "filter %s", pick(g, "upper", "trim", "lower"))
		g.body(b, 1)
		g.tag(b, "endfilter")
	case 1:
		name := g.name()
		b.WriteString("{%- macro " + name + "(t) -%}[{{ t }}|{{ caller() }}]{%- endmacro -%}")
		g.tag(b, "call %s(%s)", name, g.expr(text))
		g.body(b, 1)
		g.tag(b, "endcall")
	case 2:
		name, arg := g.name(), g.name()
		b.WriteString("{%- macro " + name + "(xs) -%}{% for x in xs %}{{ caller(x, loop.index) }};{% endfor %}{%- endmacro -%}")
		b.WriteString("{%- call(" + arg + ", i) " + name + "(['p', 'q']) -%}{{ i }}={{ " + arg + " }}{%- endcall -%}")
	case 3: // the other engine takes these tags out before it looks at white space
		g.tag(b, "generation")
		g.body(b, 1)
		g.tag(b, "endgeneration")
	default:
		b.WriteString("{% raw %}{{ as it is }} {% endraw %}")
	}
}
