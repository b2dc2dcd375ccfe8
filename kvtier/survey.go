package kvtier

// survey counts blocks by class, a part at a time: the blocks of a branch are not
// listed anywhere and must be walked.
type survey struct {
	round  uint16 // blocks that were counted in this round carry it; never 0
	holder int    // next branch to look at
	leaf   int    // next leaf to look at
	counts [ClassRunning + 1]int
	done   [ClassRunning + 1]int // of the last whole round
}

// seen packs a round and a class into a slot's mark.
func seen(round uint16, c Class) uint16 { return round<<2 | uint16(c) }

const surveyRounds = 1 << 14

// Survey goes on counting for about that many blocks: first those of branches, then
// dead ones. It reports whether a round ended; the next call begins another one.
func (s *Slots) Survey(steps int) (done bool) {
	v := &s.survey
	if v.round == 0 {
		v.round = 1
	}
	for ; v.holder < len(s.holders); v.holder++ {
		if steps <= 0 {
			return false
		}
		steps--
		if h := &s.holders[v.holder]; h.group != none {
			steps -= s.surveyUp(s.groups[h.group].slot, h.class, true)
		}
	}
	for ; v.leaf < len(s.leaves.ids); v.leaf++ {
		if steps <= 0 {
			return false
		}
		steps--
		if id := s.leaves.ids[v.leaf]; s.meta[id].flags&flagDead != 0 && s.meta[id].group == none {
			steps -= s.surveyUp(int32(id), ClassDead, false)
		}
	}
	v.done = v.counts
	v.done[ClassIdle] = max(0, s.sealed-v.done[ClassDead]-v.done[ClassWaiting]-v.done[ClassRunning])
	*v = survey{round: v.round%(surveyRounds-1) + 1, done: v.done}
	return true
}

// surveyUp counts the blocks of a chain upwards, to the first one that counts as
// that class or a better one already. Of what no branch holds, blocks that others
// went through are idle, but for a leaf: whether that is dead is said of itself.
func (s *Slots) surveyUp(leaf int32, c Class, held bool) (steps int) {
	v := &s.survey
	for x := leaf; x != none; x = s.parentSlot(x) {
		steps++
		m := &s.meta[x]
		if m.seen>>2 == v.round {
			old := Class(m.seen & 3)
			if old >= c {
				return steps
			}
			v.counts[old]--
		} else if !held && x != leaf && m.flags&flagShared != 0 {
			return steps
		}
		m.seen = seen(v.round, c)
		v.counts[c]++
	}
	return steps
}

// Surveyed returns how many blocks there were of each class when Survey last ended a
// round. What no branch holds and is not dead is idle.
func (s *Slots) Surveyed() [ClassRunning + 1]int {
	done := s.survey.done
	done[ClassIdle] = max(0, s.sealed-done[ClassDead]-done[ClassWaiting]-done[ClassRunning])
	return done
}
