package executor

import (
	"fmt"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/kvtier/hostmem"
	"github.com/weir-dev/weir/schemas"
)

// prompt is the names of a prompt's whole blocks, as far as they are known. The zero
// key stands for a name that is not.
type prompt struct {
	mem  *hostmem.Client
	root kvtier.Key
	keys []kvtier.Key
}

// nameBlocks names the blocks of a turn's prompt: from its tokens where they are there,
// else from the ends of its path and from what the memory knows of their parents. It
// names none of a prompt that is not cached.
func (b *bringer) nameBlocks(op *schemas.BringOp) (*prompt, error) {
	r := op.Ready
	p := &prompt{mem: b.mem}
	media := make([]kvtier.Media, len(r.Prompt.Media))
	for i, m := range r.Prompt.Media {
		media[i] = kvtier.Media{Digest: m.Digest, Offset: m.Offset, Length: m.Length}
		if m.Digest == "" {
			return p, nil
		}
	}
	if r.Prompt.Uncached || r.Prompt.N < 1 {
		return p, nil
	}
	var err error
	if p.root, err = (keys{}).Root(r.Keys, b.format); err != nil {
		return nil, err
	}
	p.keys = make([]kvtier.Key, (r.Prompt.N-1)/gpuexec.BlockTokens)
	chain, err := kvtier.NewChainer(p.root, gpuexec.BlockTokens, media)
	if err != nil {
		return nil, err
	}
	head := r.Prompt.TailFrom / gpuexec.BlockTokens
	known := 0 // block from which on tokens are known
	tokens := make([]kvtier.Key, 0, len(p.keys)+1)
	switch {
	case head == 0:
	case len(op.Head) >= r.Prompt.TailFrom:
		tokens = chain.Append(tokens, op.Head[:r.Prompt.TailFrom]...)
	default:
		last, ok := p.path(r.Prompt.Path, head)
		if !ok {
			return nil, fmt.Errorf("the path of the prompt does not end at block %d, where its tokens begin", head)
		}
		known = head
		chain.Resume(last, head-1)
	}
	tokens = chain.Append(tokens, r.Prompt.Tail...)
	if known < len(p.keys) {
		copy(p.keys[known:], tokens)
	}
	return p, nil
}

// path takes the names of the path's ends, and those that the memory knows before them.
// It returns the name of the last block before the tokens, head-1.
func (p *prompt) path(path []schemas.Extent, head int) (last kvtier.Key, ok bool) {
	for _, e := range path {
		k, good := keyOf(e)
		if at := e.From + e.N - 1; good && at >= 0 && at < len(p.keys) {
			p.keys[at] = k.Key
		}
		if good && e.From+e.N == head {
			last, ok = k.Key, true
		}
	}
	p.walk()
	return last, ok
}

// walk fills in what the memory knows of the parents of named blocks.
func (p *prompt) walk() {
	for i := len(p.keys) - 1; i > 0; i-- {
		if p.keys[i].IsZero() || !p.keys[i-1].IsZero() {
			continue
		}
		if parent, index, ok := p.mem.Parent(p.keys[i]); ok && index == i {
			p.keys[i-1] = parent
		}
	}
}

func keyOf(e schemas.Extent) (kvtier.Extent, bool) {
	k, err := kvtier.ParseKey(e.Key)
	return kvtier.Extent{Key: k, From: e.From, N: e.N}, err == nil
}

// learn takes the names that another node gives, if they fit: a chain from another root
// or through another block is of another tenant, model or engine.
func (p *prompt) learn(chain []kvtier.Block) bool {
	for _, b := range chain {
		if b.Index >= len(p.keys) {
			break
		}
		if have := p.keys[b.Index]; !have.IsZero() && have != b.Key || b.Key.IsZero() {
			return false
		}
		if b.Index == 0 && b.Parent != p.root {
			return false
		}
		if b.Index > 0 && !p.keys[b.Index-1].IsZero() && p.keys[b.Index-1] != b.Parent {
			return false
		}
	}
	for _, b := range chain {
		if b.Index < len(p.keys) {
			p.keys[b.Index] = b.Key
		}
		if i := b.Index - 1; i >= 0 && i < len(p.keys) {
			p.keys[i] = b.Parent
		}
	}
	p.walk()
	return len(chain) > 0
}

func (p *prompt) has(i int) bool {
	return !p.keys[i].IsZero() && p.mem.Match(p.keys[i:i+1]) == 1
}

// missing counts blocks that are not in memory, or not known to be.
func (p *prompt) missing() (n int) {
	for i := range p.keys {
		if !p.has(i) {
			n++
		}
	}
	return n
}

// known are the leading blocks whose names are known.
func (p *prompt) known() []kvtier.Key {
	for i := range p.keys {
		if p.keys[i].IsZero() {
			return p.keys[:i]
		}
	}
	return p.keys
}

// named tells whether the names of blocks from..from+n-1 of the prompt are known.
func (p *prompt) named(from, n int) bool {
	for i := from; i < min(from+n, len(p.keys)); i++ {
		if p.keys[i].IsZero() {
			return false
		}
	}
	return true
}

// reaches tells whether all blocks before i are in memory.
func (p *prompt) reaches(i int) bool {
	if i > len(p.keys) {
		return false
	}
	known := p.known()
	return len(known) >= i && p.mem.Match(known[:i]) == i
}

// lacking are the blocks of from..from+n-1 that are not in memory, up to the first one
// that has no name.
func (p *prompt) lacking(from, n int) (keys []kvtier.Key) {
	for i := from; i < min(from+n, len(p.keys)) && !p.keys[i].IsZero(); i++ {
		if !p.has(i) {
			keys = append(keys, p.keys[i])
		}
	}
	return keys
}

// hold leases the leading blocks that are in memory, until release.
func (p *prompt) hold() (release func()) {
	refs := p.mem.Lease(p.known())
	return func() { p.mem.Release(refs) }
}
