package kvtier

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// readersMap is a Readers over maps, for tests.
type readersMap struct {
	leased map[SlotID]bool
	use    map[SlotID]int64
}

func (r readersMap) Leased(id SlotID) bool   { return r.leased[id] }
func (r readersMap) LastUse(id SlotID) int64 { return r.use[id] }

// treeKey names node i of the test's tree: node 0 is the root, and the parent of
// node i is node (i-1)/2, so siblings and long chains both occur.
func treeKey(i int) Key { return Key{byte(i), byte(i >> 8), 0xaa} }

func treeBlock(i int) Block {
	depth := 0
	for p := i; p > 1; p = (p - 1) / 2 {
		depth++
	}
	return Block{Key: treeKey(i), Parent: treeKey((i - 1) / 2), Index: depth}
}

// naive is the same table in the simplest form that can be right.
type naive struct {
	total    int
	reserved map[Reservation]uint32
	sealed   map[Key]SlotID
	block    map[SlotID]Block
	use      map[SlotID]int64
	leased   map[SlotID]bool
	naiveBranches
}

func (n *naive) free() int { return n.total - len(n.reserved) - len(n.sealed) }

func (n *naive) leaf(key Key) bool {
	for _, b := range n.block {
		if b.Index > 0 && b.Parent == key {
			return false
		}
	}
	return true
}

// slotsMachine runs the table and the model side by side.
type slotsMachine struct {
	s    *Slots
	n    *naive
	gens map[SlotID]uint64
	now  int64
}

func (m *slotsMachine) readers() readersMap { return readersMap{m.n.leased, m.n.use} }

func (m *slotsMachine) reserve(t *rapid.T) {
	w := rapid.Uint32Range(0, 2).Draw(t, "writer")
	want := rapid.IntRange(0, 4).Draw(t, "n")
	got := m.s.Reserve(w, want, nil)
	if len(got) != min(want, m.n.free()) {
		t.Fatalf("reserved %d of %d, %d were free", len(got), want, m.n.free())
	}
	for _, r := range got {
		if r.Gen <= m.gens[r.Slot] {
			t.Fatalf("slot %d has generation %d after %d", r.Slot, r.Gen, m.gens[r.Slot])
		}
		m.gens[r.Slot] = r.Gen
		m.n.reserved[r] = w
	}
}

// pick draws a reservation; with a small chance one that is not valid.
func (m *slotsMachine) pick(t *rapid.T) (Reservation, uint32, bool) {
	all := make([]Reservation, 0, len(m.n.reserved))
	for r := range m.n.reserved {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b Reservation) int { return int(a.Slot) - int(b.Slot) })
	if len(all) == 0 || rapid.IntRange(0, 9).Draw(t, "bad") == 0 {
		return Reservation{Slot: SlotID(rapid.IntRange(0, m.n.total+1).Draw(t, "slot")), Gen: 1 << 40}, 0, false
	}
	r := rapid.SampledFrom(all).Draw(t, "reservation")
	return r, m.n.reserved[r], true
}

func (m *slotsMachine) seal(t *rapid.T) {
	r, w, valid := m.pick(t)
	b := treeBlock(rapid.IntRange(1, 24).Draw(t, "node"))
	m.now++
	old, dup, err := m.s.Seal(w, r, b, m.now)
	if !valid {
		if !errors.Is(err, ErrNotReserved) {
			t.Fatalf("seal of %v: %v", r, err)
		}
		return
	}
	if have, ok := m.n.sealed[b.Key]; ok {
		if err != nil || !dup || old != have {
			t.Fatalf("second seal of %s: slot %d, %v, %v", b.Key.Short(), old, dup, err)
		}
		return
	}
	if err != nil || dup || old != r.Slot {
		t.Fatalf("seal: slot %d, %v, %v", old, dup, err)
	}
	delete(m.n.reserved, r)
	m.n.sealed[b.Key], m.n.block[r.Slot], m.n.use[r.Slot] = r.Slot, b, m.now
	m.n.placed(b)
}

// store reserves and seals blocks in one step, of a small part of the tree, so that
// chains, forks and gaps are frequent.
func (m *slotsMachine) store(t *rapid.T) {
	for range rapid.IntRange(1, 6).Draw(t, "blocks") {
		m.storeOne(t)
	}
}

func (m *slotsMachine) storeOne(t *rapid.T) {
	b := treeBlock(rapid.IntRange(1, 14).Draw(t, "node"))
	if _, ok := m.n.sealed[b.Key]; ok || m.n.free() == 0 {
		return
	}
	r := m.s.Reserve(3, 1, nil)[0]
	m.gens[r.Slot] = r.Gen
	m.now++
	if _, dup, err := m.s.Seal(3, r, b, m.now); err != nil || dup {
		t.Fatalf("store: %v, %v", dup, err)
	}
	m.n.sealed[b.Key], m.n.block[r.Slot], m.n.use[r.Slot] = r.Slot, b, m.now
	m.n.placed(b)
}

