package cache

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/weir-dev/weir/e2e/stack"
	"github.com/weir-dev/weir/schemas"
)

// minShare of the first turn's tokens must be found. What is lost is the end of the
// last block: at most 63 tokens, and the last token, which was never fed.
const minShare = 0.95

func TestSecondTurn(t *testing.T) {
	for _, e := range []struct{ engine, preset string }{{"go", "tiny"}, {"llama", "small"}} {
		t.Run(e.engine, func(t *testing.T) {
			if e.engine == "llama" {
				if testing.Short() {
					t.Skip("takes a minute; the Go engine's run shows the same logic")
				}
				if stack.Libraries() == "" {
					t.Skip("the llama.cpp libraries are not installed; `make engine` installs them")
				}
			}
			places := append(Places(), Crashed)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			out, err := Run(ctx, e.engine, e.preset, places, func(o *Outcome) {
				line, err := json.Marshal(o)
				t.Logf("%s %v", line, err)
				if o.Problem != "" {
					t.Errorf("%v: %s", o.Scenario, o.Problem)
				}
				if o.Share < minShare {
					t.Errorf("%v: %d of %d tokens found", o.Scenario, o.Cached, o.Prompt+o.Generated)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			if len(out) != 2*len(places) || MinShare(out) < minShare {
				t.Errorf("%d outcomes, minimum share %.3f", len(out), MinShare(out))
			}
		})
	}
}

func TestMinShare(t *testing.T) {
	if got := MinShare(nil); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
	if got := MinShare([]Outcome{{Share: 0.99}, {Share: 0.4}, {Share: 1}}); got != 0.4 {
		t.Errorf("got %v", got)
	}
}

// TestStyles: however an agent sends its history again, what was computed is found.
func TestStyles(t *testing.T) {
	if stack.Libraries() == "" {
		t.Skip("the llama.cpp libraries are not installed; `make engine` installs them")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	out, err := RunStyles(ctx, func(r *Returned) {
		line, err := json.Marshal(r)
		t.Logf("%s %v", line, err)
		switch {
		case r.Style == StyleReasoning && r.Cause != schemas.MissReasoning:
			t.Errorf("style %s: cause %q, want %q", r.Style, r.Cause, schemas.MissReasoning)
		case r.Style != StyleReasoning && r.Share < minShare:
			t.Errorf("style %s: %d of %d tokens found", r.Style, r.Cached, r.Prompt+r.Generated)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) != len(Styles())+1 {
		t.Errorf("%d styles", len(out))
	}
}
