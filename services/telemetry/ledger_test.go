package telemetry

import (
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestLedgerBounds(t *testing.T) {
	var dropped []int
	l := newLedger(func(v int) { dropped = append(dropped, v) })
	now := time.Unix(1000, 0)
	for i := range ledgerMax + 3 {
		l.add(strconv.Itoa(i), i, now)
	}
	if l.len() != ledgerMax || len(dropped) != 3 || dropped[0] != 0 || dropped[2] != 2 {
		t.Errorf("%d entries, dropped %v", l.len(), dropped)
	}
	dropped = nil
	l.add("late", -1, now.Add(ledgerAge))
	if l.len() != 1 || len(dropped) != ledgerMax {
		t.Errorf("%d entries are left, %d were dropped", l.len(), len(dropped))
	}
	l.add("late", -2, now.Add(ledgerAge))
	if v, ok := l.get("late"); !ok || v != -2 || dropped[len(dropped)-1] != -1 {
		t.Errorf("got %d, %v; last drop %d", v, ok, dropped[len(dropped)-1])
	}
}

// TestLedgerAgainstMap: what was added is taken or dropped exactly once.
func TestLedgerAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := map[string]int{}
		out := map[int]int{}
		l := newLedger(func(v int) { out[v]++ })
		n := 0
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			key := strconv.Itoa(rapid.IntRange(0, 5).Draw(t, "key"))
			if rapid.Bool().Draw(t, "add") {
				n++
				l.add(key, n, time.Unix(0, 0))
				want[key] = n
				continue
			}
			v, ok := l.take(key)
			w, has := want[key]
			if ok != has || v != w {
				t.Fatalf("took %d, %v; want %d, %v", v, ok, w, has)
			}
			if ok {
				out[v]++
			}
			delete(want, key)
		}
		if l.len() != len(want) {
			t.Fatalf("%d entries, want %d", l.len(), len(want))
		}
		for v, times := range out {
			if times != 1 {
				t.Fatalf("value %d left %d times", v, times)
			}
		}
		if len(out)+len(want) != n {
			t.Fatalf("%d came, %d left, %d are there", n, len(out), len(want))
		}
	})
}

func TestLedgerOrderIsBounded(t *testing.T) {
	l := newLedger(func(int) {})
	l.add("stays", 0, time.Unix(0, 0))
	for i := range 10 * ledgerMax {
		l.add("x", i, time.Unix(0, 0))
		l.take("x")
	}
	if len(l.order) > 2*ledgerMax+1 {
		t.Errorf("%d entries are kept for %d values", len(l.order), l.len())
	}
}
