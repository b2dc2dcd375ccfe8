package replay

import (
	"fmt"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/kvtier/workload"
)

// chains numbers the blocks of a load and names them as an executor would: by a hash
// chain over their tokens. A block is hashed when it is first seen.
type chains struct {
	blocks []Block
	roots  []kvtier.Key
	byKey  map[kvtier.Key]int32
	own    [][]int32              // session, id: number plus 1
	open   [][]int32              // session, id minus fresh: number plus 1
	global map[kvtier.Key][]int32 // root, id minus Global: number plus 1
	buf    []int32                // tokens of one block
	keys   []kvtier.Key
}

func newChains(sessions int) *chains {
	return &chains{
		byKey: map[kvtier.Key]int32{}, own: make([][]int32, sessions), open: make([][]int32, sessions), global: map[kvtier.Key][]int32{},
		buf: make([]int32, 0, blockTokens),
	}
}

// place is where the number of a block id is kept.
func (x *chains) place(session, id int32, root kvtier.Key) *int32 {
	var table *[]int32
	switch {
	case id >= workload.Global:
		t := x.global[root]
		id -= workload.Global
		if int(id) >= len(t) {
			t = append(t, make([]int32, int(id)+1-len(t)+len(t)/2)...)
			x.global[root] = t
		}
		return &t[id]
	case id >= fresh:
		table, id = &x.open[session], id-fresh
	default:
		table = &x.own[session]
	}
	if int(id) >= len(*table) {
		*table = append(*table, make([]int32, int(id)+1-len(*table)+len(*table)/2)...)
	}
	return &(*table)[id]
}

// root is what first blocks under a root have as their parent.
func (x *chains) root(key kvtier.Key) int32 {
	for i, r := range x.roots {
		if r == key {
			return ^int32(i)
		}
	}
	x.roots = append(x.roots, key)
	return ^int32(len(x.roots) - 1)
}

// number finds or makes the block of that key.
func (x *chains) number(key kvtier.Key, parent, index int32) int32 {
	if n, ok := x.byKey[key]; ok {
		return n
	}
	n := int32(len(x.blocks))
	x.byKey[key] = n
	x.blocks = append(x.blocks, Block{Key: key, Parent: parent, Index: index})
	return n
}

// push appends a block to a path.
func push(path []Span, n int32) []Span {
	if k := len(path); k > 0 && path[k-1].From+path[k-1].N == n {
		path[k-1].N++
		return path
	}
	return append(path, Span{n, 1})
}

// prompt appends the n first blocks of runs to path.
func (x *chains) prompt(path []Span, session int32, runs []workload.Run, n int32, root kvtier.Key) ([]Span, error) {
	last, index := x.root(root), int32(0)
	for _, r := range runs {
		for id := r.From; id < r.From+r.N && index < n; id++ {
			p := x.place(session, id, root)
			if *p == 0 {
				key := root
				if last >= 0 {
					key = x.blocks[last].Key
				}
				x.buf = appendTokens(x.buf[:0], session, []piece{{id: id, n: blockTokens}})
				key, err := kvtier.Chain(key, int(index), x.buf, nil)
				if err != nil {
					return nil, err
				}
				*p = x.number(key, last, index) + 1
			}
			if b := &x.blocks[*p-1]; b.Parent != last || b.Index != index {
				return nil, fmt.Errorf("replay: block id %d stands at place %d here and at %d before, or behind another block; ids must name whole prefixes", id, index, b.Index)
			}
			last = *p - 1
			path, index = push(path, last), index+1
		}
	}
	return path, nil
}

// answer appends the blocks that tokens fill, behind a path of n blocks that ends with
// block last; last is x.root when it has none.
func (x *chains) answer(path []Span, last, n int32, root kvtier.Key, tokens []int32) ([]Span, error) {
	c, err := kvtier.NewChainer(root, blockTokens, nil)
	if err != nil {
		return nil, err
	}
	if last >= 0 {
		c.Resume(x.blocks[last].Key, int(n-1))
	}
	x.keys = c.Append(x.keys[:0], tokens...)
	for _, k := range x.keys {
		last = x.number(k, last, n)
		path, n = push(path, last), n+1
	}
	return path, nil
}
