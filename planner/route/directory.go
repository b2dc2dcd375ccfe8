package route

import (
	"encoding/hex"
	"slices"

	"github.com/weir-dev/weir/schemas"
)

// directory knows, as far as it was told, which nodes hold which blocks. It keeps
// ends of extents, not blocks: notices and prompts are cut at the same stops
// (schemas.CutAtStops), so the deepest end of a prompt that a node holds says how
// many of its leading blocks are there. Blocks leave a node leaf first, so one that
// is there has all before it.
//
//	prompt    |--|--|--|----|----|------x      ends of Path and Rest
//	node a    |--|--|--|----|              ->  5 extents, 9 blocks
//	node b    |--|--|                      ->  2 extents, 2 blocks
//
// What it says is a hint: an executor computes what is not there after all.
type directory struct {
	maxNodes, maxEnds int

	nodes map[string]*tierNode
	list  []*tierNode // in order of first mention; a holder names its index
	ends  map[endKey]*end
	ring  []*end // all ends, for eviction in the manner of a clock
	hand  int

	unknown int    // nodes whose whole list was never read
	stamp   uint64 // of the last find
	due     bool   // a node may be to ask
}

// endKey is the first half of a block's key. Two blocks that share it are as likely
// as a broken hash.
type endKey [16]byte

// end is the last block of some extent.
type end struct {
	key     endKey
	at      int // in ring
	blocks  int // leading blocks of its chain, itself included
	used    bool
	holders []holder
}

// holder is a node that holds an end.
type holder struct {
	node  int
	media uint8  // bits of medium
	life  uint32 // the node's list in which it stood; see tierNode.valid
}

// tierNode is what the router knows of one tier node.
type tierNode struct {
	id    string
	index int
	peer  string // where it gives blocks to other nodes
	gives int    // placed jobs that bring blocks in from it

	epoch, seq uint64 // of the last notice
	// Entries of lives valid..life count. A list that is asked for begins a new life,
	// and ends the old ones when it is complete.
	life, valid uint32
	known       bool   // a whole list of it was read once
	found       uint64 // the find that saw it last
	view        uint64 // the view in which blocks is valid
	blocks      int    // leading blocks of the turn in view that it holds

	sync resync
}

func newDirectory(cfg *Config) *directory {
	return &directory{maxNodes: cfg.MaxNodes, maxEnds: cfg.MaxEnds, nodes: map[string]*tierNode{}, ends: map[endKey]*end{}}
}

// node returns the node of that name, nil for none or when there are too many.
func (d *directory) node(id string) *tierNode {
	if n := d.nodes[id]; n != nil || id == "" || len(d.list) >= d.maxNodes {
		return n
	}
	n := &tierNode{id: id, index: len(d.list)}
	n.sync.want, d.due = true, true
	d.unknown++
	d.nodes[id] = n
	d.list = append(d.list, n)
	return n
}

// any reports whether the whole list of some node was read.
func (d *directory) any() bool { return d.unknown < len(d.list) }

func parseEnd(key string) (k endKey, ok bool) {
	if len(key) < 2*len(k) {
		return k, false
	}
	_, err := hex.Decode(k[:], []byte(key[:2*len(k)]))
	return k, err == nil
}

const (
	onHost uint8 = 1 << iota // or on a device behind it
	onDisk
)

func bitOf(m schemas.Medium) uint8 {
	if m == schemas.MediumDisk {
		return onDisk
	}
	return onHost
}

// add notes that a node holds the blocks up to an extent's end. moved: and holds
// them in no other medium.
func (d *directory) add(n *tierNode, e schemas.Extent, medium uint8, moved bool) {
	k, ok := parseEnd(e.Key)
	if !ok || e.From < 0 || e.N < 1 {
		return
	}
	d.put(n, k, e.From+e.N, medium, moved)
}

