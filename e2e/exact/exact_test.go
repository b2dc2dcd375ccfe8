package exact

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/weir-dev/weir/e2e/stack"
)

// TestExact runs the matrix; -short leaves out the long prompts of llama.cpp and
// half of the rest.
func TestExact(t *testing.T) { matrix(t, Matrix(testing.Short())) }

// TestMoved: a turn that changes its executor in the middle of its decode goes on as
// if nothing had happened, also in the blocks that it leaves.
func TestMoved(t *testing.T) {
	llama := Options{Engine: "llama", Preset: "small", Prompts: []int{300}, Samplings: []string{Seeded}, Conditions: []Condition{Moved}}
	onGo := Options{Engine: "go", Preset: "small", Prompts: []int{65}, Samplings: []string{Seeded}, Conditions: []Condition{Moved}}
	if !testing.Short() {
		llama.Prompts = []int{65, 300, 1000}
		llama.Samplings = []string{Greedy, Seeded}
	}
	matrix(t, []Options{llama, onGo})
}

func matrix(t *testing.T, all []Options) {
	for _, o := range all {
		t.Run(o.Engine+"-"+o.Preset, func(t *testing.T) {
			if o.Engine == "llama" && stack.Libraries() == "" {
				t.Skip("the llama.cpp libraries are not installed; `make engine` installs them")
			}
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
			defer cancel()
			o.Emit = func(out *Outcome) {
				line, err := json.Marshal(out)
				t.Logf("%s %v", line, err)
				if !out.Same() {
					t.Errorf("%v: tokens equal: %v, cached %d, the reference found %d; %s", out.Case, out.TokensEqual, out.Cached, out.WantCached, out.Problem)
				}
				if !out.KVEqual() {
					t.Errorf("%v: %d of %d blocks differ", out.Case, out.BlocksOff, out.Blocks)
				}
			}
			got, err := Run(ctx, o)
			if err != nil {
				t.Fatal(err)
			}
			if want := len(o.Prompts) * len(o.Samplings) * len(o.Conditions); len(got) != want {
				t.Errorf("%d outcomes, want %d", len(got), want)
			}
		})
	}
}
