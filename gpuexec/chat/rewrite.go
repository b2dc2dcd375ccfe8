package chat

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Functions that the rewritten text calls. gonja's grammar has conditional
// expressions at the top of a tag only, and no method call behind a parenthesis.
// So parentheses become calls of an identity function, and a condition becomes
// "and" and "or", which evaluate one branch only; the lists around the branches
// are true whatever they hold, and pickName takes the value out again:
//
//	(a + b).strip()      __group(a + b).strip()
//	a if b else c        __pick(__group(b) and [a] or [c])
//	'a' 'b'              'a' ~ 'b'
//	{% generation %}     {% if true %}
//	x == none            x == __none
//	{% set a, b = x %}   {% set __parts = x %}{% set a = __parts[0] %}…
//	x.y[i]               __item(x.y, i)    gonja takes bytes out of strings
//	x.y.f(a)             __call(x.y, 'f', a)   gonja evaluates x.y twice, and so the
//	                     beginning of a chain of n methods 2^n times
//	{}                   __empty()         gonja takes its own empty dict for true
const (
	groupName = "__group"
	pickName  = "__pick"
	partsName = "__parts" // a value to be unpacked
	noneName  = "__none"  // gonja takes its own none for undefined
	itemName  = "__item"
	emptyName = "__empty"
	callName  = "__call"
	eachName  = "__each"  // gonja loops over the bytes of a string
	tupleName = "__tuple" // gonja has no tuples of one
	chainName = "__chain" // gonja compares a truth value in a < b < c
)

// maxSource bounds a template in bytes; the longest known ones have 30 KiB.
const maxSource = 256 << 10

// rewrite turns Jinja as models use it into the part that gonja parses. Lines
// keep their numbers, but for those that white space control removes.
func rewrite(src string) (string, error) {
	if len(src) > maxSource {
		return "", fmt.Errorf("the template has %d bytes, at most %d", len(src), maxSource)
	}
	src = strings.ReplaceAll(src, "\r\n", "\n")
	var out strings.Builder
	for pos := 0; pos < len(src); {
		at := strings.IndexByte(src[pos:], '{')
		if at < 0 || pos+at+1 >= len(src) {
			out.WriteString(src[pos:])
			break
		}
		at += pos
		out.WriteString(src[pos : at-indent(src, pos, at)])
		n, err := rewriteAt(&out, src[at:])
		if err != nil {
			return "", fmt.Errorf("line %d: %w", 1+strings.Count(src[:at], "\n"), err)
		}
		pos = at + n
	}
	return out.String(), nil
}

// indent is the length of the white space before the tag at src[at] that
// lstrip_blocks removes: all of it when the tag is the first thing on its line.
// gonja's own lstrip_blocks takes the end of any tag for the start of a line,
// and so eats the blank of "{{ a }} {% endfor %}".
func indent(src string, from, at int) int {
	if (src[at+1] != '%' && src[at+1] != '#') || strings.HasPrefix(src[at+2:], "+") {
		return 0
	}
	start := at
	for start > from && (src[start-1] == ' ' || src[start-1] == '\t') {
		start--
	}
	if start > 0 && src[start-1] != '\n' {
		return 0
	}
	return at - start
}

// lineEnd is 1 when trim_blocks removes the line end at src[at], behind a tag.
func lineEnd(src string, at int, closing string) int {
	if at < len(src) && src[at] == '\n' && !strings.HasPrefix(closing, "+") {
		return 1
	}
	return 0
}

// endRaw ends a raw block.
var endRaw = regexp.MustCompile(`\{%[-+]?\s*endraw\s*[-+]?%\}`)

// rewriteAt handles what starts with the brace src[0] and returns its length.
func rewriteAt(out *strings.Builder, src string) (int, error) {
	switch src[1] {
	case '#':
		end := strings.Index(src[2:], "#}")
		if end < 0 {
			return 0, errors.New(`"{#" has no "#}"`)
		}
		end += 2 + len("#}")
		out.WriteString(src[:end])
		return end + lineEnd(src, end, src[end-3:]), nil
	case '{', '%':
		t, n, err := lexTag(src)
		if err != nil {
			return 0, err
		}
		if len(t.words) > 0 && src[1] == '%' && t.words[0].text == "raw" {
			end := endRaw.FindStringIndex(src[n:])
			if end == nil {
				return 0, errors.New("raw has no endraw")
			}
			from, to := n, n+end[0] // Jinja trims behind endraw only
			out.WriteString("{% raw %}" + src[from:to-indent(src, from, to)] + "{% endraw %}")
			n += end[1]
			return n + lineEnd(src, n, src[n-3:]), nil
		}
		body, err := t.rewrite()
		if err != nil {
			return 0, err
		}
		out.WriteString(strings.TrimSuffix(t.open, "+") + body + t.tail + strings.TrimPrefix(t.close, "+"))
		if src[1] == '%' {
			n += lineEnd(src, n, t.close)
		}
		return n, nil
	default:
		out.WriteByte('{')
		return 1, nil
	}
}

