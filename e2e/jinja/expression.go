package jinja

import (
	"fmt"
	"strconv"
	"strings"
)

// expr is a random expression of a kind.
func (g *generator) expr(k kind) string {
	if g.IntN(3) == 0 {
		if v := g.variable(k); v != "" {
			return v
		}
	}
	g.depth++
	defer func() { g.depth-- }()
	if g.depth > maxDepth+2 {
		return g.leaf(k)
	}
	switch k {
	case text:
		return g.text()
	case number:
		return g.number()
	case truth:
		return g.truth()
	case messages:
		return g.messageList()
	case texts:
		return g.textList()
	case numbers:
		return pick(g, "[1, 2, 3]", "[n, n + 1]", "[]", "([3] + [n])", "range(3) | list", "[1, 2, 3][1:]", "[5, 6, 7][::-1]", "[3, 1, 2] | sort")
	case object:
		return pick(g, "d", "{'a': n, 'b': [s]}", "{}", "messages[0]", "{'k': {'z': s}}", "(d.a if d.a is mapping else {'q': 1})")
	default:
		// Of a list that is never empty: Jinja2 refuses members of what is not there.
		return pick(g, "messages", "messages[::-1]", "(messages | list)", "([messages[0]] + messages)") + pick(g, "[0]", "[-1]", " | first", " | last")
	}
}

// leaf is the simplest expression of a kind.
func (g *generator) leaf(k kind) string {
	return [...]string{
		text: "'t'", number: "2", truth: "flag", messages: "messages", texts: "['u', 'v']", numbers: "[1]", object: "d", message: "messages[0]",
	}[k]
}

// variable is a name in scope with a kind, "" when there is none.
func (g *generator) variable(k kind) string {
	var names []string
	for _, scope := range g.scopes {
		for _, v := range scope {
			if v.kind == k {
				names = append(names, v.name)
			}
		}
	}
	if len(names) == 0 {
		return ""
	}
	return pick(g, names...)
}

func (g *generator) literal() string {
	w := strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\t", `\t`).Replace(g.word())
	if g.IntN(2) == 0 && !strings.Contains(w, "'") {
		return "'" + w + "'"
	}
	return `"` + strings.ReplaceAll(w, `"`, `\"`) + `"`
}

// paren is an expression that may stand before a dot or a bracket.
func (g *generator) paren(k kind) string { return "(" + g.expr(k) + ")" }

func (g *generator) text() string {
	switch g.IntN(17) {
	case 0, 1:
		return g.literal()
	case 2:
		return g.paren(text) + pick(g, " + ", " ~ ") + g.paren(text)
	case 3:
		return g.paren(text) + " ~ " + g.paren(number)
	case 4:
		return g.paren(message) + pick(g, ".content", "['content']", ".role", "['role']")
	case 5:
		methods := []string{".strip()", ".lstrip()", ".rstrip()", ".upper()", ".lower()"}
		if g.full { // the other engine takes all white space away
			methods = append(methods, ".lstrip('\\n')", ".rstrip('\\n')", ".strip('\\n')")
		}
		return g.paren(text) + pick(g, methods...)
	case 6:
		return g.paren(text) + pick(g, " | trim", " | upper", " | lower", " | replace('a', 'x')", " | replace('\\n', ' ')", " | string")
	case 7:
		return g.paren(text) + pick(g, "[1:]", "[:2]", "[::-1]", "[-2:]", "[:-1]", "[1:3]", "[::2]")
	case 8:
		return g.paren(text) + ".split(" + pick(g, "'</think>'", "' '", "'a'", "'\\n'") + ")" + pick(g, "[0]", "[-1]")
	case 9:
		return fmt.Sprintf("%s if %s else %s", g.paren(text), g.expr(truth), g.paren(text))
	case 10:
		return g.paren(texts) + " | join" + pick(g, "", "(', ')", "('\\n')")
	case 11:
		return g.paren(pick(g, texts, numbers, object)) + " | tojson" + pick(g, "", "(indent=2)", "(indent=4)")
	case 12:
		if len(g.macros) > 0 {
			return fmt.Sprintf("%s(%s%s)", pick(g, g.macros...), g.expr(text), pick(g, "", ", 'w'", ", q='k'"))
		}
		return g.literal()
	case 13:
		return g.paren(text) + ".replace(" + pick(g, "'a', 'b'", "'l', ''", "'</think>', ''", "'a', 'zz', 1") + ")"
	case 14:
		return pick(g, "(zz | default('none'))", "(s or 'empty')", "(zz or s)", "(s and 'some')", "(d.get('zz', 'gone') if d.zz is not defined else 'zz')", "strftime_now('%d %b %Y')", "bos_token", "('p' if loop is defined else 'o')")
	case 15:
		if g.full {
			return pick(g, "s | title", "s | capitalize", "s.title()", "'%s-%d' | format(s, n)", "s.removeprefix('a')", "', '.join(names)", "'{}:{}'.format(s, n)",
				"s.split('a', 1) | last", "(s[0] if s else 'none')", "names[n % 3]", "(names[-1][::-1])", "s | indent(2)", "s | indent(4, true)", "s.rsplit(' ', 1)[-1]", "'ab'[n % 2]", "(d | list | join)", "s.splitlines() | join('/')")
		}
		return pick(g, "names[0]", "names[-1]", "s | indent(2)", "(names | first)", "names[n % 3]")
	default:
		return pick(g, "{'system': 'S', 'user': 'U'}.get(messages[0].role, 'X')", "messages | map(attribute='role') | join(',')", "names | unique | join('+')", "messages[-1]['role'] ~ ''", "(d | dictsort | tojson)", "(d.keys() | list | tojson)", "(d.values() | list | tojson)")
	}
}

