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

// keptMark is one sequence that an executor keeps, as it last said.
type keptMark struct {
	blocks int
	round  uint32 // of the heartbeat that last said so
}

// set replaces what is kept in an executor's engine. Most of it stays from heartbeat to
// heartbeat: only what changes is touched.
func (e engines) set(x *executor, kept []schemas.Extent) {
	if slices.Equal(x.kept, kept) {
		return
	}
	if x.marks == nil {
		x.marks = make(map[string]keptMark, len(kept))
	}
	x.round++
	for _, k := range kept {
		m, known := x.marks[k.Key]
		if known && m.blocks == k.N {
			x.marks[k.Key] = keptMark{k.N, x.round}
			continue
		}
		key, ok := parseEnd(k.Key)
		if !ok || k.From != 0 || k.N <= 0 {
			continue
		}
		if known {
			e.drop(key, x)
		}
		x.marks[k.Key] = keptMark{k.N, x.round}
		e[key] = append(e[key], keptShare{x, k.N})
	}
	for _, k := range x.kept {
		if m, ok := x.marks[k.Key]; ok && m.round != x.round {
			delete(x.marks, k.Key)
			key, _ := parseEnd(k.Key) // it was one when it came in
			e.drop(key, x)
		}
	}
	x.kept = kept
}

// drop forgets that an executor's engine holds a chain.
func (e engines) drop(key endKey, x *executor) {
	left := slices.DeleteFunc(e[key], func(s keptShare) bool { return s.x == x })
	if len(left) == 0 {
		delete(e, key)
	} else {
		e[key] = left
	}
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
