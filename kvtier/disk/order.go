package disk

import (
	"maps"
	"slices"

	"github.com/weir-dev/weir/kvtier"
)

// What lies on disk goes in the order of what lies in memory: the store hears of the
// same branches (it is a retain.Follower). None of this waits for the disk.
//
// A branch whose blocks never came to the disk costs an entry in each table, some 100
// bytes. There are as many as who tells of them remembers.

// branch is where one branch stands.
type branch struct {
	tail  kvtier.Key // zero until Hold
	class kvtier.Class
	score float64
}

// Hold says that the context of branch b ends with block tail, as kvtier.Slots does.
func (s *Store) Hold(b kvtier.BranchID, tail kvtier.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x, ok := s.branches[b]
	if !ok {
		x.class = kvtier.ClassWaiting
	}
	x.tail = tail
	s.branches[b] = x
	for _, p := range s.pools {
		p.slots.Hold(b, tail)
	}
}

// Drop says that branch b is no more: what only it held is dead, or idle.
func (s *Store) Drop(b kvtier.BranchID, dead bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.branches, b)
	for _, p := range s.pools {
		p.slots.Drop(b, dead)
	}
}

// Rank says how much the blocks of a branch that Hold has named are needed.
func (s *Store) Rank(b kvtier.BranchID, c kvtier.Class, score float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x, ok := s.branches[b]
	if !ok || x.class == c && x.score == score {
		return
	}
	x.class, x.score = c, score
	s.branches[b] = x
	for _, p := range s.pools {
		p.slots.Rank(b, c, score)
	}
}

// enlist tells a new pool of the branches. mu is held.
func (s *Store) enlist(p *pool) {
	for _, b := range slices.Sorted(maps.Keys(s.branches)) {
		x := s.branches[b]
		p.slots.Hold(b, x.tail)
		p.slots.Rank(b, x.class, x.score)
	}
}
