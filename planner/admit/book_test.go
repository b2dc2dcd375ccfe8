package admit

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/weir-dev/weir/schemas"
)

const second = schemas.Time(1_000_000_000)

func turn(s string, tokens, known, found int) Turn {
	return Turn{Key: Key{"t", s}, Branch: "main", Tokens: tokens, Known: known, Found: found}
}

// TestAlone: one session always has room, however large it is, and the next one when it
// has ended.
func TestAlone(t *testing.T) {
	b := New(Config{})
	if !b.Admit(second, turn("a", 1_000_000, 0, 0), Space{Tokens: 1000}) {
		t.Fatal("the only session is not admitted")
	}
	b.Begin(second, turn("a", 1_000_000, 0, 0))
	if b.Admit(second, turn("b", 100, 0, 0), Space{Tokens: 1000, Idle: true, Few: 9}) {
		t.Fatal("a second one beside one that exceeds memory")
	}
	if !b.Admit(second, turn("a", 1_000_100, 1_000_000, 0), Space{Tokens: 1000}) {
		t.Fatal("an admitted session is not admitted any more")
	}
	b.End(2*second, Key{"t", "a"}, "main", 1_000_100)
	b.Leave(2*second, Key{"t", "a"}, "main")
	if !b.Admit(3*second, turn("b", 100, 0, 0), Space{Tokens: 1000}) {
		t.Fatal("b waits although a has ended")
	}
}

// TestIdle: a session is forgotten when it was idle for long, not while a turn runs.
func TestIdle(t *testing.T) {
	b := New(Config{IdleNS: int64(10 * second)})
	for _, s := range []string{"runs", "waits"} {
		b.Admit(second, turn(s, 100, 0, 0), Space{})
		b.Begin(second, turn(s, 100, 0, 0))
	}
	b.End(2*second, Key{"t", "waits"}, "main", 150)
	b.Tick(12 * second)
	if n, tokens := b.Sessions(); n != 2 || tokens != 250 {
		t.Fatalf("%d sessions, %d tokens", n, tokens)
	}
	b.Tick(13 * second)
	if n, tokens := b.Sessions(); n != 1 || tokens != 100 || !b.Admitted(Key{"t", "runs"}) {
		t.Fatalf("%d sessions, %d tokens after the wait", n, tokens)
	}
}

// TestSharedPrefix: what others had computed before a session or a branch began counts
// once. 2 branches and 20 sessions with one system prompt of 12,000 tokens.
func TestSharedPrefix(t *testing.T) {
	b := New(Config{})
	for i := range 20 {
		found := 0
		if i > 0 {
			found = 12_000
		}
		s := turn(fmt.Sprint(i), 13_000, 0, found)
		b.Admit(second, s, Space{})
		b.Begin(second, s)
	}
	sub := Turn{Key: Key{"t", "3"}, Branch: "sub", Tokens: 14_000, Found: 12_500}
	b.Begin(second, sub)
	if _, tokens := b.Sessions(); tokens != 13_000+19*1000+1500 {
		t.Fatalf("%d tokens, want %d", tokens, 13_000+19*1000+1500)
	}
	sub.Tokens, sub.Known, sub.Found = 16_000, 14_000, 14_000
	b.Begin(second, sub)
	b.Leave(second, Key{"t", "4"}, "main")
	if n, tokens := b.Sessions(); n != 19 || tokens != 13_000+18*1000+3500 {
		t.Fatalf("%d sessions with %d tokens", n, tokens)
	}
}

// TestReturns: sessions that come with the context that they have count as they are: they
// were there before the book was, and have grown already.
func TestReturns(t *testing.T) {
	b := New(Config{})
	for i := range 10 {
		x := turn(fmt.Sprint("old", i), 100_000, 99_000, 0)
		b.Adopt(second, x)
		b.Begin(second, x)
	}
	if !b.Admit(second, turn("new", 16_000, 0, 0), Space{Tokens: 2_000_000}) {
		t.Error("a new session waits beside ten of 100,000 tokens in 2,000,000")
	}
	if b.Admit(second, turn("more", 900_000, 0, 0), Space{Tokens: 2_000_000}) {
		t.Error("one of 900,000 tokens is admitted beside them")
	}
}

// TestGrowth: agents that begin together with 16,000 tokens and none of which has ended
// are taken to grow to six times as much.
func TestGrowth(t *testing.T) {
	b := New(Config{})
	n := 0
	for ; b.Admit(second, turn(fmt.Sprint(n), 16_000, 0, 0), Space{Tokens: 10_000_000}); n++ {
		b.Begin(second, turn(fmt.Sprint(n), 16_000, 0, 0))
		b.forecast.stale = true
	}
	if want := 9_000_000 / 96_000; n != want {
		t.Errorf("%d are admitted, want %d", n, want)
	}
}

