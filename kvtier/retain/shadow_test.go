package retain

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// plainLRU is LRU over single blocks: the last ones of the least recently used
// context go first.
type plainLRU struct {
	capacity int
	blocks   []lruBlock // oldest use first, deeper first
}

type lruBlock struct {
	branch string
	index  int
}

func (l *plainLRU) touch(branch string, own int) {
	l.blocks = slices.DeleteFunc(l.blocks, func(b lruBlock) bool { return b.branch == branch && b.index < own })
	for i := own - 1; i >= 0; i-- {
		l.blocks = append(l.blocks, lruBlock{branch, i})
	}
	if n := len(l.blocks) - l.capacity; n > 0 {
		l.blocks = l.blocks[n:]
	}
	// What is past the end of the context is another context's from here on.
	for i := range l.blocks {
		if b := &l.blocks[i]; b.branch == branch && b.index >= own {
			b.branch = "replaced"
		}
	}
}

func (l *plainLRU) resident(branch string) (n int) {
	for _, b := range l.blocks {
		if b.branch == branch {
			n++
		}
	}
	return n
}

func TestShadowIsLRU(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.IntRange(0, 30).Draw(t, "capacity")
		s, l := NewShadow(capacity, 0), &plainLRU{capacity: capacity}
		for step := range rapid.IntRange(1, 60).Draw(t, "steps") {
			b := fmt.Sprint("b", rapid.IntRange(0, 5).Draw(t, "branch"))
			own := rapid.IntRange(0, 12).Draw(t, "own")
			s.Touch(b, own+3, own)
			l.touch(b, own)
			for i := range 6 {
				b := fmt.Sprint("b", i)
				if got, want := s.Resident(b), l.resident(b); got != want {
					t.Fatalf("step %d: %s has %d blocks, LRU %d", step, b, got, want)
				}
			}
			if s.held > capacity {
				t.Fatalf("%d blocks in %d", s.held, capacity)
			}
		}
	})
}

func TestShadowBounds(t *testing.T) {
	s := NewShadow(1000, 10)
	for i := range 100 {
		s.Touch(fmt.Sprint(i), 5, 5)
	}
	if len(s.m) != 10 || s.held != 50 || s.Resident("99") != 5 || s.Resident("80") != 0 {
		t.Errorf("%d branches, %d blocks, %d and %d", len(s.m), s.held, s.Resident("99"), s.Resident("80"))
	}
	s.Resize(12)
	if s.held != 12 || s.Resident("99") != 5 || s.Resident("97") != 2 || s.Resident("96") != 0 {
		t.Errorf("after resize: %d blocks, %d, %d, %d", s.held, s.Resident("99"), s.Resident("97"), s.Resident("96"))
	}
	s.Touch("-1", -3, -5)
	if s.Resident("-1") != 0 || s.held != 12 {
		t.Errorf("negative sizes: %d, %d", s.Resident("-1"), s.held)
	}
}
