package chat

// unchain turns a < b < c into (a < b and b < c), and not a | f into not (a | f).
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
			and, open, shut := word{" ", "and", wordName}, word{" ", "(", wordSign}, word{"", ")", wordSign}
			from := 0
			out = append(out, open)
			for i, op := range at {
				end := len(part)
				if i+1 < len(at) {
					end = at[i+1]
				}
				if i > 0 {
					out = append(out, and)
				}
				out = append(append(out, word{" ", "(", wordSign}), part[from:op]...)
				out = append(append(out, shut, part[op], open), part[op+1:end]...)
				out = append(out, shut)
				from = op + 1
			}
			part = []word{shut}
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
	at := topLevel(ws, "in")
	if at < 0 {
		return ws
	}
	right := ws[at+1:]
	end := len(right)
	for _, sign := range []string{"and", "or", "is", "in", "not", "==", "!=", "<", "<=", ">", ">="} {
		if at := topLevel(right, sign); at >= 0 {
			end = min(end, at)
		}
	}
	out := append([]word(nil), ws[:at+1]...)
	if end > 0 && topLevel(right[:end], "|") >= 0 {
		out = append(append(out, word{" ", "(", wordSign}), right[:end]...)
		out = append(out, word{"", ")", wordSign})
	} else {
		out = append(out, right[:end]...)
	}
	return append(out, bindFilters(right[end:])...)
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
