package admit

import (
	"fmt"
	"testing"

	"github.com/weir-dev/weir/schemas"
)

// TestHeadStart: a turn of priority p passes those that came up to p seconds before it.
func TestHeadStart(t *testing.T) {
	f := NewFair(FairConfig{})
	for _, c := range []struct {
		first, second int // when they came, in seconds
		priority      int // of the second
		passes        bool
	}{{0, 1, 0, false}, {0, 4, 5, true}, {0, 6, 5, false}, {1, 0, -2, false}} {
		a := f.At(0, schemas.Time(c.first)*second, Key{"t", "a"}, 0)
		b := f.At(0, schemas.Time(c.second)*second, Key{"t", "b"}, c.priority)
		if (b < a) != c.passes {
			t.Errorf("%+v: keys %d, %d", c, a, b)
		}
	}
}

// TestLeastServed: with two sessions that always have a turn waiting, the one that costs
// four times as much per turn gets turns less often; a new session goes first at once; and
// none waits longer than its bound beyond those that came after it.
func TestLeastServed(t *testing.T) {
	f := NewFair(FairConfig{})
	now := 1000 * second
	type waiting struct {
		k         Key
		at, since schemas.Time
	}
	cost := map[string]float64{"dear": 2, "cheap": 0.5, "late": 0.5}
	var queue []waiting
	push := func(s string) { queue = append(queue, waiting{Key{"t", s}, f.At(now, now, Key{"t", s}, 0), now}) }
	served, longest := map[string]float64{}, schemas.Time(0)
	for range 4 {
		push("dear")
		push("cheap")
	}
	for i := range 2000 {
		if i == 1000 {
			push("late")
		}
		first := 0
		for j := range queue {
			if queue[j].at < queue[first].at {
				first = j
			}
		}
		w := queue[first]
		queue = append(queue[:first], queue[first+1:]...)
		if w.k.Session == "late" && served["late"] == 0 && i > 1008 {
			t.Errorf("the new session waited for %d turns of those that are served all the time", i-1000)
		}
		longest = max(longest, now-w.since)
		c := cost[w.k.Session]
		now += schemas.Time(c * float64(second))
		f.Charge(now, w.k, c)
		served[w.k.Session] += c
		push(w.k.Session)
	}
	if served["dear"] > 2.2*served["cheap"] {
		t.Errorf("served %v: first come first served would give 4:1, at most 2.2:1 is wanted", served)
	}
	if served["late"] == 0 {
		t.Error("the new session was never served")
	}
	if bound := 5*second + 20*second; longest > bound {
		t.Errorf("a turn waited %d s", longest/second)
	}
}

// TestTenants: a tenant with one turn is not behind the 500 of another that came in the
// 20 seconds before it, once that one was served more.
func TestTenants(t *testing.T) {
	f := NewFair(FairConfig{})
	now := 1000 * second
	f.Charge(now, Key{"small", "s"}, 1)
	for i := range 50 {
		f.Charge(now, Key{"big", fmt.Sprint(i)}, 2)
	}
	crowd := f.At(now, now, Key{"big", "next"}, 0)
	one := f.At(now+20*second, now+20*second, Key{"small", "s"}, 0)
	if one >= crowd {
		t.Errorf("the small tenant's turn is %d s behind", (one-crowd)/second)
	}
	if late := f.At(now, now, Key{"big", "next"}, 0) - now; late > 30*second {
		t.Errorf("the big tenant is put back by %d s, at most 30", late/second)
	}
}

// TestBound: names are bounded, and those that were served most are kept.
func TestBound(t *testing.T) {
	f := NewFair(FairConfig{MaxNames: 100})
	f.Charge(second, Key{"t", "most"}, 1000)
	for i := range 10_000 {
		f.Charge(second, Key{fmt.Sprint(i), fmt.Sprint(i)}, 1)
	}
	if len(f.sessions) > 100 || len(f.tenants) > 100 || f.sessions[Key{"t", "most"}].work == 0 {
		t.Errorf("%d sessions, %d tenants", len(f.sessions), len(f.tenants))
	}
}
