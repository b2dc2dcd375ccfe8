package retain

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

const sec = int64(1e9)

// line drives one branch through turns and waits.
type line struct {
	e   *Estimator
	now int64
	w   Wait
}

func (l *line) turn(run, wait float64, tool string, user bool, hint float64) {
	l.w.Running, l.w.Began, l.w.Hint, l.w.Tool, l.w.User = true, l.now, 0, "", false
	l.e.Began(l.now, &l.w)
	l.now += int64(run * 1e9)
	l.w.Running, l.w.Began, l.w.Tool, l.w.User = false, l.now, tool, user
	if hint > 0 {
		l.w.Hint = l.now + int64(hint*1e9)
	}
	l.e.Began(l.now, &l.w)
	l.now += int64(wait * 1e9)
	l.e.Ended(l.now, &l.w)
}

// waiting returns a new branch that has waited for age seconds.
func waiting(tenant, session, tool string, user bool, age float64) (now int64, w *Wait) {
	now = 1000000 * sec
	return now, &Wait{Tenant: tenant, Session: session, Branch: "new", Tool: tool, User: user, Began: now - int64(age*1e9)}
}

func score(e *Estimator, now int64, w *Wait) float64 {
	c, s := e.Score(now, w)
	if c == ClassIdle {
		return -1
	}
	return s
}

func TestBeforeAnythingWasSeen(t *testing.T) {
	e := NewEstimator(Options{})
	now, tool := waiting("a", "s", "", false, 5)
	_, user := waiting("a", "s", "", true, 5)
	if a, b := score(e, now, tool), score(e, now, user); a <= b || b <= 0 {
		t.Errorf("tool %g, user %g", a, b)
	}
	if ns, chance := e.Remaining(now, tool); ns < 3*sec || ns > 40*sec || chance < 0.9 {
		t.Errorf("a tool is expected in %d ns with chance %g", ns, chance)
	}
}

func TestToolsAreLearned(t *testing.T) {
	e := NewEstimator(Options{})
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range 100 { // each session once: what differs is the tool
		l := line{e: e, now: sec, w: Wait{Tenant: "a", Session: fmt.Sprint(i), Branch: "m"}}
		l.turn(4, 0.02+0.1*rng.Float64(), "read", false, 0)
		l = line{e: e, now: sec, w: Wait{Tenant: "a", Session: fmt.Sprint("x", i), Branch: "m"}}
		l.turn(4, 100+200*rng.Float64(), "test", false, 0)
	}
	now, read := waiting("a", "n", "read", false, 0.1)
	_, test := waiting("a", "n", "test", false, 0.1)
	if a, b := score(e, now, read), score(e, now, test); a < 10*b {
		t.Errorf("read %g, test %g", a, b)
	}
	// A reader that has not answered for a minute is stuck; a test is about to end.
	now, read = waiting("a", "n", "read", false, 60)
	_, test = waiting("a", "n", "test", false, 60)
	if a, b := score(e, now, read), score(e, now, test); 10*a > b {
		t.Errorf("a stuck reader %g, a test %g", a, b)
	}
	// Another tenant's tools are its own, the kind's distribution is shared.
	now, read = waiting("b", "n", "read", false, 0.1)
	_, test = waiting("b", "n", "test", false, 0.1)
	if a, b := score(e, now, read), score(e, now, test); a != b {
		t.Errorf("tools of a tenant that used none: %g, %g", a, b)
	}
}

func TestSessionsHaveAPace(t *testing.T) {
	e := NewEstimator(Options{})
	for i, wait := range []float64{3, 40} {
		l := line{e: e, now: sec, w: Wait{Tenant: "a", Session: fmt.Sprint(i), Branch: "m"}}
		for range 10 {
			l.turn(4, wait, "", false, 0)
		}
	}
	now, fast := waiting("a", "0", "", false, 1)
	_, slow := waiting("a", "1", "", false, 1)
	if a, b := score(e, now, fast), score(e, now, slow); a < 3*b {
		t.Errorf("fast %g, slow %g", a, b)
	}
	fast.Running, slow.Running = true, true
	if a, b := score(e, now, fast), score(e, now, slow); a < 1.5*b {
		t.Errorf("running: fast %g, slow %g", a, b)
	}
	// A fixed wait of 40 s comes closer while it lasts.
	now, early := waiting("a", "1", "", false, 5)
	_, late := waiting("a", "1", "", false, 35)
	if a, b := score(e, now, early), score(e, now, late); a >= b {
		t.Errorf("after 5 s %g, after 35 s %g", a, b)
	}
}

