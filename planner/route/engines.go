package route

import (
	"slices"

	"github.com/weir-dev/weir/schemas"
)

// engines knows which sequences stay in which engines between turns, by the end of the
// chain that each holds. Executors say so in their heartbeats.
type engines map[endKey][]keptShare

// keptShare is one engine that holds the first blocks of a chain.
type keptShare struct {
	x      *executor
	blocks int
}

// set replaces what is kept in an executor's engine.
func (e engines) set(x *executor, kept []schemas.Extent) {
	if slices.Equal(x.kept, kept) {
		return
	}
	for _, k := range x.kept {
		key, ok := parseEnd(k.Key)
		if !ok || k.From != 0 {
			continue
		}
		left := slices.DeleteFunc(e[key], func(s keptShare) bool { return s.x == x })
		if len(left) == 0 {
			delete(e, key)
		} else {
			e[key] = left
		}
	}
	for _, k := range kept {
		if key, ok := parseEnd(k.Key); ok && k.From == 0 && k.N > 0 {
			e[key] = append(e[key], keptShare{x, k.N})
		}
	}
	x.kept = kept
}

// find appends which engines hold how much of a prompt, the deepest first; one engine
// may stand there more than once.
func (e engines) find(es []promptEnd, dst []keptShare) []keptShare {
	if len(e) == 0 {
		return dst
	}
	for i := len(es) - 1; i >= 0; i-- {
		for _, s := range e[es[i].key] {
			if s.blocks == es[i].blocks() {
				dst = append(dst, s)
			}
		}
	}
	return dst
}
