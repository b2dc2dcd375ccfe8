package replay

import (
	"fmt"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/schemas"
)

// Block is one KV block of a log. Blocks are numbered from 0 in the order in which
// they are first seen.
type Block struct {
	Key    kvtier.Key
	Parent int32 // its parent's number; ^i for a first block under Roots[i]
	Index  int32 // place in the chain
}

// Span is blocks From, From+1 … From+N-1.
type Span struct{ From, N int32 }

// Call is what a call is to a tier.
type Call struct {
	Session, Line int32
	In            int32 // tokens of the prompt
	Path          []Span
	// Look blocks of Path are looked up, and computed where they are missed: those
	// before the prompt's last token. Blocks is all of Path, the answer included, as
	// far as its KV is computed.
	Look, Blocks int32
}

// Op is one thing that happens.
type Op struct {
	At     int64 // Unix ns
	Kind   OpKind
	Call   int32
	Branch *schemas.BranchChange
}

// OpKind tells what happens.
type OpKind uint8

// The kinds of an Op.
const (
	OpStart  OpKind = iota // a prompt is looked up and its blocks are computed
	OpEnd                  // its answer's blocks are computed
	OpBranch               // the tier hears of a branch
)

// Log is a load as a tier sees it: what is looked up and computed, and what lineage
// says of the branches. It depends on neither the tier's size nor its policy.
type Log struct {
	Name     string
	Seed     uint64
	Mode     Mode
	Sessions int
	Roots    []kvtier.Key // of the chains, one per tenant
	Blocks   []Block
	Calls    []Call
	Ops      []Op
	Lineage  Counts

	// Waits are the recorded waits between a call's end and the next of its line, for
	// the policy that pins by them: what the call waited for, and how long.
	waits []wait
	ends  []bool // calls behind which the session has ended
}

// wait is what follows a call.
type wait struct {
	class string
	ns    int64 // -1: nothing follows
}

// Counts are what lineage did.
type Counts struct {
	Turns, Changes, Forgotten, Dropped uint64
	// Renamed: turns whose place was inferred as another branch than the line had before.
	Renamed uint64
}

// each calls f for the numbers of path in order, the first n of them, until it
// returns false.
func (c *Call) each(n int32, f func(i, block int32) bool) {
	i := int32(0)
	for _, s := range c.Path {
		for k := range min(s.N, n-i) {
			if !f(i+k, s.From+k) {
				return
			}
		}
		if i += s.N; i >= n {
			return
		}
	}
}

// parentKey is the key that block b hangs on.
func (l *Log) parentKey(b *Block) kvtier.Key {
	if b.Parent < 0 {
		return l.Roots[^b.Parent]
	}
	return l.Blocks[b.Parent].Key
}

// at is the number of block i of the path.
func (c *Call) at(i int32) int32 {
	for _, s := range c.Path {
		if i < s.N {
			return s.From + i
		}
		i -= s.N
	}
	return -1
}

// PromptTokens is the number of prompt tokens of all calls.
func (l *Log) PromptTokens() (n int64) {
	for i := range l.Calls {
		n += int64(l.Calls[i].In)
	}
	return n
}

// Check reports what cannot be in a log; a tier would be asked for nonsense.
func (l *Log) Check() error {
	for i := range l.Calls {
		c := &l.Calls[i]
		parent, n := int32(0), int32(0)
		if c.Blocks > 0 {
			parent = min(parent, l.Blocks[c.at(0)].Parent)
		}
		var err error
		c.each(c.Blocks, func(k, b int32) bool {
			switch {
			case b < 0 || int(b) >= len(l.Blocks):
				err = fmt.Errorf("replay: call %d has block %d of %d", i, b, len(l.Blocks))
			case l.Blocks[b].Parent != parent || l.Blocks[b].Index != k:
				err = fmt.Errorf("replay: block %d of call %d stands behind block %d, not %d", k, i, l.Blocks[b].Parent, parent)
			}
			parent, n = b, n+1
			return err == nil
		})
		if err == nil && (n != c.Blocks || c.Look > c.Blocks) {
			err = fmt.Errorf("replay: call %d has %d of %d blocks, %d to look up", i, n, c.Blocks, c.Look)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