func (g *generator) number() string {
	switch g.IntN(7) {
	case 0, 1:
		return strconv.Itoa(g.IntN(10))
	case 2:
		return g.paren(pick(g, text, texts, messages, numbers, object)) + " | length"
	case 3:
		return g.paren(number) + pick(g, " + ", " - ", " * ") + g.paren(number)
	case 4:
		return pick(g, "n % 3", "n // 2", "(n + 7) // 3", "'12' | int", "'x' | int", "(0 - n) | abs", "-n", "(n - 5) * -1", "[4, 5][n % 2]")
	case 5:
		return fmt.Sprintf("%s if %s else %s", g.paren(number), g.expr(truth), g.paren(number))
	default:
		if g.loops > 0 {
			return pick(g, "loop.index", "loop.index0", "loop.length", "loop.revindex0")
		}
		return "(messages | selectattr('role', 'equalto', 'user') | list | length)"
	}
}

func (g *generator) truth() string {
	switch g.IntN(12) {
	case 0:
		return pick(g, "flag", "true", "false", "not flag", "add_generation_prompt", "s is iterable", "d is iterable and d is not mapping")
	case 1:
		return g.paren(number) + pick(g, " < ", " <= ", " == ", " != ", " >= ", " > ") + g.paren(number)
	case 2:
		return g.paren(text) + pick(g, " == ", " != ") + g.paren(text)
	case 3:
		return g.paren(truth) + pick(g, " and ", " or ") + g.paren(truth)
	case 4:
		return "not " + g.paren(truth)
	case 5:
		return g.paren(text) + pick(g, " in ", " not in ") + g.paren(pick(g, text, texts, object))
	case 6:
		return g.paren(text) + pick(g, ".startswith", ".endswith") + "(" + pick(g, "'a'", "'<'", "' '", g.expr(text)) + ")"
	case 7:
		return pick(g, "s", "zz", "d", "n", "tools", "messages[0].tool_calls", "messages[0].nope", "messages[9]") + " is " + pick(g, "", "not ") + pick(g, "defined", "none", "string", "mapping", "number", "undefined", "boolean")
	case 8:
		return g.paren(number) + " is " + pick(g, "odd", "even")
	case 9:
		return g.paren(pick(g, text, texts, object, number, messages))
	case 10:
		if g.loops > 0 {
			return pick(g, "loop.first", "loop.last", "loop.previtem is defined", "loop.nextitem is defined", "not loop.last and loop.index0 % 2 == 0")
		}
		return "tools is not none and tools"
	default:
		if g.full {
			return pick(g, "1 < n < 5", "n is divisibleby 2", "s is equalto 'x'", "'a' < s", "n is in [1, 2, 3]", "messages is sequence", "[1] == [1]", "{'a': 1} == {'a': 1}", "s is lower")
		}
		return "(messages | selectattr('tool_calls', 'defined') | list | length) > 0"
	}
}

func (g *generator) messageList() string {
	return pick(
		g, "messages", "messages", "messages[1:]", "messages[::-1]", "messages[:2]", "messages[-2:]", "(messages | selectattr('role', 'equalto', 'user') | list)",
		"(messages | rejectattr('role', 'equalto', 'tool') | list)", "([messages[0]] + messages)", "(messages if flag else messages[1:])", "(messages | list)",
	)
}

func (g *generator) textList() string {
	switch g.IntN(5) {
	case 0:
		return "[" + g.expr(text) + ", " + g.expr(text) + "]"
	case 1:
		return g.paren(text) + ".split(" + pick(g, "' '", "'a'", "", "'\\n'") + ")"
	case 2:
		return "(messages | map(attribute='" + pick(g, "role", "content") + "') | list)"
	case 3:
		return "(" + g.paren(texts) + pick(g, "[1:]", "[::-1]", "[:1]", " + ['w']", " | list", " | unique | list") + ")"
	default:
		return pick(g, "names", "(d.keys() | list)", "names | reverse | list", "(names | sort)")
	}
}