func (t tag) rewrite() (string, error) {
	ws := t.words
	if t.open[1] == '{' || len(ws) == 0 {
		return elements(ws, false), nil
	}
	head := ws[0].space + ws[0].text
	switch ws[0].text {
	case "generation":
		return ws[0].space + "if true", nil
	case "endgeneration":
		return ws[0].space + "endif", nil
	case "if", "elif":
		return head + element(ws[1:]), nil
	case "set":
		at := topLevel(ws, "=")
		if at < 0 {
			return plainWords(ws), nil
		}
		// Always grouped: lists that gonja makes get proper indices that way.
		value := groupName + "(" + elements(ws[at+1:], false) + ")"
		if names := targets(ws[1:at]); len(names) > 1 {
			return " set " + partsName + " = " + value + unpack(names), nil
		}
		return plainWords(ws[:at+1]) + " " + value, nil
	case "for":
		return rewriteFor(ws)
	case "call":
		if len(ws) > 1 && ws[1].text == "(" { // names for what the macro hands over
			end := closingIndex(ws, 1)
			return head + plainWords(ws[1:end+1]) + elements(ws[end+1:], false), nil
		}
		return head + elements(ws[1:], false), nil
	case "macro":
		if len(ws) < 2 {
			return plainWords(ws), nil
		}
		return head + plainWords(ws[1:2]) + macroSignature(ws[2:]), nil
	default:
		return head + elements(ws[1:], false), nil
	}
}

// macroSignature leaves the outer parentheses of a macro as they are.
func macroSignature(ws []word) string {
	if len(ws) < 2 || ws[0].text != "(" || ws[len(ws)-1].text != ")" {
		return plainWords(ws)
	}
	last := ws[len(ws)-1]
	return ws[0].space + "(" + elements(ws[1:len(ws)-1], false) + last.space + last.text
}

func rewriteFor(ws []word) (string, error) {
	in := topLevel(ws, "in")
	if in < 0 {
		return "", errors.New("for has no in")
	}
	rest := ws[in+1:]
	if len(rest) > 0 && rest[len(rest)-1].text == "recursive" {
		return "", errors.New("recursive loops are not supported")
	}
	out := plainWords(ws[:in+1])
	switch names := targets(ws[1:in]); {
	case len(names) == 2:
		out = " for " + names[0] + ", " + names[1] + " in"
	case len(names) > 2: // gonja knows one and two
		if topLevel(rest, "if") >= 0 {
			return "", errors.New("a loop over more than two names cannot have a condition")
		}
		return " for " + partsName + " in" + each(rest) + unpack(names), nil
	}
	if at := topLevel(rest, "if"); at >= 0 {
		return out + each(rest[:at]) + plainWords(rest[at:at+1]) + element(rest[at+1:]), nil
	}
	return out + each(rest), nil
}

// each is what a loop goes over.
func each(ws []word) string { return " " + eachName + "(" + element(ws) + ")" }

// targets are the names that an assignment or loop unpacks into.
func targets(ws []word) []string {
	var names []string
	for _, w := range ws {
		switch {
		case w.kind == wordName:
			names = append(names, w.text)
		case w.text != "," && w.text != "(" && w.text != ")":
			return nil // an attribute or item: one target
		}
	}
	return names
}

// unpack ends a tag and sets the names from partsName in tags of its own; the
// last one is left open for the end of the original tag.
func unpack(names []string) string {
	var b strings.Builder
	for i, name := range names {
		fmt.Fprintf(&b, " %%}{%% set %s = %s[%d]", name, partsName, i)
	}
	return b.String()
}

func plainWords(ws []word) string {
	var b strings.Builder
	for _, w := range ws {
		b.WriteString(w.space + w.text)
	}
	return b.String()
}

// topLevel is the index of the first such word outside brackets, or -1.
func topLevel(ws []word, text string) int {
	depth := 0
	for i, w := range ws {
		switch w.text {
		case "(", "[", "{":
			depth++
		case ")", "]", "}":
			depth--
		case text:
			if depth == 0 && w.kind != wordString {
				return i
			}
		}
	}
	return -1
}

// elements rewrites what stands between commas, colons and single equal signs.
// In a subscript a colon separates the parts of a slice.
func elements(ws []word, inBrackets bool) string {
	var b strings.Builder
	start, depth := 0, 0
	for i, w := range ws {
		switch w.text {
		case "(", "[", "{":
			depth++
		case ")", "]", "}":
			depth--
		case ",", "=", ":":
			if depth == 0 && (inBrackets || w.text != ":") {
				b.WriteString(element(ws[start:i]) + w.space + w.text)
				start = i + 1
			}
		}
	}
	b.WriteString(element(ws[start:]))
	return b.String()
}

