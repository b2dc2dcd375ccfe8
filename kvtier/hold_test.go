package kvtier

import (
	"cmp"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// naiveBranch is a branch of the model. at is the block that its context ends with
// as far as it is resident, zero when nothing is.
type naiveBranch struct {
	class       Class
	score       float64
	at, pending Key
}

// naiveBranches is what the model knows of branches.
type naiveBranches struct {
	branches map[BranchID]*naiveBranch
	passed   map[Key]map[BranchID]bool // by block: whose context went through it
	dead     map[Key]bool              // leaves where no branch ends
}

func newNaiveBranches() naiveBranches {
	return naiveBranches{map[BranchID]*naiveBranch{}, map[Key]map[BranchID]bool{}, map[Key]bool{}}
}

// chain lists the resident blocks from key upwards, to the first that is not there.
func (n *naive) chain(key Key) (out []Key) {
	for {
		id, ok := n.sealed[key]
		if !ok {
			return out
		}
		out = append(out, key)
		if n.block[id].Index == 0 {
			return out
		}
		key = n.block[id].Parent
	}
}

func (n *naive) ends(key Key) (here []*naiveBranch) {
	for _, b := range n.branches {
		if b.at == key {
			here = append(here, b)
		}
	}
	return here
}

// class of a leaf, and the score of the branch that protects it most.
func (n *naive) class(key Key) (c Class, score float64) {
	here := n.ends(key)
	if len(here) == 0 {
		if n.dead[key] {
			return ClassDead, 0
		}
		return ClassIdle, 0
	}
	b := slices.MaxFunc(here, func(a, b *naiveBranch) int {
		return cmp.Or(cmp.Compare(a.class, b.class), -cmp.Compare(a.score, b.score))
	})
	return b.class, b.score
}

// victim sorts all leaves.
func (n *naive) victim() (SlotID, bool) {
	var leaves []SlotID
	for key, id := range n.sealed {
		if c, _ := n.class(key); !n.leased[id] && n.leaf(key) && c < ClassRunning {
			leaves = append(leaves, id)
		}
	}
	if len(leaves) == 0 {
		return 0, false
	}
	return slices.MinFunc(leaves, func(a, b SlotID) int {
		x, s := n.class(n.block[a].Key)
		y, r := n.class(n.block[b].Key)
		last := cmp.Compare(n.use[a], n.use[b])
		if x == ClassWaiting {
			last = -cmp.Compare(s, r)
		}
		return cmp.Or(cmp.Compare(x, y), last, -cmp.Compare(n.block[a].Index, n.block[b].Index), cmp.Compare(a, b))
	}), true
}

func (n *naive) pass(key Key, by map[BranchID]bool) {
	for _, k := range n.chain(key) {
		if n.passed[k] == nil {
			n.passed[k] = map[BranchID]bool{}
		}
		maps.Copy(n.passed[k], by)
	}
}

func (n *naive) hold(id BranchID, tail Key) {
	b := n.branches[id]
	if _, ok := n.sealed[tail]; !ok {
		b.pending = tail
		return
	}
	b.pending = Key{}
	old := b.at
	n.pass(tail, map[BranchID]bool{id: true})
	if c := n.chain(tail); old != (Key{}) && old != tail && !slices.Contains(c, old) && len(c) <= n.block[n.sealed[tail]].Index {
		return // there is a gap before it
	}
	b.at = tail
	if old != (Key{}) && old != tail {
		n.left(old, !slices.Contains(n.chain(tail), old))
	}
}

// left notes that a branch does not end with a block any more.
func (n *naive) left(key Key, dead bool) {
	if n.leaf(key) && len(n.ends(key)) == 0 {
		n.dead[key] = dead && len(n.passed[key]) < 2
	}
}

func (n *naive) placed(b Block) {
	by := map[BranchID]bool{}
	for _, c := range n.block {
		if c.Index > 0 && c.Parent == b.Key {
			maps.Copy(by, n.passed[c.Key])
		}
	}
	delete(n.dead, b.Parent)
	n.pass(b.Key, by)
	for id, x := range n.branches {
		if x.pending == b.Key {
			n.hold(id, b.Key)
		}
	}
}

func (n *naive) removed(b Block, leaf bool) {
	dead := leaf && n.dead[b.Key]
	delete(n.passed, b.Key)
	delete(n.dead, b.Key)
	parent := b.Parent
	if _, ok := n.sealed[parent]; !ok || b.Index == 0 {
		parent = Key{}
	}
	for _, x := range n.ends(b.Key) {
		x.at = parent
		dead = false
	}
	if dead && parent != (Key{}) && n.leaf(parent) && len(n.ends(parent)) == 0 && len(n.passed[parent]) == 1 {
		n.dead[parent] = true
	}
}

func drawBranch(t *rapid.T) BranchID { return BranchID(rapid.IntRange(1, 5).Draw(t, "branch")) }

func (m *slotsMachine) know(id BranchID) {
	if m.n.branches[id] == nil {
		m.n.branches[id] = &naiveBranch{class: ClassWaiting}
	}
}

func (m *slotsMachine) hold(t *rapid.T) {
	id := drawBranch(t)
	m.know(id)
	tail := treeKey(rapid.IntRange(1, 16).Draw(t, "tail"))
	m.n.hold(id, tail)
	if got, want := m.s.Hold(id, tail), len(m.n.chain(m.n.branches[id].at)); got < want {
		t.Fatalf("branch %d holds %d blocks, want %d", id, got, want)
	}
}

func (m *slotsMachine) dropBranch(t *rapid.T) {
	id, dead := drawBranch(t), rapid.Bool().Draw(t, "dead")
	m.s.Drop(id, dead)
	b := m.n.branches[id]
	delete(m.n.branches, id)
	if b != nil && b.at != (Key{}) {
		m.n.left(b.at, dead)
	}
}

func (m *slotsMachine) rank(t *rapid.T) {
	id := drawBranch(t)
	m.know(id)
	b := m.n.branches[id]
	b.class = Class(rapid.IntRange(0, 3).Draw(t, "class"))
	b.score = float64(rapid.IntRange(0, 3).Draw(t, "score"))
	m.s.Rank(id, b.class, b.score)
}

func (m *slotsMachine) checkBranches(t *rapid.T) {
	m.checkSurvey(t)
	for key, id := range m.n.sealed {
		var want []BranchID
		for b, x := range m.n.branches {
			if x.at != (Key{}) && slices.Contains(m.n.chain(x.at), key) {
				want = append(want, b)
			}
		}
		slices.Sort(want)
		if got := m.s.Holders(id, nil); !slices.Equal(got, want) {
			t.Fatalf("%s is held by %v, want %v", key.Short(), got, want)
		}
		if c, ok := m.s.ClassOf(id); m.n.leaf(key) {
			if want, _ := m.n.class(key); !ok || c != want {
				t.Fatalf("leaf %s is %s, want %s", key.Short(), c, want)
			}
		}
	}
}

// chainOf seals the blocks of a chain that are not there, named by one byte each.
func chainOf(t *testing.T, s *Slots, keys ...byte) {
	t.Helper()
	parent := Key{0xff}
	for i, k := range keys {
		b := Block{Key: Key{k}, Parent: parent, Index: i}
		parent = b.Key
		if _, ok := s.Find(b.Key); !ok {
			sealAll(t, s, b)
		}
	}
}

// evicted evicts blocks until keep are left and returns their first key bytes.
func evicted(t *testing.T, s *Slots, use useTimes, keep int) (out []byte) {
	t.Helper()
	for s.Counts().Sealed > keep {
		id, ok := s.Victim(use, 1000)
		if !ok {
			t.Fatalf("%d blocks are left and none may go", s.Counts().Sealed)
		}
		b, err := s.Evict(id)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.CheckIntegrity(); err != nil {
			t.Fatal(err)
		}
		out = append(out, b.Key[0])
	}
	return out
}

// TestOrderOfClasses: who goes first, case by case. Chains are written as the first
// bytes of their keys; use grows with each block that is sealed.
func TestOrderOfClasses(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(s *Slots, chain func(keys ...byte))
		keep int
		want string
	}{
		{"without branches, leaf first by last use", func(_ *Slots, chain func(...byte)) {
			chain('a', 'b')
			chain('a', 'c')
		}, 0, "bca"},
		{"a branch just used and replaced by a summary goes before an older one that waits for a tool", func(s *Slots, chain func(...byte)) {
			chain('s', 'a', 'b')
			s.Hold(1, Key{'b'})
			chain('s', 'c', 'd', 'e')
			s.Hold(2, Key{'e'})
			chain('s', 'x')
			s.Hold(2, Key{'x'}) // the summary
		}, 4, "edc"},
		// SGLang's session references let go of a session's last leaf only when the new
		// one follows it, so a context that was compacted stays until the session ends.
		{"a context that was left for a diverged one is not pinned until the session ends", func(s *Slots, chain func(...byte)) {
			chain('s', 'a', 'b')
			s.Hold(1, Key{'b'})
			chain('s', 'x', 'y')
			s.Hold(1, Key{'y'})
			s.Rank(1, ClassRunning, 0)
		}, 3, "ba"},
		{"dead before idle before waiting", func(s *Slots, chain func(...byte)) {
			chain('w')
			s.Hold(1, Key{'w'})
			chain('i')
			chain('d')
			s.Hold(2, Key{'d'})
			s.Drop(2, true)
		}, 0, "diw"},
		{"waiting by score, not by use", func(s *Slots, chain func(...byte)) {
			for i, k := range []byte("abc") {
				chain(k)
				s.Hold(BranchID(i+1), Key{k})
			}
			s.Rank(1, ClassWaiting, 1)
			s.Rank(2, ClassWaiting, 3)
			s.Rank(3, ClassWaiting, 2)
		}, 0, "bca"},
		{"a prefix that two went through is idle when the last one ended", func(s *Slots, chain func(...byte)) {
			chain('s', 'a')
			s.Hold(1, Key{'a'})
			chain('i')
			chain('s', 'b')
			s.Hold(2, Key{'b'})
			s.Drop(1, true)
			s.Drop(2, true)
		}, 0, "abis"},
		{"a prefix of one's own is dead with it", func(s *Slots, chain func(...byte)) {
			chain('i')
			chain('s', 'a')
			s.Hold(1, Key{'a'})
			s.Drop(1, true)
		}, 0, "asi"},
		{"ended for all that one knows is idle", func(s *Slots, chain func(...byte)) {
			chain('a')
			s.Hold(1, Key{'a'})
			chain('b')
			s.Drop(1, false)
		}, 0, "ab"},
		{"what follows the end of a context goes before it", func(s *Slots, chain func(...byte)) {
			chain('s', 'a', 'r', 'q') // r and q are reasoning
			s.Hold(1, Key{'q'})
			s.Hold(1, Key{'a'})
		}, 0, "qras"},
		{"the best of several branches counts", func(s *Slots, chain func(...byte)) {
			chain('s')
			s.Hold(1, Key{'s'})
			s.Hold(2, Key{'s'})
			chain('b')
			s.Hold(3, Key{'b'})
			s.Rank(1, ClassWaiting, 9)
			s.Rank(2, ClassWaiting, 1)
			s.Rank(3, ClassWaiting, 5)
		}, 0, "bs"},
		{"a tail is held once it is sealed", func(s *Slots, chain func(...byte)) {
			chain('a')
			s.Hold(1, Key{'c'})
			chain('b')
			chain('a', 'c')
		}, 0, "bca"},
		{"while a tail is waited for, the old one is held", func(s *Slots, chain func(...byte)) {
			chain('a')
			s.Hold(1, Key{'a'})
			chain('b')
			s.Hold(1, Key{'z'})
		}, 0, "ba"},
		{"what stands behind a gap does not take the place of what stands before it", func(s *Slots, chain func(...byte)) {
			chain('a', 'b')
			s.Hold(1, Key{'b'})
			chain('x')
			chain('a', 'b', 'c', 'd') // what a long turn computes; c goes before the turn ends
			id, _ := s.Find(Key{'c'})
			if _, err := s.Remove(id); err != nil {
				panic(err)
			}
			s.Hold(1, Key{'d'})
		}, 0, "xdba"},
		{"an idle branch goes by last use among what nobody holds", func(s *Slots, chain func(...byte)) {
			chain('a')
			chain('b')
			s.Hold(1, Key{'b'})
			s.Rank(1, ClassIdle, 0)
			chain('c')
		}, 0, "abc"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, use, tick := NewSlots(16), make(useTimes, 16), int64(0)
			chain := func(keys ...byte) {
				tick += 10
				chainOf(t, s, keys...)
				for _, k := range keys {
					id, _ := s.Find(Key{k})
					use[id] = tick
				}
			}
			tc.do(s, chain)
			if got := string(evicted(t, s, use, tc.keep)); got != tc.want {
				t.Errorf("evicted %q, want %q", got, tc.want)
			}
		})
	}
}

