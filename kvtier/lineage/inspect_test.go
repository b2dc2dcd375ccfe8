package lineage

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/schemas"
)

func (w *world) ask(session, turn string, forget bool) *schemas.SessionReply {
	w.t.Helper()
	out := w.l.Step(w.now, &schemas.Msg{
		Kind: schemas.KindSessionRequest, Reply: "r.1",
		SessionReq: &schemas.SessionRequest{Header: schemas.H(), Tenant: "t", Session: session, Turn: turn, Forget: forget},
	}, nil)
	if len(out) != 1 || out[0].Subject != "r.1" || !out[0].Core {
		w.t.Fatalf("answered with %+v", out)
	}
	if _, err := schemas.Encode(out[0].SessionRep); err != nil {
		w.t.Fatal(err)
	}
	return out[0].SessionRep
}

// TestInspect: what lineage says of a session.
func TestInspect(t *testing.T) {
	w := newWorld(t, nil)
	if r := w.ask("s", "", false); r.Found {
		t.Errorf("an unknown session: %+v", r)
	}
	w.chat("s", "u1", longU)
	w.answer("u1", "ok", "|")
	if r := w.ask("s", "", false); len(r.Branches) != 1 || r.Branches[0].State != schemas.BranchUserWaiting || !r.Branches[0].Inferred {
		t.Errorf("a state that nobody said: %+v", r)
	}
	w.publish("s", schemas.EventToolWait, `{"v":1,"tool":"bash","expected_ns":5}`)
	w.turn("s", "u2", "sub", "b", `,"parent":"main"`)
	r := w.ask("s", "", false)
	if !r.Found || r.Pending != 1 || len(r.Branches) != 2 || r.Events["tool_wait"] != 1 || r.Events["fork"] != 1 {
		t.Fatalf("%+v", r)
	}
	b := r.Branches[0]
	if b.ID != "main" || b.State != schemas.BranchToolWaiting || b.Why != "tool_wait" || b.Inferred || b.Tool != "bash" || b.ResumeNS == 0 || b.Turns != 1 ||
		b.Messages != 2 || b.Tail != "u1" || b.ToolWaits != 1 || b.Tokens != 791+len("<user>|<assistant>")-8 {
		t.Errorf("%+v", b)
	}
	if r = w.ask("s", "u2", false); len(r.Branches) != 1 || r.Branches[0].ID != "sub" || r.Branches[0].Parent != "main" {
		t.Errorf("one turn: %+v", r)
	}
	if r = w.ask("s", "u9", false); r.Found {
		t.Errorf("an unknown turn: %+v", r)
	}
	for i := range schemas.MaxSessionBranches + 5 {
		w.turn("s", fmt.Sprint("v", i), fmt.Sprint("b", i), "a", "")
	}
	if r = w.ask("s", "", false); len(r.Branches) != schemas.MaxSessionBranches || r.Left != 7 {
		t.Errorf("%d branches, %d left out", len(r.Branches), r.Left)
	}
}

