package agree

import (
	"errors"
	"reflect"
	"testing"

	"github.com/weir-dev/weir/e2e/scenarios"
)

// The agents of a simulated run are those of its file in small, and one seed gives one
// run.
func TestVirtual(t *testing.T) {
	set, err := scenarios.Find(".")
	if errors.Is(err, scenarios.ErrAbsent) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	size := Size{Share: 0.004, Slots: 0.02, Seed: 3}
	run := func(p Policy, speed float64) (*Played, []*session) {
		out, agents, err := virtual(t.Context(), set, set.Models(scenarios.Shift)[0], size, speed, 0, p)
		if err != nil {
			t.Fatal(err)
		}
		return out, agents
	}
	one, agents := run(Weir, 4)
	two, _ := run(Weir, 4)
	if !reflect.DeepEqual(one, two) {
		t.Errorf("one seed gave\n%+v\nand\n%+v", one, two)
	}
	math, turns := 0, 0
	for _, a := range agents {
		if a.class == "math" {
			math++
		}
		turns += len(a.turns)
		for i, u := range a.turns {
			if u.most < 1 || u.fill < 1 || u.fill > u.prompt || i > 0 && u.wait <= 0 {
				t.Fatalf("%s turn %d is %+v", a.id, i, u)
			}
		}
	}
	if math != 32 || len(agents) != 42 || turns != one.Turns {
		t.Errorf("%d agents, %d of them math, %d turns of %d", len(agents), math, turns, one.Turns)
	}
	if s, _ := run(Static, 4); len(s.Changes) != 0 || s.Turns != one.Turns {
		t.Errorf("a static split changed %d roles and ended %d turns of %d", len(s.Changes), s.Turns, one.Turns)
	}
	half, rest, err := virtual(t.Context(), set, set.Models(scenarios.Shift)[0], size, 4, one.MakespanS/2, Weir)
	if err != nil {
		t.Fatal(err)
	}
	if half.Turns >= one.Turns || half.Turns == 0 || !reflect.DeepEqual(rest, agents) {
		t.Errorf("%d of %d turns in half of the time, %d agents of %d", half.Turns, one.Turns, len(rest), len(agents))
	}
	if slow, _ := run(Static, 1); slow.MakespanS < 3*one.MakespanS {
		t.Errorf("at speed 1 it took %.0f s, at speed 4 %.0f s", slow.MakespanS, one.MakespanS)
	}
}

// Sessions begin in order, never more than there are slots, and those of the second
// phase take the slots that the first one gives up.
func TestGate(t *testing.T) {
	var all []*session
	for i := range 6 {
		all = append(all, &session{phase: i / 4, turns: make([]turn, 1)})
	}
	g := newGate(all, []int{3, 2})
	var active []*session
	begin := func() (phases []int) {
		for s := g.next(); s != nil; s = g.next() {
			active = append(active, s)
			phases = append(phases, s.phase)
		}
		return phases
	}
	end := func() { g.gone(active[0]); active = active[1:] }
	for i, want := range [][]int{{0, 0, 0}, {0}, {1}, {1}, nil} {
		if i > 0 {
			end()
		}
		if got := begin(); !reflect.DeepEqual(got, want) {
			t.Errorf("step %d: sessions of phases %v begin, want %v", i, got, want)
		}
	}
}

func TestAllowed(t *testing.T) {
	text := "--speed 8 is too much here: a publish takes 1ms; it must stay below 2 %. At most --speed 2.31, or 1"
	if got := allowed(text); got != 2.31 {
		t.Errorf("%g, want 2.31", got)
	}
	if got := allowed("no such model"); got != 0 {
		t.Errorf("%g, want 0", got)
	}
}
