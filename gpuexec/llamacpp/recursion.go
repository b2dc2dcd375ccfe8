package llamacpp

import "fmt"

// validate checks what only the whole grammar shows: a root, no undefined rule, no
// left recursion.
func (p *gbnfParser) validate() error {
	root, ok := p.byName["root"]
	if !ok || !p.rules[root].defined {
		return fmt.Errorf("%w: there is no rule \"root\"", ErrGrammar)
	}
	for _, r := range p.rules {
		if !r.defined {
			return fmt.Errorf("%w: rule %q is used but not defined", ErrGrammar, r.name)
		}
	}
	p.findEmpty()
	if name, found := p.leftRecursion(); found {
		return fmt.Errorf("%w: %s begins with itself (left recursion), so it would never match a character", ErrGrammar, name)
	}
	return nil
}

// findEmpty marks the rules that may match nothing. Each round marks at least one
// rule or ends, and a round costs the size of the grammar, which is bounded.
func (p *gbnfParser) findEmpty() {
	for changed := true; changed; {
		changed = false
		for i := range p.rules {
			if !p.rules[i].empty && p.canBeEmpty(p.rules[i].alts) {
				p.rules[i].empty, changed = true, true
			}
		}
	}
}

func (p *gbnfParser) canBeEmpty(alts [][]int) bool {
	for _, seq := range alts {
		empty := true
		for _, s := range seq {
			if s == terminal || !p.rules[s].empty {
				empty = false
				break
			}
		}
		if empty {
			return true
		}
	}
	return false
}

// leftRecursion finds a rule that can reach itself without matching a character.
// The library looks for it too, but overlooks rules that are empty only through
// others, and then loops until memory is gone.
func (p *gbnfParser) leftRecursion() (name string, found bool) {
	const (
		unseen = iota
		onPath
		done
	)
	state := make([]uint8, len(p.rules))
	var visit func(i int) (int, bool)
	visit = func(i int) (int, bool) {
		state[i] = onPath
		for _, seq := range p.rules[i].alts {
			for _, s := range seq {
				if s == terminal {
					break
				}
				if state[s] == onPath {
					return s, true
				}
				if state[s] == unseen {
					if at, bad := visit(s); bad {
						return at, true
					}
				}
				if !p.rules[s].empty {
					break
				}
			}
		}
		state[i] = done
		return 0, false
	}
	for i := range p.rules {
		if state[i] != unseen {
			continue
		}
		if at, bad := visit(i); bad {
			if p.rules[at].name == "" {
				return "a repetition of something that can be empty", true
			}
			return fmt.Sprintf("rule %q", p.rules[at].name), true
		}
	}
	return "", false
}