// TestForget: an idle session is forgotten, with the keys and objects that are its
// own; no text of it stays.
func TestForget(t *testing.T) {
	w := newWorld(t, nil)
	ref := func(n int) string { return fmt.Sprintf("%064d", n) }
	image := func(n int) string {
		return `{"role":"user","content":[{"type":"image_url","image_url":{"url":"` + mediaRef + ref(n) + `?type=image/png"}}]}`
	}
	canary := user("canary " + strings.Repeat("word ", 40))
	w.chat("s", "u1", longU, canary, image(1), image(2))
	if r := w.ask("s", "", true); !strings.Contains(r.Error, "in work") || w.l.sessions["t.s"] == nil {
		t.Fatalf("with a turn in work: %+v", r)
	}
	w.answer("u1", "ok", "|")
	w.chat("s", "u2", longU, user("canary in short "+strings.Repeat("word ", 20)))
	w.answer("u2", "ok", "|")
	w.publish("s", schemas.EventTurn, fmt.Sprintf(`{"weir":{"turn":"u77"},"body_ref":{"digest":%q,"bytes":77}}`, ref(3)))
	w.answer("u77", strings.Repeat("ok", 40), "|")
	w.chat("r", "v1", longU, image(2))
	w.answer("v1", strings.Repeat("ok", 40), "|")
	// A session with the very same context.
	w.publish("q", schemas.EventTurn, fmt.Sprintf(`{"weir":{"turn":"u78"},"body_ref":{"digest":%q,"bytes":77}}`, ref(3)))
	if w.ready["u78"] == nil {
		t.Fatal("not ready")
	}
	w.answer("u78", strings.Repeat("ok", 40), "|")
	parts := map[string]bool{}
	w.l.contexts(w.l.sessions["t.s"], func(log *logbook, blocks int) {
		root, _ := w.l.root(log.Keys)
		for i := range blocks + 1 { // one of them is the first that is the session's own
			for _, k := range log.parts(i, root) {
				parts[k.String()] = true
			}
		}
	})
	r := w.ask("s", "", true)
	whole := slices.DeleteFunc(slices.Clone(r.Keys), func(k string) bool { return parts[k] })
	if n := len(r.Keys) - len(whole); n < blockTokens-1 {
		t.Errorf("%d keys of blocks that are full in part, want those of one block at least", n)
	}
	if !r.Found || r.Error != "" || len(r.Branches) != 0 {
		t.Fatalf("%+v", r)
	}
	if want := []string{ref(1)}; !slices.Equal(r.Refs, want) {
		t.Errorf("objects %v, want %v", r.Refs, want)
	}
	// u1's context was replaced by u2's; u77's is that of session q, too. Each has its
	// first block that is its own and its last one, and u1's what stands at stops.
	if len(whole) != 5 {
		t.Errorf("keys %v", whole)
	}
	w.l.contexts(w.l.sessions["t.q"], func(log *logbook, _ int) {
		for i, k := range log.chain {
			if slices.Contains(r.Keys, k.String()) {
				t.Errorf("block %d of session q would be erased", i)
			}
		}
	})
	snap, _ := w.snapshot()
	if strings.Contains(string(snap), "canary") || w.ask("s", "", false).Found {
		t.Error("it is not forgotten")
	}
	if w.l.refs[ref(2)] != 1 || len(w.l.refs) != 2 {
		t.Errorf("%v", w.l.refs)
	}
	w.chat("s", "u9", user("anew"))
	want(t, "the session begins anew", w.prompt("u9"), "<user>anew|<assistant>")
}

// TestForgetMuch: what does not fit one reply is left for the next.
func TestForgetMuch(t *testing.T) {
	w := newWorld(t, nil)
	w.chat("s", "u1", longU)
	w.answer("u1", "ok", "|")
	s := w.l.sessions["t.s"]
	for i := range maxErase + 10 {
		w.l.name(s, fmt.Sprintf("%064d", i))
		s.gone = append(s.gone, fmt.Sprintf("%064x", i))
	}
	r := w.ask("s", "", true)
	if len(r.Refs) != maxErase || len(r.Keys) != maxErase || !strings.Contains(r.Error, "ask again") {
		t.Fatalf("%d objects, %d keys, %s", len(r.Refs), len(r.Keys), r.Error)
	}
	if r = w.ask("s", "", true); len(r.Refs) != 10 || len(r.Keys) != 12+blockTokens-1 || r.Error != "" || w.l.sessions["t.s"] != nil || len(w.l.refs) != 0 {
		t.Errorf("%d objects, %d keys, %s", len(r.Refs), len(r.Keys), r.Error)
	}
}

// TestForgetShort: a session without one whole block names what a hand-over may have
// left of it, and nothing that begins otherwise.
func TestForgetShort(t *testing.T) {
	w := newWorld(t, nil)
	w.chat("s", "u1", user("hi"))
	w.answer("u1", "ok", "|")
	var log *logbook
	w.l.contexts(w.l.sessions["t.s"], func(l *logbook, blocks int) {
		if log = l; blocks != 0 {
			t.Fatalf("%d whole blocks", blocks)
		}
	})
	root, ok := w.l.root(log.Keys)
	if !ok {
		t.Fatal("no root")
	}
	var want []string
	for n := range log.Tokens {
		k, err := kvtier.Chain(root, 0, log.Tokens[:n+1], nil)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, k.String())
	}
	slices.Sort(want)
	if r := w.ask("s", "", true); !slices.Equal(r.Keys, want) {
		t.Errorf("keys %v, want %v", r.Keys, want)
	}
}
