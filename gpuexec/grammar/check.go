package grammar

import "fmt"

// check finds what parsing alone cannot: rules that are used but not defined,
// left recursion, and rules that can never end.
func (g *Grammar) check() error {
	for _, r := range g.rules {
		if !r.defined {
			return fmt.Errorf("%w: line %d: rule %q is not defined", ErrGrammar, r.line, r.name)
		}
	}
	empty := g.closure(func(e element, done []bool) bool { return e.rule >= 0 && done[e.rule] })
	if r := g.leftRecursive(empty); r >= 0 {
		return fmt.Errorf("%w: line %d: %s can begin with itself (left recursion, or a repetition of what may be empty)",
			ErrGrammar, g.rules[r].line, g.describe(r))
	}
	ends := g.closure(func(e element, done []bool) bool { return e.rule < 0 || done[e.rule] })
	for i := range g.rules {
		if !ends[i] {
			return fmt.Errorf("%w: line %d: %s can never end", ErrGrammar, g.rules[i].line, g.describe(i))
		}
	}
	return nil
}

func (g *Grammar) describe(r int) string {
	if name := g.rules[r].name; name != "" {
		return fmt.Sprintf("rule %q", name)
	}
	return "a group or repetition"
}

// closure marks every rule that has an alternative of only good elements, where
// an element may be good because its rule is marked. Work is linear in the size
// of the grammar: a rule is looked at again only when a rule that it uses is marked.
func (g *Grammar) closure(good func(e element, done []bool) bool) []bool {
	users := make([][]int, len(g.rules))
	for i, r := range g.rules {
		for _, alt := range r.alts {
			for _, e := range alt {
				if e.rule >= 0 {
					users[e.rule] = append(users[e.rule], i)
				}
			}
		}
	}
	done := make([]bool, len(g.rules))
	queue := make([]int, len(g.rules))
	for i := range queue {
		queue[i] = i
	}
	for len(queue) > 0 {
		i := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		if done[i] || !hasGoodAlternative(g.rules[i].alts, done, good) {
			continue
		}
		done[i] = true
		queue = append(queue, users[i]...)
	}
	return done
}

func hasGoodAlternative(alts [][]element, done []bool, good func(e element, done []bool) bool) bool {
next:
	for _, alt := range alts {
		for _, e := range alt {
			if !good(e, done) {
				continue next
			}
		}
		return true
	}
	return false
}

// leftRecursive returns a rule that can begin with itself, or -1. It is a
// depth-first search with a stack of its own: chains of rules may be long.
func (g *Grammar) leftRecursive(empty []bool) int {
	firsts := make([][]int, len(g.rules))
	for i, r := range g.rules {
		for _, alt := range r.alts {
			for _, e := range alt {
				if e.rule < 0 {
					break
				}
				firsts[i] = append(firsts[i], e.rule)
				if !empty[e.rule] {
					break
				}
			}
		}
	}
	const (
		unseen = iota
		open
		closed
	)
	state := make([]byte, len(g.rules))
	type frame struct{ rule, next int }
	for start := range g.rules {
		stack := []frame{}
		if state[start] == unseen {
			state[start] = open
			stack = append(stack, frame{rule: start})
		}
		for len(stack) > 0 {
			top := &stack[len(stack)-1]
			if top.next == len(firsts[top.rule]) {
				state[top.rule] = closed
				stack = stack[:len(stack)-1]
				continue
			}
			to := firsts[top.rule][top.next]
			top.next++
			switch state[to] {
			case open:
				return to
			case unseen:
				state[to] = open
				stack = append(stack, frame{rule: to})
			}
		}
	}
	return -1
}
