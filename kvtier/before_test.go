package kvtier

import "testing"

// TestBefore: what is not there, dead, idle, waiting long, waiting shortly, running.
func TestBefore(t *testing.T) {
	s := NewSlots(16)
	place := func(n byte, use int64) SlotID {
		t.Helper()
		r := s.Reserve(1, 1, nil)[0]
		id, _, err := s.Seal(1, r, Block{Key: Key{n}, Parent: Key{255}}, use)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	order := []SlotID{15}
	dead, idle, later, soon, running, recent := place(1, 9), place(2, 1), place(3, 1), place(4, 1), place(5, 1), place(6, 5)
	for i, id := range []SlotID{dead, later, soon, running} {
		b, _ := s.Get(id)
		s.Hold(BranchID(i+1), b.Key)
	}
	s.Rank(1, ClassDead, 0)
	s.Rank(2, ClassWaiting, 7)
	s.Rank(3, ClassWaiting, 2)
	s.Rank(4, ClassRunning, 0)
	order = append(order, dead, idle, recent, later, soon, running)
	for i, a := range order {
		for j, b := range order {
			if got := s.Before(a, b); got != (i < j) {
				t.Errorf("block %d before block %d of the order: %v", i, j, got)
			}
		}
	}
}