func (m *slotsMachine) abandon(t *rapid.T) {
	r, w, valid := m.pick(t)
	if err := m.s.Abandon(w, r); (err == nil) != valid {
		t.Fatalf("abandon of %v: %v", r, err)
	}
	delete(m.n.reserved, r)
}

func (m *slotsMachine) sealedSlot(t *rapid.T) (SlotID, bool) {
	if len(m.n.block) == 0 {
		return 0, false
	}
	ids := make([]SlotID, 0, len(m.n.block))
	for id := range m.n.block {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return rapid.SampledFrom(ids).Draw(t, "sealed"), true
}

func (m *slotsMachine) read(t *rapid.T) {
	if id, ok := m.sealedSlot(t); ok {
		m.now++
		m.n.use[id] = m.now
		m.n.leased[id] = rapid.Bool().Draw(t, "lease")
	}
}

func (m *slotsMachine) drop(id SlotID) {
	b, leaf := m.n.block[id], m.n.leaf(m.n.block[id].Key)
	defer func() { m.n.removed(b, leaf) }()
	delete(m.n.sealed, m.n.block[id].Key)
	delete(m.n.block, id)
	delete(m.n.use, id)
	delete(m.n.leased, id)
}

func (m *slotsMachine) evictSome(t *rapid.T) {
	for range rapid.IntRange(1, 4).Draw(t, "victims") {
		m.evict(t)
		m.check(t)
	}
}

func (m *slotsMachine) evict(t *rapid.T) {
	want, ok := m.n.victim()
	got, gotOK := m.s.Victim(m.readers(), m.now)
	if ok != gotOK || ok && want != got {
		t.Fatalf("victim %d %v, want %d %v", got, gotOK, want, ok)
	}
	if !ok {
		return
	}
	if b, err := m.s.Evict(got); err != nil || b != m.n.block[got] {
		t.Fatalf("evict %d: %+v, %v", got, b, err)
	}
	m.drop(got)
}

func (m *slotsMachine) remove(t *rapid.T) {
	id, ok := m.sealedSlot(t)
	if !ok {
		return
	}
	if _, err := m.s.Evict(id); !m.n.leaf(m.n.block[id].Key) {
		if !errors.Is(err, ErrNotLeaf) {
			t.Fatalf("evict of a parent: %v", err)
		}
		if _, err := m.s.Remove(id); err != nil {
			t.Fatal(err)
		}
	}
	m.drop(id)
}

// restart rebuilds the table from what a restart would read.
func (m *slotsMachine) restart(t *rapid.T) {
	byslot := map[SlotID]uint32{}
	for r, w := range m.n.reserved {
		byslot[r.Slot] = w
	}
	s, refused := Restore(m.n.total, func(id SlotID) Saved {
		v := Saved{Gen: m.gens[id]}
		if w, ok := byslot[id]; ok {
			v.State, v.Writer = SlotReserved, w
		} else if b, ok := m.n.block[id]; ok {
			v.State, v.Block, v.Use = SlotSealed, b, m.n.use[id]
		}
		return v
	})
	if len(refused) > 0 {
		t.Fatalf("refused %v", refused)
	}
	m.s = s
	m.n.naiveBranches = newNaiveBranches() // branches are learned anew
}

func (m *slotsMachine) check(t *rapid.T) {
	if err := m.s.CheckIntegrity(); err != nil {
		t.Fatal(err)
	}
	c := m.s.Counts()
	if c.Free != m.n.free() || c.Reserved != len(m.n.reserved) || c.Sealed != len(m.n.sealed) || c.Total != m.n.total {
		t.Fatalf("counts %+v, want %d free, %d reserved, %d sealed", c, m.n.free(), len(m.n.reserved), len(m.n.sealed))
	}
	for i := range 25 {
		id, ok := m.s.Find(treeKey(i))
		want, has := m.n.sealed[treeKey(i)]
		if ok != has || ok && id != want {
			t.Fatalf("node %d is found in slot %d %v, want %d %v", i, id, ok, want, has)
		}
	}
	if got := m.s.Blocks(nil); len(got) != len(m.n.sealed) {
		t.Fatalf("%d blocks listed, want %d", len(got), len(m.n.sealed))
	}
	m.checkBranches(t)
	listed := len(m.s.ReservedBy(0)) + len(m.s.ReservedBy(1)) + len(m.s.ReservedBy(2))
	if listed != len(m.n.reserved) {
		t.Fatalf("%d reservations listed, want %d", listed, len(m.n.reserved))
	}
}

func TestSlotsAgainstNaiveModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.IntRange(1, 16).Draw(t, "slots")
		m := &slotsMachine{
			s: NewSlots(total), gens: map[SlotID]uint64{},
			n: &naive{
				total: total, reserved: map[Reservation]uint32{}, sealed: map[Key]SlotID{},
				block: map[SlotID]Block{}, use: map[SlotID]int64{}, leased: map[SlotID]bool{},
				naiveBranches: newNaiveBranches(),
			},
		}
		t.Repeat(map[string]func(*rapid.T){
			"": m.check, "reserve": m.reserve, "seal": m.seal, "store": m.store, "store again": m.store, "abandon": m.abandon,
			"read": m.read, "evict": m.evictSome, "remove": m.remove, "restart": m.restart,
			"hold": m.hold, "hold again": m.hold, "drop branch": m.dropBranch, "rank": m.rank,
		})
	})
}

