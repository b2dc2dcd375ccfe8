package turns

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weir-dev/weir/schemas"
)

// TestAnswerInvariant: frames in any order, of any attempts, repeated, lost and
// overlapping yield each token and each byte once and in order, and the result
// yields exactly the rest.
func TestAnswerInvariant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 40).Draw(t, "tokens")
		from := rapid.IntRange(0, n).Draw(t, "from")
		w := whole(n)
		a := answer{from: Position{Index: from, TextAt: len(textOf(w[:from]...))}}
		next, at := a.from.Index, a.from.TextAt
		take := func(e Event) {
			if e.First != next || e.TextAt != at {
				t.Fatalf("event at %d, %d; expected %d, %d", e.First, e.TextAt, next, at)
			}
			if !slices.Equal(e.Tokens, schemas.Tokens(w[next:next+len(e.Tokens)])) {
				t.Fatalf("tokens %v at %d", e.Tokens, next)
			}
			next, at = e.Position().Index, e.Position().TextAt
		}
		for range rapid.IntRange(0, 30).Draw(t, "frames") {
			lo := rapid.IntRange(0, n).Draw(t, "lo")
			f := frameOf(rapid.IntRange(1, 4).Draw(t, "attempt"), lo, rapid.IntRange(lo, n).Draw(t, "hi"))
			if rapid.Bool().Draw(t, "noted before") {
				a.note(f)
			}
			e, v, err := a.frame(f)
			if err != nil {
				t.Fatal(err)
			}
			if (v == fresh) != (len(e.Tokens) > 0 || e.Text != "") {
				t.Fatalf("verdict %d of %+v", v, e)
			}
			if v == fresh {
				take(e)
			}
		}
		e, ok, err := a.rest(&schemas.Result{Status: schemas.StatusOK, Tokens: w, Text: textOf(w...)})
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			take(e)
		}
		if next != n || at != len(textOf(w...)) {
			t.Fatalf("the answer ended at %d of %d tokens, %d of %d bytes", next, n, at, len(textOf(w...)))
		}
	})
}

// TestAnswerSeesChanges: another token or byte where something was delivered is
// never passed over.
func TestAnswerSeesChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 20).Draw(t, "tokens")
		var a answer
		if _, _, err := a.frame(frameOf(1, 0, n)); err != nil {
			t.Fatal(err)
		}
		i := rapid.IntRange(0, n-1).Draw(t, "at")
		res := &schemas.Result{Status: schemas.StatusOK, Tokens: whole(n), Text: textOf(whole(n)...)}
		res.Tokens[i]++
		if _, _, err := a.rest(res); err == nil {
			t.Fatalf("token %d of %d changed", i, n)
		}
		bad := frameOf(2, 0, n)
		bad.Tokens[i]++
		if _, _, err := a.frame(bad); err == nil {
			t.Fatalf("token %d of a frame changed", i)
		}
	})
}
