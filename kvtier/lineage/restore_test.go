package lineage

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/weir-dev/weir/schemas"
)

// story is a history with everything in it; each step is one thing that happens.
func story() []func(w *world) {
	known := ""
	return []func(w *world){
		func(w *world) {
			w.turn("s", "u1", "main", "a long first message that fills more than one block of tokens in all", "")
		},
		func(w *world) { w.publish("s", schemas.EventToolWait, `{"v":1,"tool":"x"}`) },
		func(w *world) { known = w.answer("u1", "first", "|").Known() },
		func(w *world) { w.turn("s", "u3", "sub", "c", `,"parent":"main","known":"`+known+`"`) },
		func(w *world) { w.turn("s", "u2", "main", "b", "") },
		func(w *world) { w.turn("r", "v1", "main", "other session", "") },
		func(w *world) { w.answer("u3", "third", "|") },
		func(w *world) { w.turn("s", "bad", "main", "x", `,"known":"00"`) },
		func(w *world) { w.answer("u2", "second", "") },
		func(w *world) { w.publish("s", schemas.EventUserWait, `{"v":1,"branch":"sub"}`) },
		func(w *world) { w.turn("s", "u1", "main", "other content", "") },
		func(w *world) { w.turn("s", "u4", "sub", "d", "") },
		func(w *world) { w.turn("s", "u5", "sub", "e", "") },
		func(w *world) { w.publish("s", schemas.EventCancel, `{"v":1,"turn":"u5"}`) },
		func(w *world) { w.answer("v1", "vee", "|") },
		func(w *world) { w.answer("u4", "fourth", "|") },
		func(w *world) { w.turn("s", "u6", "main", "f", "") },
		func(w *world) { w.answer("u6", "sixth", "|") },
		// Turns that do not say where they belong, and what is said of branches.
		func(w *world) { w.chat("i", "w1", system, longU) },
		func(w *world) { w.publish("i", schemas.EventToolWait, `{"v":1,"tool":"bash","turn":"w1"}`) },
		func(w *world) { w.answer("w1", "ok", "|") },
		func(w *world) { w.publish("i", schemas.EventBranchFork, `{"v":1,"branch":"side"}`) },
		func(w *world) { w.chat("i", "w2", system, longU, message("assistant", "ok"), user("two")) },
		func(w *world) { w.chat("i", "w3", system, longU, message("assistant", "ok"), user("three")) },
		func(w *world) { w.chat("i", "w4", system, user("explore")) },
		func(w *world) { known = w.answer("w3", "ok", "|").Known() },
		func(w *world) {
			w.publish("i", schemas.EventTurn, `{"weir":{"turn":"w5","known":"`+known+`"},"messages":[`+user("on")+`]}`)
		},
		func(w *world) { w.answer("w2", "ok", "|") },
		func(w *world) { w.publish("i", schemas.EventCompacted, `{"v":1}`) },
		func(w *world) { w.answer("w5", "ok", "|") },
		func(w *world) { w.publish("i", schemas.EventUserWait, `{"v":1,"branch":"nobody"}`) },
		func(w *world) { w.answer("w4", "ok", "|") },
		func(w *world) { w.turn("i", "w6", "main", "in short", "") },
		func(w *world) { w.answer("w6", "ok", "|") },
		func(w *world) { w.chat("i", "w7", system, user("explore"), message("assistant", "ok"), user("more")) },
		func(w *world) { w.answer("w7", "ok", "|") },
		func(w *world) { w.publish("i", schemas.EventSessionEnd, `{"v":1}`) },
	}
}

