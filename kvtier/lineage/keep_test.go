package lineage

import (
	"strings"
	"testing"

	"github.com/weir-dev/weir/schemas"
)

// TestKeep: once a template was seen to leave out the reasoning of an earlier answer,
// tier nodes hear which blocks the next prompt repeats; an answer without reasoning
// keeps all.
func TestKeep(t *testing.T) {
	const thought = `{"role":"assistant","content":"ok","reasoning_content":"hm"}`
	gen := "~" + strings.Repeat("hm", 100) + "ok"
	ok := message("assistant", "ok")
	turn := func(w *world, id string, messages ...string) {
		w.publish("s", schemas.EventTurn, `{"weir":{"turn":"`+id+`"},"messages":[`+strings.Join(messages, ",")+`]}`)
	}
	keep := func(w *world) (keep, tail int) {
		t.Helper()
		for _, m := range w.sent {
			if m.Branch != nil && m.Branch.State == schemas.BranchUserWaiting {
				keep, tail = m.Branch.Keep, m.Branch.Tail.From+m.Branch.Tail.N
			}
		}
		w.sent = nil
		return keep, tail
	}
	w := newWorld(t, nil)
	w.reasons = true
	turn(w, "u1", longU)
	w.answer("u1", gen, "|", says(thought))
	if k, _ := keep(w); k != 0 {
		t.Errorf("%d blocks are kept before anything is known of the template", k)
	}
	turn(w, "u2", longU, ok, user("go"))
	prompt := w.ready["u2"].Prompt.N
	w.answer("u2", gen, "|", says(thought))
	if k, tail := keep(w); k != prompt/blockTokens || k == 0 || k >= tail {
		t.Errorf("%d blocks of %d are kept, the prompt had %d tokens", k, tail, prompt)
	}
	turn(w, "u3", longU, ok, user("go"), ok, user("on"))
	w.answer("u3", "ok", "|", says(ok))
	if k, _ := keep(w); k != 0 {
		t.Errorf("%d blocks are kept of an answer without reasoning", k)
	}
}

// TestRunningTail: tier nodes hear of all blocks that a turn computes when it begins,
// so that nothing of them is taken for what nobody needs.
func TestRunningTail(t *testing.T) {
	w := newWorld(t, nil)
	w.publish("s", schemas.EventTurn, `{"weir":{"turn":"u1"},"messages":[`+longU+`]}`)
	r := w.ready["u1"]
	if r == nil || len(r.Prompt.Rest) == 0 {
		t.Fatalf("%+v", r)
	}
	last := r.Prompt.Rest[len(r.Prompt.Rest)-1]
	want := schemas.Extent{Key: last.Key, N: last.From + last.N}
	told := 0
	for _, m := range w.sent {
		if m.Branch != nil && m.Branch.State == schemas.BranchRunning {
			if told++; m.Branch.Tail != want {
				t.Errorf("tail %+v, the prompt ends with %+v", m.Branch.Tail, want)
			}
		}
	}
	if told == 0 {
		t.Error("no node heard that the turn runs")
	}
}
