package tokenizer

import "strings"

// either is the GBNF grammar of what one or the other grammar takes. Both have
// been checked.
func either(a, b string) string {
	return "root ::= a-root | b-root\n" + prefixed(a, "a-") + "\n" + prefixed(b, "b-") + "\n"
}

// prefixed puts a prefix before the name of every rule of a grammar.
func prefixed(g, prefix string) string {
	var out strings.Builder
	for i := 0; i < len(g); {
		n := 1
		switch c := g[i]; {
		case c == '"' || c == '[' || c == '{' || c == '#':
			n = quoted(g[i:])
		case ruleName(c):
			for i+n < len(g) && ruleName(g[i+n]) {
				n++
			}
			out.WriteString(prefix)
		}
		out.WriteString(g[i : i+n])
		i += n
	}
	return out.String()
}

// quoted is the length of the string, class, count or comment that g begins with.
func quoted(g string) int {
	end := map[byte]byte{'"': '"', '[': ']', '{': '}', '#': '\n'}[g[0]]
	for i := 1; i < len(g); i++ {
		switch {
		case g[i] == end:
			return i + 1
		case g[i] == '\\' && end != '\n':
			i++
		}
	}
	return len(g)
}

func ruleName(c byte) bool {
	return c == '-' || c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
