package workload

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/weir-dev/weir/schemas"
	"pgregory.net/rapid"
)

// talkative is n calls that each say every kind of event.
func talkative(n int) *Schedule {
	s := &Schedule{Name: "talk", Sessions: []Session{{"s", "t"}}}
	for i := range n {
		c := Call{At: int64(i) * 1e9, In: 10}
		for k, kind := range kinds {
			c.Say = append(c.Say, Say{Kind: string(kind), After: int64(k), Line: int32(k), Tool: "shell", Expect: 2e9})
		}
		s.Calls = append(s.Calls, c)
	}
	return s
}

func TestDistort(t *testing.T) {
	s := talkative(2000)
	all := len(s.Calls) * len(kinds)
	for _, f := range Faults() {
		for _, p := range []float64{0, 0.1, 0.5, 1} {
			got, err := Distort(s, f, p, 3)
			if err != nil {
				t.Fatal(err)
			}
			if err := got.bounded(); err != nil {
				t.Fatalf("%s %g: %v", f, p, err)
			}
			same, total := 0, 0
			for i := range got.Calls {
				total += len(got.Calls[i].Say)
				for _, y := range got.Calls[i].Say {
					for _, x := range s.Calls[i].Say {
						if x == y {
							same++
						}
					}
				}
			}
			want := float64(all) * (1 - p)
			if f == FaultInverted {
				want += float64(all) * p / float64(len(kinds)) // forks have no opposite
			}
			if math.Abs(float64(same)-want) > 0.03*float64(all) {
				t.Errorf("%s %g: %d of %d events are as they were, want %.0f", f, p, same, all, want)
			}
			if f != FaultDropped && total != all {
				t.Errorf("%s %g: %d events of %d are left", f, p, total, all)
			}
		}
	}
	if d := cmp.Diff(talkative(2000), s); d != "" {
		t.Error("the schedule was changed in place")
	}
}

func TestInvertSaysTheOpposite(t *testing.T) {
	s := talkative(400)
	got, err := Distort(s, FaultInverted, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[schemas.EventKind]map[string]int{}
	for i := range got.Calls {
		for k, y := range got.Calls[i].Say {
			kind := schemas.EventKind(s.Calls[i].Say[k].Kind)
			if seen[kind] == nil {
				seen[kind] = map[string]int{}
			}
			if seen[kind][y.Kind]++; kind == schemas.EventToolWait && y.Kind == string(kind) && y.Expect != 50e9 {
				t.Errorf("2 s are inverted to %d ns", y.Expect)
			}
		}
	}
	for kind, want := range map[schemas.EventKind][]schemas.EventKind{
		schemas.EventToolWait:   {schemas.EventUserWait, schemas.EventBranchEnd, schemas.EventToolWait},
		schemas.EventUserWait:   {schemas.EventToolWait, schemas.EventSessionEnd},
		schemas.EventBranchEnd:  {schemas.EventToolWait},
		schemas.EventSessionEnd: {schemas.EventToolWait},
		schemas.EventCompacted:  {schemas.EventToolWait},
	} {
		if len(seen[kind]) != len(want) {
			t.Errorf("%s became %v", kind, seen[kind])
		}
		for _, w := range want {
			if seen[kind][string(w)] < 50 {
				t.Errorf("%s became %s %d times", kind, w, seen[kind][string(w)])
			}
		}
	}
}

func TestDistortRefuses(t *testing.T) {
	for _, p := range []float64{-0.1, 1.1, math.NaN()} {
		if _, err := Distort(talkative(1), FaultLate, p, 1); err == nil {
			t.Errorf("probability %g was taken", p)
		}
	}
	if _, err := Distort(talkative(1), "early", 0, 1); err == nil {
		t.Error("an unknown fault was taken")
	}
}

func TestDistortIsSeeded(t *testing.T) {
	s := talkative(50)
	rapid.Check(t, func(t *rapid.T) {
		f, p := rapid.SampledFrom(Faults()).Draw(t, "fault"), rapid.Float64Range(0, 1).Draw(t, "p")
		seed := rapid.Uint64().Draw(t, "seed")
		a, err := Distort(s, f, p, seed)
		if err != nil {
			t.Fatal(err)
		}
		b, err := Distort(s, f, p, seed)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(a, b); d != "" {
			t.Error(d)
		}
	})
}

func TestMute(t *testing.T) {
	s := talkative(3)
	got := Mute(s, func(y Say) (Say, bool) {
		y.Expect = 0
		return y, y.Kind != string(schemas.EventCompacted)
	})
	for i := range got.Calls {
		if len(got.Calls[i].Say) != len(kinds)-1 {
			t.Errorf("call %d says %d events", i, len(got.Calls[i].Say))
		}
		for _, y := range got.Calls[i].Say {
			if y.Kind == string(schemas.EventCompacted) || y.Expect != 0 {
				t.Errorf("call %d still says %+v", i, y)
			}
		}
	}
	if d := cmp.Diff(talkative(3), s); d != "" {
		t.Error("the schedule was changed in place")
	}
}
