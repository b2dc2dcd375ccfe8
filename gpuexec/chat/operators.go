package chat

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/nikolalohinski/gonja/v2/exec"
)

// unchain turns a < b < c into __chain(a, '<', b, '<', c), and not a | f into not (a | f).
func unchain(ws []word) []word {
	var out []word
	for len(ws) > 0 {
		n := len(ws)
		for _, sign := range []string{"and", "or"} {
			if at := topLevel(ws, sign); at >= 0 {
				n = min(n, at)
			}
		}
		part := ws[:n]
		for len(part) > 0 && part[0].text == "not" {
			out, part = append(out, part[0]), part[1:]
		}
		if n > len(part) && topLevel(part, "|") >= 0 { // gonja gives the filter the negation
			part = append(append([]word{{" ", "(", wordSign}}, part...), word{"", ")", wordSign})
		}
		if at := comparisons(part); len(at) > 1 {
			comma, shut := word{"", ",", wordSign}, word{"", ")", wordSign}
			out = append(out, word{" ", chainName, wordName}, word{"", "(", wordSign})
			from := 0
			for _, op := range at {
				out = append(append(out, part[from:op]...), comma)
				out = append(out, word{" ", "'" + part[op].text + "'", wordString}, comma)
				from = op + 1
			}
			part = append(slices.Clone(part[from:]), shut)
		}
		out = append(out, part...)
		if n < len(ws) {
			out = append(out, ws[n])
			n++
		}
		ws = ws[n:]
	}
	return out
}

// bindFilters puts the right side of "in" in parentheses where it has a filter:
// gonja gives the filter the whole comparison.
func bindFilters(ws []word) []word {
	if topLevel(ws, "in") < 0 {
		return ws
	}
	var out []word
	depth, from, filtered := 0, -1, false // from: where the right side begins in out
	bind := func() {
		if from >= 0 && filtered {
			out = slices.Insert(out, from, word{" ", "(", wordSign})
			out = append(out, word{"", ")", wordSign})
		}
		from, filtered = -1, false
	}
	for _, w := range ws {
		switch w.text {
		case "(", "[", "{":
			depth++
		case ")", "]", "}":
			depth--
		case "|":
			filtered = filtered || depth == 0
		case "and", "or", "is", "in", "not", "==", "!=", "<", "<=", ">", ">=":
			if depth == 0 {
				bind()
			}
		}
		out = append(out, w)
		if w.text == "in" && w.kind == wordName && depth == 0 {
			from, filtered = len(out), false
		}
	}
	bind()
	return out
}

// comparisons are the places of signs that compare, outside brackets.
func comparisons(ws []word) []int {
	var at []int
	depth := 0
	for i, w := range ws {
		switch w.text {
		case "(", "[", "{":
			depth++
		case ")", "]", "}":
			depth--
		case "<", "<=", ">", ">=", "==", "!=":
			if depth == 0 {
				at = append(at, i)
			}
		}
	}
	return at
}

// chain compares its arguments in a row: values with the signs between them.
func chain(_ *exec.Evaluator, va *exec.VarArgs) *exec.Value {
	for i := 0; i+2 < len(va.Args); i += 2 {
		a, b := va.Args[i], va.Args[i+2]
		order := 0
		if a.IsString() && b.IsString() {
			order = cmp.Compare(a.String(), b.String())
		} else {
			order = cmp.Compare(a.Float(), b.Float())
		}
		holds := false
		switch sign := va.Args[i+1].String(); sign {
		case "==":
			holds = a.EqualValueTo(b)
		case "!=":
			holds = !a.EqualValueTo(b)
		case "<":
			holds = order < 0
		case "<=":
			holds = order <= 0
		case ">":
			holds = order > 0
		case ">=":
			holds = order >= 0
		default:
			return exec.AsValue(fmt.Errorf("%.10q compares nothing", sign))
		}
		if !holds {
			return exec.AsValue(false)
		}
	}
	return exec.AsValue(true)
}