// TestRestoreEverywhere: a snapshot taken at any step, a crash at any later one
// and AGENT read again from where the snapshot says lead to the same sessions, the
// same prompts and the same results as no crash at all.
func TestRestoreEverywhere(t *testing.T) {
	ref := newWorld(t, nil)
	for _, f := range story() {
		f(ref)
	}
	wantSessions, steps := ref.sessions(), len(story())
	for snapAt := -1; snapAt < steps; snapAt++ {
		for crash := max(snapAt, 0); crash < steps; crash++ {
			w := newWorld(t, nil)
			var snap []byte
			var seqs map[string]uint64
			for i, f := range story() {
				f(w)
				if i == snapAt {
					snap, seqs = w.snapshot()
				}
				if i == crash {
					w.restart(snap, seqs)
				}
			}
			name := fmt.Sprintf("snapshot after step %d, crash after %d", snapAt, crash)
			if got := w.sessions(); got != wantSessions {
				t.Fatalf("%s: sessions differ (-want +got):\n%s", name, cmp.Diff(wantSessions, got))
			}
			for id, r := range ref.ready {
				g := w.ready[id]
				if g == nil || g.Prompt.N != r.Prompt.N || g.Sampling.Seed != r.Sampling.Seed {
					t.Fatalf("%s: turn %s became ready as %+v, want %+v", name, id, g, r)
				}
			}
			for k, r := range ref.results {
				g := w.results[k]
				if g == nil || g.Status != r.Status {
					t.Fatalf("%s: result of %s is %+v", name, k, g)
				}
			}
			if len(w.results) != len(ref.results) {
				t.Fatalf("%s: %d results, want %d", name, len(w.results), len(ref.results))
			}
		}
	}
}

// TestSnapshotAfterRestore: a snapshot taken right after a restore says the same
// about where reading goes on; nothing is read twice, nothing is left out.
func TestSnapshotAfterRestore(t *testing.T) {
	for n := range story() {
		w := newWorld(t, nil)
		for _, f := range story()[:n+1] {
			f(w)
		}
		snap, seqs := w.snapshot()
		l := New(w.cfg)
		if err := l.Restore(snap); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(l.Seqs()); got != fmt.Sprint(seqs) {
			t.Errorf("after step %d: %s, want %v", n, got, seqs)
		}
	}
}

// TestRestoreBad: what is no snapshot is an error, and nothing is a fresh start.
func TestRestoreBad(t *testing.T) {
	for _, b := range []string{"{", `{"v":99}`, `[]`} {
		if err := New(Config{}).Restore([]byte(b)); err == nil {
			t.Errorf("%s was restored", b)
		}
	}
	if err := New(Config{}).Restore(nil); err != nil {
		t.Error(err)
	}
}

// TestForkReadAgain: results come faster when AGENT is read again, so a branch may
// have gone on before a fork from it is read. The fork does not fail for that.
func TestForkReadAgain(t *testing.T) {
	for _, answered := range []bool{false, true} {
		w := newWorld(t, nil)
		w.turn("s", "u1", "main", "a", "")
		w.turn("s", "u2", "main", "b", "")
		known := w.answer("u1", "first", "|").Known()
		w.turn("s", "u3", "sub", "c", `,"parent":"main","known":"`+known+`"`)
		w.answer("u2", "second", "|")
		if answered {
			w.answer("u3", "third", "|")
		}
		w.restart(nil, nil)
		if !answered {
			want(t, "in work", w.failure("s", "u3"), "no result")
			w.answer("u3", "third", "|")
		}
		want(t, "fork", w.failure("s", "u3"), "ok")
		w.turn("s", "u4", "sub", "d", "")
		want(t, "the branch goes on", w.prompt("u4"), "<user>d|<assistant>")
	}
}

// TestResultWhileLooking: the lookup of a turn from an earlier life found nothing,
// and its result comes before the answer to the lookup does.
func TestResultWhileLooking(t *testing.T) {
	w := newWorld(t, nil)
	w.turn("s", "u1", "main", "a", "")
	w.turn("s", "u2", "main", "b", "")
	w.slow = true
	w.restart(nil, nil)
	d := w.do(w.ops[0])
	w.ops = nil
	w.answer("u1", "x", "|")
	w.step(&schemas.Msg{Kind: schemas.KindOpDone, OpDone: &d})
	w.slow = false
	w.run()
	want(t, "the turn behind it", w.prompt("u2"), "<user>b|<assistant>")
}

// TestCancelReadAgain: a cancel that came too late does not take the answer away
// when both are read again, and one that did not come too late still works.
func TestCancelReadAgain(t *testing.T) {
	w := newWorld(t, nil)
	w.turn("s", "u1", "main", "a", "")
	w.answer("u1", "x", "|")
	w.turn("s", "u2", "main", "b", "")
	known := w.answer("u2", "y", "|").Known()
	w.publish("s", schemas.EventCancel, `{"v":1,"turn":"u2"}`)
	w.slow = true
	w.turn("s", "u3", "main", "c", `,"known":"`+known+`"`)
	w.turn("s", "u4", "main", "d", "")
	w.publish("s", schemas.EventCancel, `{"v":1,"turn":"u4"}`)
	w.restart(nil, nil)
	w.slow = false
	w.run()
	want(t, "answered", w.failure("s", "u2"), "ok")
	want(t, "behind it", w.prompt("u3"), "<user>b|<assistant>{y|}<user>c|<assistant>")
	w.answer("u3", "z", "|")
	want(t, "cancelled", w.failure("s", "u4"), schemas.CodeCancelled)
}