// A running branch's blocks are never evicted, however full the table is.
func TestRunningNeverGoes(t *testing.T) {
	s := NewSlots(4)
	chainOf(t, s, 'a', 'b')
	s.Hold(1, Key{'b'})
	s.Rank(1, ClassRunning, 0)
	if id, ok := s.Victim(useTimes(make([]int64, 4)), 10); ok {
		t.Fatalf("slot %d was to be evicted", id)
	}
}

// Blocks that a turn computes are not known to be of a branch until it ends. They
// are not evicted before what waits, for a while.
func TestFreshBlocksOutliveWaitingOnes(t *testing.T) {
	s := NewSlots(4)
	s.Fresh(100)
	chainOf(t, s, 'a')
	s.Hold(1, Key{'a'})
	sealAll(t, s, Block{Key: Key{'n'}, Parent: Key{0xff}})
	use := useTimes(make([]int64, 4))
	n, _ := s.Find(Key{'n'})
	a, _ := s.Find(Key{'a'})
	use[n] = 1000
	if id, _ := s.Victim(use, 1050); id != a {
		t.Errorf("slot %d goes, want the waiting one %d", id, a)
	}
	if id, _ := s.Victim(use, 1100); id != n {
		t.Errorf("slot %d goes, want %d, which nobody asked for in time", id, n)
	}
}

