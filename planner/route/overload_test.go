package route

import (
	"slices"
	"testing"

	"github.com/weir-dev/weir/schemas"
)

func overloaded(agents int, admitted bool, poll schemas.Time) *fakeCell {
	execs := []*fakeExec{}
	for _, id := range []string{"p0", "p1"} {
		execs = append(execs, &fakeExec{id: id, role: schemas.RolePrefill, tps: 50_000, step: second / 100, slots: 64})
	}
	for _, id := range []string{"d0", "d1", "d2", "d3"} {
		execs = append(execs, &fakeExec{id: id, role: schemas.RoleDecode, tps: 50_000, step: second / 100, slots: 64})
	}
	c := newFakeCell(Config{Admit: admitted}, 6_600_000, fakeAgent{turns: 40, first: 16_000, grow: 2500, output: 200, wait: 4}, execs...)
	c.poll = poll
	c.begin(agents)
	return c
}

// TestOverload: with twice as many agents as give most, goodput stays. Without
// admission every context is evicted before it is used again.
func TestOverload(t *testing.T) {
	measure := func(agents int, admitted bool) float64 {
		c := overloaded(agents, admitted, 0)
		c.run(400 * second)
		since := c.now
		c.run(500 * second)
		good, all := c.goodput(since)
		n, tokens := c.r.pools[0].book.Sessions()
		t.Logf("%d agents, admission %v: %.1f good turns a second of %.1f; %d sessions with %d tokens admitted, %d refused", agents, admitted, good, all, n, tokens, len(c.refused))
		return good
	}
	peak, at := 0.0, 0
	for _, n := range []int{60, 80, 100} {
		if g := measure(n, false); g > peak {
			peak, at = g, n
		}
	}
	for _, factor := range []int{1, 2} {
		if g := measure(factor*at, true); g < 0.9*peak {
			t.Errorf("%d times the agents of the peak give %.1f good turns a second, the peak is %.1f", factor, g, peak)
		}
	}
	if g := measure(2*at, false); g > 0.5*peak {
		t.Errorf("without admission twice the agents give %.1f: the test shows nothing", g)
	}
}

// TestHeldForPrefill: sessions that memory has room for are work for prefill while they
// are held because it is behind; those that memory has no room for are not, however many.
func TestHeldForPrefill(t *testing.T) {
	for _, x := range []struct {
		tokens    int // of memory
		least, to int // held for prefill, at their most
	}{
		{tokens: 66_000_000, least: 100, to: 200},
		{tokens: 1_000_000, least: 0, to: 10}, // 16,000 tokens, taken to grow to six times that: nine fit
	} {
		execs := []*fakeExec{
			{id: "p0", role: schemas.RolePrefill, tps: 50_000, step: second / 100, slots: 64},
			{id: "d0", role: schemas.RoleDecode, tps: 50_000, step: second / 100, slots: 64},
		}
		c := newFakeCell(Config{Admit: true}, x.tokens, fakeAgent{turns: 40, first: 16_000, grow: 2500, output: 200, wait: 4}, execs...)
		c.begin(200)
		most, held := 0, 0
		for range 100 {
			c.run(second / 10)
			p := c.r.pools[0]
			var l schemas.PoolLoad
			p.load(c.now, &l)
			most, held = max(most, len(c.r.forPrefill(c.now, p))), max(held, l.Held)
		}
		if held < 100 || most < x.least || most > x.to {
			t.Errorf("memory of %d tokens: of %d held sessions %d wait for prefill, want %d to %d", x.tokens, held, most, x.least, x.to)
		}
	}
}

// TestRetryIsHonest: agents that were refused and ask every five seconds are let in
// about when they were told.
func TestRetryIsHonest(t *testing.T) {
	c := overloaded(200, true, 5*second)
	c.run(1600 * second)
	var ratios []float64
	for _, w := range c.refused {
		if w.at < 1500*second { // no session has ended yet, or few
			continue
		}
		room := w.room
		if room == 0 {
			room = c.now
		}
		ratios = append(ratios, float64(room-w.at)/float64(w.retry))
	}
	if len(ratios) < 20 {
		t.Fatalf("only %d were refused", len(ratios))
	}
	slices.Sort(ratios)
	q := func(p float64) float64 { return ratios[int(p*float64(len(ratios)-1))] }
	t.Logf("%d were refused; room came after %.2f, %.2f, %.2f of the time that they were told (10, 50, 90 %%)", len(ratios), q(.1), q(.5), q(.9))
	if q(.5) < 0.5 || q(.5) > 2 || q(.9) > 4 {
		t.Errorf("what refused agents are told is not so")
	}
}

// TestShortPromptPasses: while prefill is behind a session with a long prompt is held; one
// with a short prompt, which most likely does not come back, only waits for its turn.
func TestShortPromptPasses(t *testing.T) {
	g := newRig(t, Config{Admit: true})
	g.beat(schemas.Heartbeat{Executor: "p", Node: "n", Role: schemas.RolePrefill, Slots: 4, TierBlocks: 10_000, PrefillTPS: 1000})
	g.beat(schemas.Heartbeat{Executor: "d", Node: "n", Role: schemas.RoleDecode, Slots: 64, TierBlocks: 10_000})
	g.ready("a", 16_000, 0, "a")
	long, short := g.ready("b", 16_000, 0, "b"), g.ready("c", 600, 0, "c")
	if !g.r.turns[long.Job].held {
		t.Error("the long one is let in while prefill is 16 s behind")
	}
	if x := g.r.turns[short.Job]; x.held || !x.begun {
		t.Error("the short one is held")
	}
}