// An announcement is worth what it turned out to be worth, also when it is the
// opposite of the truth.
func TestHintsAreCalibrated(t *testing.T) {
	for _, inverted := range []bool{false, true} {
		e := NewEstimator(Options{})
		rng := rand.New(rand.NewPCG(2, 2))
		for i := range 300 {
			wait, hint := 2.0, 2.0
			if i%2 == 0 {
				wait, hint = 120, 120
			}
			if inverted {
				hint = 122 - wait
			}
			l := line{e: e, now: sec, w: Wait{Tenant: "a", Session: fmt.Sprint(rng.IntN(50)), Branch: "m"}}
			l.turn(4, wait, "x", false, hint)
		}
		now, soon := waiting("a", "n", "x", false, 1)
		soon.Hint = soon.Began + 2*sec
		_, late := waiting("a", "n", "x", false, 1)
		late.Hint = late.Began + 120*sec
		a, b := score(e, now, soon), score(e, now, late)
		if inverted {
			a, b = b, a
		}
		if a < 5*b {
			t.Errorf("inverted %v: announced as soon %g, as late %g", inverted, a, b)
		}
		// Where nobody has lied yet, the announcement counts as it stands.
		now, soon = waiting("b", "n", "x", false, 1)
		soon.Hint = soon.Began + 2*sec
		_, late = waiting("b", "n", "x", false, 1)
		late.Hint = late.Began + 120*sec
		if a, b := score(e, now, soon), score(e, now, late); !inverted && a <= b {
			t.Errorf("new tenant: soon %g, late %g", a, b)
		}
	}
}

func TestQueueCounts(t *testing.T) {
	e := NewEstimator(Options{})
	now, w := waiting("a", "s", "", false, 2)
	before := score(e, now, w)
	ns, _ := e.Remaining(now, w)
	e.Queue(30 * sec)
	if after := score(e, now, w); after >= before/2 {
		t.Errorf("score %g, with 30 s of queue %g", before, after)
	}
	if queued, _ := e.Remaining(now, w); queued != ns+30*sec {
		t.Errorf("remaining %d, with 30 s of queue %d", ns, queued)
	}
}

func TestThoseThatEndAreLearned(t *testing.T) {
	e := NewEstimator(Options{})
	for i := range 200 {
		l := line{e: e, now: sec, w: Wait{Tenant: "a", Session: fmt.Sprint(i), Branch: "m"}}
		l.w.User, l.w.Began = true, l.now
		e.Began(l.now, &l.w)
		if i%4 == 0 {
			e.Ended(l.now+20*sec, &l.w)
		} else {
			e.Gone(l.now+3600*sec, &l.w)
		}
	}
	now, w := waiting("a", "n", "", true, 1)
	if _, chance := e.Remaining(now, w); chance > 0.4 {
		t.Errorf("three of four never came back: chance %g", chance)
	}
}

// What is said twice, late, out of order or of unknown branches does no harm.
func TestOddOrders(t *testing.T) {
	e := NewEstimator(Options{Sessions: 10, Tools: 4, Cells: 6})
	rng := rand.New(rand.NewPCG(3, 3))
	for i := range 20000 {
		w := Wait{
			Tenant: fmt.Sprint(rng.IntN(3)), Session: fmt.Sprint(rng.IntN(30)), Branch: fmt.Sprint(rng.IntN(2)),
			Tool: fmt.Sprint(rng.IntN(9)), User: rng.IntN(2) == 0, Running: rng.IntN(3) == 0,
			Began: rng.Int64N(1e15) - 1e14, Hint: (rng.Int64N(1e15) - 1e14) * rng.Int64N(2),
		}
		now := rng.Int64N(1e15) - 1e14
		switch rng.IntN(5) {
		case 0, 1:
			e.Began(now, &w)
		case 2:
			e.Ended(now, &w)
		case 3:
			e.Gone(now, &w)
		}
		if _, s := e.Score(now, &w); !(s >= 0 && s < 1e3) {
			t.Fatalf("step %d: score %g", i, s)
		}
		if ns, chance := e.Remaining(now, &w); ns < 0 || !(chance >= 0 && chance <= 1) {
			t.Fatalf("step %d: %d ns, chance %g", i, ns, chance)
		}
	}
	if n := len(e.sessions.m); n > 10 {
		t.Errorf("%d sessions", n)
	}
	if n := len(e.branches.m); n > 10 {
		t.Errorf("%d branches", n)
	}
	if n, c := len(e.tools.m), len(e.cells.m); n > 4 || c > 6 {
		t.Errorf("%d tools, %d cells", n, c)
	}
}

func BenchmarkScore(b *testing.B) {
	e := NewEstimator(Options{})
	for i := range 1000 {
		l := line{e: e, now: sec, w: Wait{Tenant: "a", Session: fmt.Sprint(i % 50), Branch: "m"}}
		l.turn(4, float64(i%40), "read", false, 0)
	}
	now, w := waiting("a", "7", "read", false, 3)
	b.ReportAllocs()
	for b.Loop() {
		e.Score(now, w)
	}
}

func BenchmarkTurn(b *testing.B) {
	e := NewEstimator(Options{})
	l := line{e: e, now: sec, w: Wait{Tenant: "a", Session: "s", Branch: "m"}}
	b.ReportAllocs()
	for b.Loop() {
		l.turn(4, 7, "read", false, 0)
	}
}

// Sessions of one call that nobody ends are learned by waiting for them.
func TestThoseThatNobodyEnds(t *testing.T) {
	e := NewEstimator(Options{})
	for i := range 200 {
		w := Wait{Tenant: "a", Session: fmt.Sprint(i), Branch: "m", User: true, Began: sec}
		e.Began(sec, &w)
		if i%4 == 0 {
			e.Ended(100*sec, &w)
			continue
		}
		e.Score(5000*sec, &w)
		e.Score(5001*sec, &w)
	}
	now, w := waiting("a", "n", "", true, 1)
	if _, chance := e.Remaining(now, w); chance > 0.4 || chance < 0.15 {
		t.Errorf("three of four never came back: chance %g", chance)
	}
}
