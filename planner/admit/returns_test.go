package admit

import (
	"fmt"
	"testing"

	"github.com/weir-dev/weir/schemas"
)

// TestIdleExecutors: while executors have nothing to do a few sessions are admitted as
// long as memory holds what is there, and then one more at a time, a little beyond what
// they are expected to grow to. While they are busy none of these is.
func TestIdleExecutors(t *testing.T) {
	for _, c := range []struct {
		name          string
		tokens, first int
		idle          bool
		seconds       int // of one attempt each, after many at once
		want          int
	}{
		{"a small stack", 65_000, 11_000, true, 1, 5},
		{"a small stack that is busy", 65_000, 11_000, false, 1, 1},
		{"a large one", 10_000_000, 16_000, true, 1, 93},
		{"a large one for a while", 10_000_000, 16_000, true, 60, 93 + 12},
		{"a large one for long", 10_000_000, 16_000, true, 600, 117},
		{"a large one that is busy", 10_000_000, 16_000, false, 600, 93},
	} {
		b, n := New(Config{}), 0
		try := func(now schemas.Time) {
			x := turn(fmt.Sprint(n), c.first, 0, 0)
			if b.Admit(now, x, Space{Tokens: c.tokens, Idle: c.idle, Few: 8}) {
				b.Begin(now, x)
				n++
			}
			b.forecast.stale = true
		}
		for range 200 {
			try(5 * second)
		}
		for i := range c.seconds {
			try(schemas.Time(6+i) * second)
		}
		if d := n - c.want; d < -1 || d > 1 {
			t.Errorf("%s: %d sessions, want %d", c.name, n, c.want)
		}
	}
}

// TestRest: a session that has had no turn for longer than sessions use to wait takes no
// room, and goes on without a question when it comes back.
func TestRest(t *testing.T) {
	b := New(Config{})
	full := Space{Tokens: 1000}
	b.Admit(second, turn("runs", 10, 0, 0), full)
	b.Begin(second, turn("runs", 10, 0, 0))
	b.Adopt(second, turn("a", 800, 400, 0)) // not a first turn, so that it is taken to come back
	b.Begin(second, turn("a", 800, 0, 0))
	b.End(2*second, Key{"t", "a"}, "main", 850)
	for _, c := range []struct {
		at   schemas.Time
		room bool
	}{{5, false}, {16, false}, {18, true}} {
		b.Tick(c.at * second)
		if got := b.Room([]Turn{turn("b", 800, 0, 0)}, full.Tokens) == 1; got != c.room {
			t.Errorf("after %d s: room %v", c.at-2, got)
		}
	}
	if !b.Admit(20*second, turn("b", 800, 0, 0), full) || !b.Admitted(Key{"t", "a"}) {
		t.Fatal("b is not admitted, or a not any more")
	}
	b.Begin(21*second, turn("a", 900, 850, 850))
	if b.Admit(21*second, turn("c", 100, 0, 0), full) {
		t.Error("a came back, and does not count")
	}
}

// TestNothingRuns: a session that is not expected to come back takes no room after its
// turn, and while no turn runs there is room for any context.
func TestNothingRuns(t *testing.T) {
	b, s := New(Config{}), Space{Tokens: 1000}
	for i := range 20 {
		x := turn(fmt.Sprint(i), 950, 0, 0)
		if !b.Admit(second, x, s) {
			t.Fatalf("session %d is not admitted, and none runs", i)
		}
		b.Begin(second, x)
		if b.Admit(second, turn("beside", 100, 0, 0), s) {
			t.Fatalf("another one beside session %d", i)
		}
		b.End(second, x.Key, "main", 960)
		if n := b.Room([]Turn{turn("next", 900, 0, 0)}, s.Tokens); n != 1 {
			t.Fatalf("session %d has ended and takes room", i)
		}
	}
}

// TestPauses: nearly all pauses are shorter than the longest that is expected.
func TestPauses(t *testing.T) {
	var p pauses
	least, limit := int64(15*second), int64(180*second)
	if p.most(least, limit) != least {
		t.Errorf("%d before any were seen", p.most(least, limit))
	}
	for i := range 1000 {
		p.note(int64(second) * int64(i%100))
	}
	if got := p.most(least, limit); got < int64(99*second) || got > limit {
		t.Errorf("%d s", got/int64(second))
	}
	for range 5000 {
		p.note(int64(second))
	}
	if got := p.most(least, limit); got != least {
		t.Errorf("%d s after many short ones", got/int64(second))
	}
}

// TestOnce: whether sessions come back is learned by the length of their first prompts;
// until then short ones are taken not to.
func TestOnce(t *testing.T) {
	b := New(Config{})
	short, long := turn("x", 600, 0, 0), turn("x", 16_000, 0, 0)
	if !b.Once(short) || b.Once(long) || b.Once(turn("x", 600, 500, 0)) {
		t.Fatal("before any has ended")
	}
	run := func(i, tokens, turns int) {
		x := turn(fmt.Sprint(tokens, i), tokens, 0, 0)
		b.Admit(second, x, Space{})
		for range turns {
			b.Begin(second, x)
			b.End(second, x.Key, "main", 0)
		}
		b.Leave(second, x.Key, "main")
	}
	for i := range 8 {
		run(i, 600, 3)
		run(i, 16_000, 1)
	}
	if b.Once(short) || !b.Once(long) {
		t.Fatal("after eight of each")
	}
	if b.Admit(second, turn("first", 100, 0, 0), Space{}); !b.Admit(second, long, Space{Tokens: 20_000}) {
		t.Error("one that does not come back is taken to grow")
	}
}