// element rewrites one expression, which may be conditional.
func element(ws []word) string {
	at := topLevel(ws, "if")
	if at <= 0 {
		return operands(ws)
	}
	condition, otherwise := ws[at+1:], " ''"
	if e := topLevel(condition, "else"); e >= 0 {
		otherwise = element(condition[e+1:])
		condition = condition[:e]
	}
	return ws[0].space + pickName + "(" + groupName + "(" + operands(condition) + ") and [" + operands(trimFirst(ws[:at])) +
		"] or [" + otherwise + "])"
}

func trimFirst(ws []word) []word {
	out := append([]word(nil), ws...)
	out[0].space = ""
	return out
}

// operands rewrites an expression without a condition of its own.
func operands(ws []word) string {
	ws = bindFilters(unchain(ws))
	var b []byte
	start := 0 // of the operand in b that a subscript or method would belong to
	dot := 0   // of the last dot in b
	for i := 0; i < len(ws); i++ {
		w := ws[i]
		b = append(b, w.space...)
		if i > 0 && w.kind == wordString && ws[i-1].kind == wordString {
			b = append(b, "~ "...)
		}
		if w.kind == wordString {
			// A backslash before a line end joins the lines, as in Python.
			w.text = joinedLines.ReplaceAllString(w.text, "$1")
		}
		if w.kind != wordSign && (i == 0 || ws[i-1].text != ".") {
			start = len(b)
		}
		if w.text == "." {
			dot = len(b)
		}
		if isNoneValue(ws, i) {
			b = append(b, noneName...)
			continue
		}
		if w.kind != wordSign || (w.text != "(" && w.text != "[" && w.text != "{") {
			b = append(b, w.text...)
			continue
		}
		end := closingIndex(ws, i)
		inside := ws[i+1 : end]
		i = end
		open := end - len(inside) - 1
		called := isCallee(ws, open)
		if !called {
			start = len(b)
		}
		switch {
		case w.text == "[" && called && isIndex(inside):
			b = append(b[:start], itemName+"("+string(b[start:])+", "+element(inside)+")"...)
			continue
		case w.text == "(" && called && open > 2 && ws[open-2].text == "." && string(b[start:dot]) != "loop":
			arguments := elements(inside, true)
			if len(inside) > 0 {
				arguments = ", " + arguments
			}
			b = append(b[:start], callName+"("+string(b[start:dot])+", '"+ws[open-1].text+"'"+arguments+")"...)
			continue
		case w.text == "{" && len(inside) == 0:
			b = append(b, emptyName+"()"...)
			continue
		case w.text == "(" && !called && len(inside) > 1 && inside[len(inside)-1].text == ",":
			b, inside = append(b, " "+tupleName...), inside[:len(inside)-1]
		case w.text == "(" && !called:
			b = append(b, " "+groupName...)
		}
		b = append(b, w.text+elements(inside, true)+ws[end].space+ws[end].text...)
	}
	return string(b)
}

// isIndex tells whether what stands in the brackets of a subscript may be a number:
// not the name of a member, and not a slice.
func isIndex(ws []word) bool {
	return len(ws) > 1 && topLevel(ws, ":") < 0 || len(ws) == 1 && ws[0].kind != wordString
}

// joinedLines finds a backslash and line end, and escapes, which it must not split.
var joinedLines = regexp.MustCompile(`(\\[^\n])|\\\n`)

// isNoneValue tells whether ws[i] is the value none, not the test of that name.
func isNoneValue(ws []word, i int) bool {
	if ws[i].kind != wordName || (ws[i].text != "none" && ws[i].text != "None") {
		return false
	}
	if i == 0 {
		return true
	}
	before := ws[i-1].text
	return before != "is" && before != "." && (before != "not" || i < 2 || ws[i-2].text != "is")
}

// closingIndex is the index of the bracket that closes ws[open]. lexTag has
// checked that there is one; its kind is for gonja to check.
func closingIndex(ws []word, open int) int {
	depth := 0
	for i := open; i < len(ws); i++ {
		switch ws[i].text {
		case "(", "[", "{":
			depth++
		case ")", "]", "}":
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return len(ws) - 1
}

// isCallee tells whether the parenthesis ws[i] follows something that is called.
func isCallee(ws []word, i int) bool {
	if i == 0 {
		return false
	}
	switch before := ws[i-1]; before.kind {
	case wordName:
		switch before.text {
		case "not", "and", "or", "in", "if", "else", "is":
			return false
		}
		return true
	case wordSign:
		return before.text == ")" || before.text == "]" || before.text == "}"
	case wordString:
		return ws[i].text == "["
	default:
		return false
	}
}
