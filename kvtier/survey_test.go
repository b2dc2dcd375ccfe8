package kvtier

import "testing"

// TestSurveyOfADeadLeafBehindAGap: a branch that cannot take over a dead block, because
// one before it is missing, leaves it dead, for the count as for the order.
func TestSurveyOfADeadLeafBehindAGap(t *testing.T) {
	s := NewSlots(4)
	sealAll(t, s, Block{Key: Key{'a'}, Parent: Key{1}, Index: 2}, Block{Key: Key{'b'}, Parent: Key{2}, Index: 2})
	s.Hold(1, Key{'a'})
	s.Drop(1, true)
	s.Hold(2, Key{'b'})
	s.Hold(2, Key{'a'})
	for !s.Survey(1) {
	}
	if got := s.Surveyed(); got != [ClassRunning + 1]int{ClassDead: 1, ClassWaiting: 1} {
		t.Errorf("blocks by class: %v", got)
	}
	a, _ := s.Find(Key{'a'})
	if c, ok := s.ClassOf(a); !ok || c != ClassDead {
		t.Errorf("the block that is left behind the gap is %s", c)
	}
}