// TestBooks: whatever happens, tokens are those of the sessions, what is admitted stays so
// until it ends or is idle, and one session can always be admitted to an empty book.
func TestBooks(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := New(Config{IdleNS: int64(20 * second), MaxSessions: 6})
		now := second
		for range rapid.IntRange(1, 80).Draw(rt, "steps") {
			k := Key{"t", rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f", "g", "h"}).Draw(rt, "session")}
			x := Turn{Key: k, Branch: rapid.SampledFrom([]string{"main", "x"}).Draw(rt, "branch"), Tokens: rapid.IntRange(0, 3000).Draw(rt, "tokens")}
			x.Found = rapid.IntRange(0, x.Tokens).Draw(rt, "found")
			was, n := b.Admitted(k), len(b.sessions)
			switch rapid.IntRange(0, 5).Draw(rt, "action") {
			case 0, 1:
				ok := b.Admit(now, x, Space{Tokens: 5000, Idle: rapid.Bool().Draw(rt, "idle"), Few: 2})
				if was && !ok || n == 0 && !b.Admitted(k) || !ok && b.Admitted(k) {
					rt.Fatalf("of %d sessions: admitted before %v, now %v", n, was, ok)
				}
				if ok {
					b.Begin(now, x)
				}
			case 2:
				b.End(now, k, x.Branch, x.Tokens)
			case 3:
				b.Leave(now, k, x.Branch)
			case 4:
				known, full := b.Came(now+second, k) <= now, len(b.refused.at) == 6
				b.Refuse(k, now)
				if b.Came(now+second, k) > now && (known || !full) { // a full book forgets new ones
					rt.Fatalf("a refused session comes anew")
				}
			case 5:
				now += schemas.Time(rapid.IntRange(0, 30).Draw(rt, "seconds")) * second
				b.Tick(now)
			}
			sum, away, busy := 0, 0, 0
			for _, s := range b.sessions {
				if s.away {
					away++
				}
				if s.running > 0 {
					busy++
				}
				own := 0
				for _, x := range s.branches {
					own += x.tokens
				}
				if own != s.tokens || own < 0 {
					rt.Fatalf("%v has %d tokens, its branches %d", s.key, s.tokens, own)
				}
				sum += own
			}
			if away != b.away || busy != b.busy {
				rt.Fatalf("%d sessions are away and %d busy, the book says %d and %d", away, busy, b.away, b.busy)
			}
			if sum != b.tokens || len(b.sessions) > 6 || len(b.refused.at) > 6 {
				rt.Fatalf("%d tokens in the book, %d in %d sessions", b.tokens, sum, len(b.sessions))
			}
		}
	})
}

// TestSurvival: how long sessions live is not taken from those that ended first. Of 100
// that began together, those that end after 20 to 60 turns, 40 have ended at turn 36.
func TestSurvival(t *testing.T) {
	var f forecast
	var running [maxTurns]float64
	for i := range 17 {
		f.ended[20+i] = 40.0 / 17
	}
	running[36] = 60
	f.survival(&running)
	if f.alive[19] != 1 || f.alive[36] < 0.59 || f.alive[36] > 0.61 {
		t.Errorf("%.2f live on after 19 turns, %.2f after 36; want 1, 0.6", f.alive[19], f.alive[36])
	}
}

// TestRoom: as many sessions have room as would be admitted one after the other, and
// asking admits none.
func TestRoom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.IntRange(0, 1_000_000).Draw(t, "capacity")
		b := New(Config{})
		var ts []Turn
		for i := range rapid.IntRange(0, 20).Draw(t, "sessions") {
			ts = append(ts, Turn{Key: Key{"t", fmt.Sprint(i)}, Branch: "main", Tokens: rapid.IntRange(1, 100_000).Draw(t, "tokens")})
		}
		began := rapid.IntRange(0, len(ts)).Draw(t, "began")
		for _, x := range ts[:began] {
			b.Admit(1, x, Space{Tokens: capacity})
			b.Begin(1, x)
		}
		before, _ := b.Sessions()
		got := b.Room(ts[began:], capacity)
		if after, _ := b.Sessions(); after != before {
			t.Fatalf("asking for room changed %d sessions to %d", before, after)
		}
		want := 0
		for _, x := range ts[began:] {
			if !b.Admit(1, x, Space{Tokens: capacity}) {
				break
			}
			b.Begin(1, x)
			want++
		}
		if got != want {
			t.Fatalf("room for %d sessions, %d were admitted", got, want)
		}
	})
}
