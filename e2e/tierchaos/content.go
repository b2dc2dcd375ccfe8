package tierchaos

import (
	"encoding/binary"
	"fmt"

	"github.com/weir-dev/weir/kvtier"
)

type errCount struct {
	n    int64
	what string
}

func (e errCount) Error() string { return fmt.Sprintf("tierchaos: %d %s", e.n, e.what) }

// class is one size of blocks: a pool of its own within the one budget.
type class struct {
	name   string
	block  int64
	chains int // per tenant; together about three times the capacity
	depth  int // blocks of a chain
}

// The two classes share the budget by halves. Blocks of the large one are copied
// past the caches, those of the small one through them.
var classes = []class{
	{name: "small", block: 24 << 10, chains: 60, depth: 24},
	{name: "large", block: 384 << 10, chains: 12, depth: 8},
}

const (
	arenaBytes = 48 << 20
	poolBytes  = arenaBytes / 2
	tenants    = 2
	// private chains are stored for the first tenant only; the second one looks for them.
	private = 4
)

// universe is all blocks of one class that may exist, by tenant, chain and place.
type universe struct {
	class
	blocks [tenants][][]kvtier.Block
	owner  map[kvtier.Key]int // tenant whose block it is
	shared int                // keys that two tenants have in common: must be 0
}

func newUniverse(c class) *universe {
	u := &universe{class: c, owner: map[kvtier.Key]int{}}
	for t := range tenants {
		spec := kvtier.Spec{
			TenantSalt: fmt.Sprint("tenant-", t), ModelDigest: "m", Engine: "none", EngineVersion: "1",
			Numerics: "bytes", Tokenizer: "none", FormatVersion: 1,
		}
		for n := range c.chains {
			parent := spec.Root()
			chain := make([]kvtier.Block, c.depth)
			for i := range chain { // the tokens are equal for all tenants
				key, err := kvtier.Chain(parent, i, []int32{int32(n), int32(i)}, nil)
				if err != nil {
					panic(err) // only media can be wrong, and there are none
				}
				chain[i] = kvtier.Block{Key: key, Parent: parent, Index: i}
				parent = key
				if _, both := u.owner[key]; both {
					u.shared++
				}
				u.owner[key] = t
			}
			u.blocks[t] = append(u.blocks[t], chain)
		}
	}
	return u
}

// all lists every block, parents before children.
func (u *universe) all() (out []kvtier.Block) {
	for t := range tenants {
		for _, chain := range u.blocks[t] {
			out = append(out, chain...)
		}
	}
	return out
}

func keysOf(blocks []kvtier.Block) []kvtier.Key {
	out := make([]kvtier.Key, len(blocks))
	for i, b := range blocks {
		out[i] = b.Key
	}
	return out
}

// words yields the content of a block: 64-bit words that only this tenant's block
// of this key has (splitmix64).
type words uint64

func contentOf(tenant int, key *kvtier.Key) words {
	return words(binary.LittleEndian.Uint64(key[:8]) ^ uint64(tenant+1)*0x9E3779B97F4A7C15)
}

func (w *words) next() uint64 {
	*w += 0x9E3779B97F4A7C15
	z := uint64(*w)
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// fill writes a block's content; len(dst) is a multiple of 8.
func fill(dst []byte, tenant int, key *kvtier.Key) {
	w := contentOf(tenant, key)
	for ; len(dst) >= 8; dst = dst[8:] {
		binary.LittleEndian.PutUint64(dst, w.next())
	}
}

// differing counts the bytes of data that are not the block's.
func differing(data []byte, tenant int, key *kvtier.Key) (n int64) {
	w := contentOf(tenant, key)
	for ; len(data) >= 8; data = data[8:] {
		diff := binary.LittleEndian.Uint64(data) ^ w.next()
		for ; diff != 0; diff >>= 8 {
			if diff&0xFF != 0 {
				n++
			}
		}
	}
	return n
}
