package retain

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

const (
	worldLive     = 40
	worldCapacity = 1600 // blocks; about two thirds of what the live branches have
	worldTurns    = 4000
	worldLearn    = 1000 // turns after which the credit has learned
)

// liar says the truth, but with probability p inverts it, drops it, or says it
// when it is no use.
func liar(how string, p float64, seed uint64) func(now float64, b *actor) claim {
	rng := rand.New(rand.NewPCG(seed, 5))
	return func(now float64, b *actor) claim {
		c := claim{said: true, user: b.user, over: !b.lasts}
		if b.lasts {
			c.hint = b.next
		}
		if rng.Float64() >= p {
			return c
		}
		switch how {
		case "inverted": // soon is late, going on is over
			c.user, c.over = !c.user, !c.over
			c.hint = now + 400/(1+b.next-now)
		case "dropped":
			c = claim{}
		case "late": // what was true of the wait before
			c = b.claim
		}
		return c
	}
}

// TestBadHints: hints that are inverted, dropped or late lose at most one point of
// the hit rate against LRU once the credit has learned.
func TestBadHints(t *testing.T) {
	for seed := uint64(1); seed <= 2; seed++ {
		l := lruWorld(worldCapacity)
		l.run(seed, worldLive, worldTurns)
		lru := l.rate(worldLearn)
		honest := 0.0
		for _, how := range []string{"honest", "inverted", "dropped", "late"} {
			for _, p := range []float64{0.1, 0.5, 1} {
				if how == "honest" && p < 1 {
					continue
				}
				w, f := weirWorld(worldCapacity, liar(how, p, seed))
				w.run(seed, worldLive, worldTurns)
				got := w.rate(worldLearn)
				t.Logf("seed %d: %-8s %.1f: %.3f, LRU %.3f; first doubt at turn %d; turns at lru, inferred, hints %v",
					seed, how, p, got, lru, f.learnt, f.levels)
				if got < lru-0.01 {
					t.Errorf("seed %d: %s with %.1f: %.3f, LRU %.3f", seed, how, p, got, lru)
				}
				if how == "honest" {
					honest = got
				}
			}
		}
		if honest < lru+0.05 {
			t.Errorf("seed %d: honest hints %.3f, LRU %.3f", seed, honest, lru)
		}
	}
}

// TestWithoutCredit: the test above would fail without the credit.
func TestWithoutCredit(t *testing.T) {
	l := lruWorld(worldCapacity)
	l.run(1, worldLive, worldTurns)
	w, f := weirWorld(worldCapacity, liar("inverted", 1, 1))
	order := w.order
	w.order = func(now float64, b *actor) (Class, float64) {
		f.c = NewCredit(0)
		return order(now, b)
	}
	w.run(1, worldLive, worldTurns)
	if got, lru := w.rate(worldLearn), l.rate(worldLearn); got > lru-0.1 {
		t.Errorf("believed liars: %.3f, LRU %.3f", got, lru)
	}
}

func TestRunsAreEqual(t *testing.T) {
	var first []float64
	for range 2 {
		w, _ := weirWorld(worldCapacity, liar("inverted", 0.5, 7))
		w.run(7, worldLive, 1500)
		if first == nil {
			first = w.hits
			continue
		}
		if fmt.Sprint(first) != fmt.Sprint(w.hits) {
			t.Error("two runs differ")
		}
	}
}

// loses tells c of n resumes of a tenant, each with 100 blocks wanted.
func loses(c *Credit, now *int64, tenant string, n, have, lru int) (alarm int) {
	for i := range n {
		*now += sec
		before := c.Level(*now, tenant)
		c.Resumed(*now, tenant, have, 100, lru)
		if alarm == 0 && c.Level(*now, tenant) < before {
			alarm = i + 1
		}
	}
	return alarm
}