// checkSurvey counts in parts of any size, and compares with a count of its own.
func (m *slotsMachine) checkSurvey(t *rapid.T) {
	for !m.s.Survey(3) {
	}
	for !m.s.Survey(3) { // a whole round without change
	}
	want := [ClassRunning + 1]int{}
	for key := range m.n.sealed {
		want[m.classOf(key)]++
	}
	if got := m.s.Surveyed(); got != want {
		t.Fatalf("%v blocks by class, want %v", got, want)
	}
}

// classOf is the class of any block: the best of the branches that go through it;
// else dead when all that follows it is, and nobody shared it.
func (m *slotsMachine) classOf(key Key) (c Class) {
	c = ClassIdle
	held := false
	for _, b := range m.n.branches {
		if b.at != (Key{}) && slices.Contains(m.n.chain(b.at), key) {
			if !held {
				held, c = true, b.class
			}
			c = max(c, b.class)
		}
	}
	if held {
		return c
	}
	if m.n.leaf(key) {
		if m.n.dead[key] {
			return ClassDead
		}
		return ClassIdle
	}
	for other := range m.n.sealed {
		if m.n.leaf(other) && m.n.dead[other] && slices.Contains(m.n.chain(other), key) && len(m.n.passed[key]) < 2 {
			return ClassDead
		}
	}
	return ClassIdle
}
