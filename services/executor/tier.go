package executor

import (
	"context"
	"errors"
	"time"

	"github.com/weir-dev/weir/gpuexec/worker"
	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/kvtier/hostmem"
	"github.com/weir-dev/weir/kvtier/lineage"
	"github.com/weir-dev/weir/schemas"
)

// keys names blocks for the worker, as lineage does.
type keys struct{}

func (keys) Root(spec schemas.KeySpec, f schemas.KVFormat) (worker.Key, error) {
	return lineage.Root(spec, f)
}

func (keys) Chain(parent worker.Key, index int, tokens []int32, media []schemas.MediaSpan) worker.Key {
	var ms []kvtier.Media
	for _, m := range media {
		ms = append(ms, kvtier.Media{Digest: m.Digest, Offset: m.Offset, Length: m.Length})
	}
	k, err := kvtier.Chain(parent, index, tokens, ms)
	if err != nil {
		// Negative indexes and bad media are refused. The worker names no block of a
		// prompt whose media have no digest, and decoding checked their places.
		panic(err)
	}
	return k
}

// tier is the shared memory as the worker uses it.
type tier struct {
	mem  *hostmem.Client
	refs []hostmem.Ref
}

func asKeys(ks []worker.Key) []kvtier.Key {
	out := make([]kvtier.Key, len(ks))
	for i, k := range ks {
		out[i] = k
	}
	return out
}

// Lease leases and checks: a block whose bytes do not match their checksum is
// reported and ends the prefix.
func (t *tier) Lease(ks []worker.Key) []worker.Ref {
	refs := t.mem.Lease(asKeys(ks))
	for i, r := range refs {
		if !t.mem.Verify(r) {
			t.mem.Release(refs[i:])
			refs = refs[:i]
			break
		}
	}
	out := make([]worker.Ref, len(refs))
	for i, r := range refs {
		b, _ := t.mem.Block(r.Key)
		out[i] = worker.Ref{Slot: uint64(i), Key: r.Key, Decoded: b.Origin == kvtier.OriginDecode}
	}
	t.refs = refs
	return out
}

// The worker holds one set of leases at a time, in order.
func (t *tier) Data(r worker.Ref) []byte { return t.mem.Data(t.refs[r.Slot]) }

func (t *tier) Valid(r worker.Ref) bool { return t.mem.Valid(t.refs[r.Slot]) }

func (t *tier) Release(refs []worker.Ref) {
	for _, r := range refs {
		t.mem.Release(t.refs[r.Slot : r.Slot+1])
	}
}

func (t *tier) Has(k worker.Key) bool { return t.mem.Match([]kvtier.Key{k}) == 1 }

func (t *tier) Parent(k worker.Key) (worker.Key, int, bool) { return t.mem.Parent(k) }

// Why says what became of a block; ok is false when nobody answers soon.
func (t *tier) Why(k worker.Key) (schemas.Gone, bool) {
	g, ok := t.mem.Why(k)
	return schemas.Gone{AtNS: g.AtNS, Rule: g.Rule}, ok
}

// First is which context the memory's order gives up first; -1 when nobody answers soon.
func (t *tier) First(tails []worker.Key) int { return t.mem.First(asKeys(tails)) }

// Pin leases blocks without looking at their bytes.
func (t *tier) Pin(ks []worker.Key) func() {
	refs := t.mem.Lease(asKeys(ks))
	return func() { t.mem.Release(refs) }
}

// reserveWait bounds the wait for room: a turn's answer may stand behind it.
const reserveWait = 250 * time.Millisecond

// Reserve asks for n slots, and for fewer when so many are not to be had.
func (t *tier) Reserve(n int) ([]worker.Slot, error) {
	ctx, cancel := context.WithTimeout(context.Background(), reserveWait)
	defer cancel()
	for n = min(n, t.mem.Capacity()); n > 0; n /= 2 {
		slots, err := t.mem.Reserve(ctx, n)
		if err == nil {
			out := make([]worker.Slot, len(slots))
			for i := range slots {
				out[i] = slots[i]
			}
			return out, nil
		}
		if !errors.Is(err, hostmem.ErrFull) {
			return nil, err
		}
	}
	return nil, hostmem.ErrFull
}

func (t *tier) Seal(s worker.Slot, b worker.Block) error {
	origin := kvtier.OriginPrefill
	if b.Decoded {
		origin = kvtier.OriginDecode
	}
	_, err := t.mem.Seal(s.(hostmem.Slot), kvtier.Block{Key: b.Key, Parent: b.Parent, Index: b.Index, Origin: origin})
	return err
}

func (t *tier) Abandon(ss []worker.Slot) {
	out := make([]hostmem.Slot, len(ss))
	for i := range ss {
		out[i] = ss[i].(hostmem.Slot)
	}
	t.mem.Abandon(out)
}