// put is add for the end of that key and depth.
func (d *directory) put(n *tierNode, k endKey, blocks int, medium uint8, moved bool) {
	x := d.ends[k]
	if x == nil {
		x = d.insert(k, blocks)
	}
	x.used = true
	for i := range x.holders {
		if h := &x.holders[i]; h.node == n.index {
			if moved {
				h.media = 0
			}
			h.media, h.life = h.media|medium, n.life
			return
		}
	}
	x.holders = append(x.holders, holder{node: n.index, media: medium, life: n.life})
}

// insert makes an end. When there are too many, one that was not used since the
// hand came by goes.
func (d *directory) insert(k endKey, blocks int) *end {
	for len(d.ring) >= d.maxEnds {
		d.hand %= len(d.ring)
		if x := d.ring[d.hand]; x.used {
			x.used = false
			d.hand++
		} else {
			d.remove(x)
		}
	}
	x := &end{key: k, at: len(d.ring), blocks: blocks}
	d.ring = append(d.ring, x)
	d.ends[k] = x
	return x
}

func (d *directory) remove(x *end) {
	last := d.ring[len(d.ring)-1]
	d.ring[x.at], last.at = last, x.at
	d.ring = d.ring[:len(d.ring)-1]
	delete(d.ends, x.key)
}

// drop notes that a node does not hold a block any more, in that medium.
func (d *directory) drop(n *tierNode, key string, medium uint8) {
	k, ok := parseEnd(key)
	if !ok {
		return
	}
	x := d.ends[k]
	if x == nil {
		return
	}
	for i := range x.holders {
		h := &x.holders[i]
		if h.node != n.index {
			continue
		}
		if h.media &^= medium; h.media == 0 {
			x.holders = slices.Delete(x.holders, i, i+1)
		}
		break
	}
	if len(x.holders) == 0 {
		d.remove(x)
	}
}

// clear forgets all that a node was said to hold.
func (d *directory) clear(n *tierNode) {
	n.life++
	n.valid = n.life
}

// share is how many leading blocks of a prompt a node holds, and the name of the
// last of them.
type share struct {
	node   *tierNode
	blocks int
	key    string
}

// promptEnd is the end of an extent of a prompt, with its key read.
type promptEnd struct {
	key    endKey
	extent *schemas.Extent
}

func (e *promptEnd) blocks() int { return e.extent.From + e.extent.N }

// endsOf reads the keys of a prompt, the deepest last; none when its blocks have no names.
func endsOf(p *schemas.Prompt) []promptEnd {
	if p.Uncached {
		return nil
	}
	es := make([]promptEnd, 0, len(p.Path)+len(p.Rest))
	for _, part := range [...][]schemas.Extent{p.Path, p.Rest} {
		for i := range part {
			if k, ok := parseEnd(part[i].Key); ok && part[i].From >= 0 && part[i].N > 0 {
				es = append(es, promptEnd{k, &part[i]})
			}
		}
	}
	return es
}

// find appends who holds how much of a prompt, the deepest first.
func (d *directory) find(es []promptEnd, dst []share) []share {
	d.stamp++
	for i := len(es) - 1; i >= 0 && len(dst) < len(d.list); i-- {
		x := d.ends[es[i].key]
		if x == nil || x.blocks != es[i].blocks() {
			continue
		}
		for _, h := range x.holders {
			n := d.list[h.node]
			if h.life < n.valid || n.found == d.stamp {
				continue
			}
			x.used, n.found = true, d.stamp
			dst = append(dst, share{node: n, blocks: x.blocks, key: es[i].extent.Key})
		}
	}
	return dst
}

// learn notes that a node holds all whole blocks of a prompt, before its notice says so.
func (d *directory) learn(n *tierNode, es []promptEnd) {
	if n == nil {
		return
	}
	for i := range es {
		d.put(n, es[i].key, es[i].blocks(), onHost, false)
	}
}

// unlearn notes that a node was found to hold no more than so many blocks of a prompt.
func (d *directory) unlearn(n *tierNode, es []promptEnd, blocks int) {
	if n == nil {
		return
	}
	for i := range es {
		if es[i].blocks() > blocks {
			d.drop(n, es[i].extent.Key, onHost|onDisk)
		}
	}
}