// contexts is what branches hold that were answered on, by name: messages and tokens.
func (w *world) contexts() map[string]string {
	out := map[string]string{}
	for key, s := range w.l.sessions {
		for n, b := range s.branches {
			if b.turns == 0 {
				continue // what it began with does not matter any more
			}
			var text []string
			for _, e := range b.hist {
				text = append(text, string(e.raw))
			}
			if b.log != nil {
				text = append(text, fmt.Sprint(b.log.Tokens, b.log.Computed))
			}
			out[key+"/"+n] = fmt.Sprint(b.known, b.turns, text)
		}
	}
	return out
}

// TestRestoreAnywhere: agents that send plain histories, several at once, and
// restarts at any point: every branch ends with the context that it has without
// restarts.
func TestRestoreAnywhere(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a, b := newWorld(t, nil), newWorld(t, nil)
		both := func(f func(w *world)) { f(a); f(b) }
		agents := [3][]string{{system, user("one")}, {system, user("two")}, {user("three")}}
		turn := [3]string{}
		var snap []byte
		var seqs map[string]uint64
		for i := range rapid.IntRange(1, 30).Draw(rt, "steps") {
			k := rapid.IntRange(0, 2).Draw(rt, "agent")
			switch id := fmt.Sprint("u", i); {
			case turn[k] == "":
				turn[k] = id
				both(func(w *world) { w.chat("s", id, agents[k]...) })
				if a.ready[id] == nil {
					rt.Fatalf("%s is not ready: %+v", id, a.results["s/"+id])
				}
			default:
				answer := fmt.Sprint("answer ", i)
				both(func(w *world) { w.answer(turn[k], answer, "|") })
				turn[k] = ""
				agents[k] = append(agents[k], message("assistant", answer), user(fmt.Sprint("next ", i)))
			}
			switch rapid.IntRange(0, 5).Draw(rt, "fault") {
			case 0:
				snap, seqs = b.snapshot()
			case 1:
				b.restart(snap, seqs)
			}
		}
		b.restart(snap, seqs)
		if diff := cmp.Diff(a.contexts(), b.contexts()); diff != "" {
			rt.Fatalf("(-without +with restarts)\n%s", diff)
		}
		for id, r := range a.ready {
			if g := b.ready[id]; g == nil || g.Branch != r.Branch {
				rt.Fatalf("%s was ready on %s, and is as %+v", id, r.Branch, g)
			}
		}
	})
}

// FuzzRestore: a snapshot that something has changed is refused, or what it says can
// be gone on from.
func FuzzRestore(f *testing.F) {
	w := newWorld(f, nil)
	for _, step := range story() {
		step(w)
	}
	snap, _ := w.snapshot()
	f.Add(snap)
	f.Add([]byte(`{"v":2,"sessions":[{"tenant":"t","id":"s","branches":[{"id":"main","hist":[0],"log":1}],"messages":[{"role":"user"}],"logs":[{"tokens":[1,2],"marks":[{"t":9,"n":1}],"answer":{"mark":0,"at":1,"n":2}}]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		w := newWorld(t, nil)
		w.now = 1 << 60
		if w.l.Restore(b) != nil {
			return
		}
		w.l.started = w.now
		w.step(&schemas.Msg{Kind: schemas.KindHeartbeat, Heartbeat: w.heartbeat()})
		w.turn("s", "fuzz1", "main", "go on", "")
		w.chat("s", "fuzz2", user("a"), message("assistant", "b"), user("c"))
		if w.readyAt["fuzz1"] {
			w.answer("fuzz1", "ok", "|")
		}
		w.ask("s", "", false)
		w.ask("s", "", true)
		if _, err := w.l.Snapshot(nil); err != nil {
			t.Fatal(err)
		}
	})
}