func sealAll(t testing.TB, s *Slots, blocks ...Block) []SlotID {
	t.Helper()
	var ids []SlotID
	for i, b := range blocks {
		r := s.Reserve(1, 1, nil)
		if len(r) != 1 {
			t.Fatal("no free slot")
		}
		id, dup, err := s.Seal(1, r[0], b, int64(i))
		if err != nil || dup {
			t.Fatalf("seal %s: %v, %v", b.Key.Short(), dup, err)
		}
		ids = append(ids, id)
	}
	return ids
}

// A block that cannot stand in a tree is refused, so no cycle can hide from eviction.
func TestBlocksThatFitNoTree(t *testing.T) {
	for _, tc := range []struct {
		name string
		have []Block
		b    Block
	}{
		{"no key", nil, Block{Parent: Key{1}}},
		{"own parent", nil, Block{Key: Key{1}, Parent: Key{1}, Index: 1}},
		{"negative index", nil, Block{Key: Key{1}, Index: -1}},
		{"index is not the parent's plus one", []Block{{Key: Key{1}, Parent: Key{9}}}, Block{Key: Key{2}, Parent: Key{1}, Index: 3}},
		{"index is not the siblings'", []Block{{Key: Key{1}, Parent: Key{9}, Index: 4}}, Block{Key: Key{2}, Parent: Key{9}, Index: 3}},
		{"index is not the children's minus one", []Block{{Key: Key{1}, Parent: Key{9}, Index: 4}}, Block{Key: Key{9}, Parent: Key{8}, Index: 4}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := NewSlots(4)
			sealAll(t, s, tc.have...)
			r := s.Reserve(1, 1, nil)
			if _, _, err := s.Seal(1, r[0], tc.b, 0); !errors.Is(err, ErrBadBlock) {
				t.Fatalf("seal: %v, want ErrBadBlock", err)
			}
			if err := s.Abandon(1, r[0]); err != nil {
				t.Fatal(err)
			}
			if err := s.CheckIntegrity(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// Children that are sealed, or stay, without their parent count as its children
// as soon as it is there.
func TestParentThatComesBackKeepsItsChildren(t *testing.T) {
	s := NewSlots(8)
	ids := sealAll(t, s, Block{Key: Key{1}, Parent: Key{9}}, Block{Key: Key{2}, Parent: Key{1}, Index: 1}, Block{Key: Key{3}, Parent: Key{1}, Index: 1})
	if _, err := s.Remove(ids[0]); err != nil {
		t.Fatal(err)
	}
	again := sealAll(t, s, Block{Key: Key{1}, Parent: Key{9}})
	if _, err := s.Evict(again[0]); !errors.Is(err, ErrNotLeaf) {
		t.Fatalf("evict of a parent: %v", err)
	}
	if err := s.CheckIntegrity(); err != nil {
		t.Fatal(err)
	}
}

func TestRestoreRefusesSecondCopyAndBadPlace(t *testing.T) {
	blocks := []Block{
		{Key: Key{1}, Parent: Key{9}},
		{Key: Key{1}, Parent: Key{9}},
		{Key: Key{2}, Parent: Key{1}, Index: 7},
	}
	s, refused := Restore(3, func(id SlotID) Saved { return Saved{State: SlotSealed, Gen: 5, Block: blocks[id]} })
	if !slices.Equal(refused, []SlotID{1, 2}) {
		t.Fatalf("refused %v, want 1 and 2", refused)
	}
	if err := s.CheckIntegrity(); err != nil {
		t.Fatal(err)
	}
	if r := s.Reserve(0, 1, nil); len(r) != 1 || r[0].Gen != 6 {
		t.Fatalf("reservation after restore %v, want generation 6", r)
	}
}

// Complaint 13 of the facts: the time of an eviction must not grow with the pool.
// Complaint 30: probing or leasing everything must not make each choice slow.
func BenchmarkEvict(b *testing.B) {
	for _, n := range []int{10_000, 1_000_000} {
		b.Run(map[int]string{10_000: "10k", 1_000_000: "1M"}[n], func(b *testing.B) {
			s := NewSlots(n)
			use := make(useTimes, n)
			next := 1 // the zero key names nothing
			fill := func() {
				r := s.Reserve(1, 1, nil)
				blk := Block{Key: sha256.Sum256(binary.LittleEndian.AppendUint64(nil, uint64(next)))}
				use[r[0].Slot] = int64(next)
				if _, _, err := s.Seal(1, r[0], blk, int64(next)); err != nil {
					b.Fatal(err)
				}
				next++
			}
			for range n {
				fill()
			}
			for b.Loop() {
				id, _ := s.Victim(use, int64(next))
				if _, err := s.Evict(id); err != nil {
					b.Fatal(err)
				}
				fill()
			}
		})
	}
}

type useTimes []int64

func (useTimes) Leased(SlotID) bool        { return false }
func (u useTimes) LastUse(id SlotID) int64 { return u[id] }
