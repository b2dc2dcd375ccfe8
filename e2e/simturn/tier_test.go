package simturn

import (
	"errors"

	"github.com/weir-dev/weir/gpuexec/worker"
	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/kvtier/lineage"
	"github.com/weir-dev/weir/schemas"
)

// keys names blocks as the live stack does.
type keys struct{}

func (keys) Root(spec schemas.KeySpec, f schemas.KVFormat) (worker.Key, error) {
	return lineage.Root(spec, f)
}

func (keys) Chain(parent worker.Key, index int, tokens []int32, _ []schemas.MediaSpan) worker.Key {
	k, err := kvtier.Chain(parent, index, tokens, nil)
	if err != nil {
		panic(err)
	}
	return k
}

// memTier is a fake of the shared host memory: it holds the newest blocks and
// forgets the oldest, whoever needs them.
type memTier struct {
	blocks map[worker.Key]*memBlock
	order  []worker.Key
	most   int
}

type memBlock struct {
	worker.Block
	data []byte
}

type memSlot struct{ data []byte }

func (s *memSlot) Data() []byte { return s.data }

func newTier() *memTier { return &memTier{blocks: map[worker.Key]*memBlock{}, most: 1 << 20} }

func (m *memTier) Lease(ks []worker.Key) (refs []worker.Ref) {
	for _, k := range ks {
		b := m.blocks[k]
		if b == nil {
			break
		}
		refs = append(refs, worker.Ref{Key: k, Decoded: b.Decoded})
	}
	return refs
}

func (m *memTier) Data(r worker.Ref) []byte { return m.blocks[r.Key].data }
func (m *memTier) Valid(r worker.Ref) bool  { return m.blocks[r.Key] != nil }
func (m *memTier) Release([]worker.Ref)     {}
func (m *memTier) Has(k worker.Key) bool    { return m.blocks[k] != nil }
func (m *memTier) Abandon([]worker.Slot)    {}

func (m *memTier) Parent(k worker.Key) (worker.Key, int, bool) {
	b := m.blocks[k]
	if b == nil {
		return worker.Key{}, 0, false
	}
	return b.Parent, b.Index, true
}

func (m *memTier) Reserve(n int) (out []worker.Slot, err error) {
	if m.most == 0 {
		return nil, errors.New("fake tier: full")
	}
	for range n {
		out = append(out, &memSlot{make([]byte, 256)})
	}
	return out, nil
}

func (m *memTier) Seal(s worker.Slot, b worker.Block) error {
	if m.blocks[b.Key] != nil {
		return nil
	}
	m.blocks[b.Key] = &memBlock{Block: b, data: s.Data()}
	m.order = append(m.order, b.Key)
	for len(m.blocks) > m.most {
		delete(m.blocks, m.order[0])
		m.order = m.order[1:]
	}
	return nil
}