func TestAlarm(t *testing.T) {
	for _, c := range []struct {
		what       string
		have, lru  int
		from, most int // resumes until the alarm; 0 for none in 500
	}{
		{"all lost", 0, 100, 16, 20},
		{"a quarter lost", 75, 100, 16, 20},
		{"half a point lost", 995, 1000, 0, 0},
		{"equal", 50, 50, 0, 0},
		{"better", 100, 0, 0, 0},
		{"nothing there in both", 0, 0, 0, 0},
	} {
		cr := NewCredit(0)
		now := int64(0)
		got := 0
		for i := range 500 {
			now += sec
			cr.Resumed(now, "t", c.have, max(100, c.lru), c.lru)
			if cr.Level(now, "t") < LevelHints {
				got = i + 1
				break
			}
		}
		if got < c.from || got > c.most {
			t.Errorf("%s: alarm after %d resumes, want %d to %d", c.what, got, c.from, c.most)
		}
	}
}

// A long good past is not banked, and another tenant keeps its trust.
func TestEachAnswersForItself(t *testing.T) {
	c := NewCredit(0)
	now := int64(0)
	loses(c, &now, "t", 5000, 100, 50)
	if n := loses(c, &now, "t", 40, 0, 100); n == 0 || n > 30 {
		t.Errorf("after a good past: alarm after %d resumes", n)
	}
	if l := c.Level(now, "other"); l != LevelHints {
		t.Errorf("the other tenant is at %v", l)
	}
}

// Doubts double while hints stay bad, and start anew after they proved good.
func TestDoubts(t *testing.T) {
	c := NewCredit(0)
	now := int64(0)
	doubt := func() int64 {
		loses(c, &now, "t", 30, 0, 100)
		from := now
		for c.Level(now, "t") < LevelHints {
			now += sec
		}
		return (now - from) / sec
	}
	last := int64(0)
	for i := range 10 {
		d := doubt()
		if want := min(60<<i, 3600); d < int64(want)-30 || d > int64(want) {
			t.Fatalf("doubt %d lasts %d s, want %d", i, d, want)
		}
		last = d
	}
	loses(c, &now, "t", proof+1, 100, 50)
	if d := doubt(); d >= last/10 {
		t.Errorf("after %d good resumes a doubt lasts %d s", proof, d)
	}
}

// When what is inferred loses too, only LRU is left, for a while.
func TestInferenceIsDoubtedToo(t *testing.T) {
	c := NewCredit(0)
	now := int64(0)
	seen := map[Level]bool{}
	for range 2000 {
		loses(c, &now, "t", 1, 0, 100)
		seen[c.Level(now, "t")] = true
	}
	if !seen[LevelLRU] || !seen[LevelInfer] {
		t.Errorf("levels seen: %v", seen)
	}
	if l := c.Level(now, "honest"); l != LevelHints {
		t.Errorf("a tenant whose hints are good is at %v", l)
	}
	if l := c.Level(now+2*lastDoubt, "t"); l != LevelHints {
		t.Errorf("after the longest doubt the tenant is at %v", l)
	}
}

func TestCreditBounds(t *testing.T) {
	c := NewCredit(10)
	for i := range 1000 {
		c.Resumed(int64(i), fmt.Sprint(i), -5, 10, 500)
		c.Resumed(int64(i), fmt.Sprint(i), 5, 0, 3)
	}
	if n := len(c.tenants.m); n > 10 {
		t.Errorf("%d tenants", n)
	}
}

// TestCreditLies: a tenant that says what turns out not to be so is inferred, for as long
// as that goes on; one that is wrong now and then is not.
func TestCreditLies(t *testing.T) {
	c := NewCredit(0)
	for i := range 100 {
		c.Said("now and then", i%10 == 0)
		if l := c.Level(0, "now and then"); l != LevelHints {
			t.Fatalf("%v after %d words", l, i+1)
		}
	}
	for range 3 {
		c.Said("liar", true)
	}
	if l := c.Level(3600e9, "liar"); l != LevelInfer {
		t.Errorf("a liar is at %v an hour later", l)
	}
	if l := c.Level(0, "honest"); l != LevelHints {
		t.Errorf("another tenant is at %v", l)
	}
	for range 20 {
		c.Said("liar", false)
	}
	if l := c.Level(0, "liar"); l != LevelHints {
		t.Errorf("%v after 20 true words", l)
	}
}
