package lineage

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/weir-dev/weir/schemas"
)

// dead lists the dead letters since the last call.
func (w *world) dead() string {
	var b []string
	var rest []schemas.Msg
	for _, m := range w.sent {
		if m.Kind == schemas.KindDead {
			b = append(b, m.Dead.Code+" "+m.Dead.Reason)
		} else {
			rest = append(rest, m)
		}
	}
	w.sent = rest
	return strings.Join(b, "; ")
}

// TestBadEvents: events that mean nothing change nothing, are counted by their
// reason, and go to the dead letters once.
func TestBadEvents(t *testing.T) {
	fork := func(branch, parent string) string {
		return fmt.Sprintf(`{"v":1,"branch":%q,"parent":%q}`, branch, parent)
	}
	for _, c := range []struct {
		name    string
		session string
		kind    schemas.EventKind
		body    string
		says    string
		dropped Dropped
	}{
		{"unknown session", "nobody", schemas.EventToolWait, `{"v":1}`, "unknown_branch tool_wait: no turn of this session is known", Dropped{Session: 1}},
		{"unknown branch", "s", schemas.EventUserWait, `{"v":1,"branch":"x"}`, `branch "x" is not known`, Dropped{Branch: 1}},
		{"unknown parent", "s", schemas.EventBranchFork, fork("x", "y"), `"y", from which "x"`, Dropped{Parent: 1}},
		{"its own parent", "s", schemas.EventBranchFork, fork("x", "x"), `"x" cannot fork from "x"`, Dropped{Cycle: 1}},
		{"a child as parent", "s", schemas.EventBranchFork, fork("main", "sub"), `"main" cannot fork from "sub"`, Dropped{Cycle: 1}},
		{"a grandchild as parent", "s", schemas.EventBranchFork, fork("main", "subsub"), `"main" cannot fork from "subsub"`, Dropped{Cycle: 1}},
		{"there already", "s", schemas.EventBranchFork, fork("sub", "main"), `"sub" is there already`, Dropped{Exists: 1}},
		{"of nothing", "s", schemas.EventBranchFork, `{"v":1}`, `"main" cannot fork from "main"`, Dropped{Cycle: 1}},
		{"of an ended branch", "s", schemas.EventCompacted, `{"v":1,"branch":"done"}`, `"done" has ended`, Dropped{Ended: 1}},
		{"late", "s", schemas.EventToolWait, `{"v":1,"turn":"u1"}`, `turn "u1" is not the last one of branch "main"`, Dropped{Late: 1}},
		{"of a turn that never was", "s", schemas.EventToolWait, `{"v":1,"turn":"u999"}`, `turn "u999" is not the last one`, Dropped{Late: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, nil)
			for _, b := range []string{"main", "sub", "subsub", "done"} {
				parent := map[string]string{"sub": `,"parent":"main"`, "subsub": `,"parent":"sub"`}[b]
				for i := range 2 {
					id := fmt.Sprintf("%su%d", strings.TrimPrefix(b, "main"), i+1)
					w.turn("s", id, b, "hello", parent)
					w.answer(id, "Hi", "|")
				}
			}
			w.publish("s", schemas.EventBranchEnd, `{"v":1,"branch":"done"}`)
			before := w.sessions()
			w.sent = nil
			for i := range 3 {
				w.publish(c.session, c.kind, c.body)
				got := w.dead()
				if i == 0 && (!strings.Contains(got, c.says) || strings.Contains(got, ";")) || i > 0 && got != "" {
					t.Errorf("dead letters: %q, want %q once", got, c.says)
				}
			}
			want := Dropped{}
			for i, p := range []*uint64{&want.Session, &want.Branch, &want.Parent, &want.Cycle, &want.Exists, &want.Ended, &want.Late} {
				*p = 3 * []uint64{c.dropped.Session, c.dropped.Branch, c.dropped.Parent, c.dropped.Cycle, c.dropped.Exists, c.dropped.Ended, c.dropped.Late}[i]
			}
			if got := w.l.Counts().Dropped; got != want || got.Total() != 3 {
				t.Errorf("dropped %+v", got)
			}
			if s := w.l.sessions["t.s"]; s != nil {
				s.seen = 9 // as before: that it was read is no effect
			}
			if got := w.sessions(); got != before && !strings.Contains(c.name, "session") {
				t.Errorf("the state changed:\n%s\n%s", before, got)
			}
			if got := w.branches(); got != "" {
				t.Errorf("tier nodes heard %s", got)
			}
		})
	}
}

// TestOtherTenant: a session belongs to its tenant; events of another one with the
// same name do not reach it.
func TestOtherTenant(t *testing.T) {
	w := newWorld(t, nil)
	w.chat("s", "u1", user("a"))
	w.answer("u1", "Hi", "|")
	m, err := schemas.DecodeMsg(schemas.AgentSubject("other", "s", schemas.EventSessionEnd), []byte(`{"v":1}`))
	if err != nil {
		t.Fatal(err)
	}
	w.sent = nil
	m.Seq = 100
	w.step(&m)
	if got := w.branches(); got != "" || w.l.Counts().Dropped.Session != 1 || w.l.sessions["t.s"].ended {
		t.Errorf("heard %q, %+v", got, w.l.Counts())
	}
	q := schemas.Msg{Kind: schemas.KindSessionRequest, Reply: "r.1", SessionReq: &schemas.SessionRequest{Header: schemas.H(), Tenant: "other", Session: "s", Forget: true}}
	if out := w.l.Step(w.now, &q, nil); out[0].SessionRep.Found || w.l.sessions["t.s"] == nil {
		t.Errorf("another tenant saw %+v", out[0].SessionRep)
	}
}

// TestEventOrder: what an agent says of an answer may come before the result does,
// twice, or after the session's end.
func TestEventOrder(t *testing.T) {
	w := newWorld(t, nil)
	w.chat("s", "u1", user("a"))
	w.branches()
	w.publish("s", schemas.EventToolWait, `{"v":1,"tool":"bash","turn":"u1","expected_ns":7}`)
	want(t, "before the result", w.branches(), "")
	w.answer("u1", "Hi", "|")
	want(t, "with the result", w.branches(), "main user-waiting result?, main tool-waiting tool_wait bash")
	b := w.l.sessions["t.s"].branches["main"]
	if at := w.agent[1].At; b.resume != int64(at)+7 || b.toolWaits != 1 {
		t.Errorf("%+v", b)
	}
	w.publish("s", schemas.EventToolWait, `{"v":1,"tool":"bash","turn":"u1","expected_ns":7}`)
	want(t, "twice", w.branches(), "")
	w.publish("s", schemas.EventBranchFork, `{"v":1,"branch":"sub"}`)
	w.publish("s", schemas.EventBranchFork, `{"v":1,"branch":"sub"}`)
	want(t, "fork", w.branches(), "sub user-waiting branch_fork")
	w.publish("s", schemas.EventTurn, `{"weir":{"turn":"u2","branch":"sub"},"messages":[`+user("a")+`,`+message("assistant", "Hi")+`,`+user("b")+`]}`)
	want(t, "a fork's first turn", w.prompt("u2"), "<user>a|<assistant>{Hi|}<user>b|<assistant>")
	w.branches()
	w.publish("s", schemas.EventSessionEnd, `{"v":1}`)
	want(t, "end", w.branches(), "main ended session_end")
	w.answer("u2", "Hi", "|")
	want(t, "what ran then", w.branches(), "sub user-waiting result?, sub ended session_end")
	w.publish("s", schemas.EventSessionEnd, `{"v":1}`)
	want(t, "again", w.branches(), "")
	w.chat("s", "u3", user("a"), message("assistant", "Hi"), user("c"))
	if c := w.l.Counts(); c.Revived != 1 || c.Repeated != 3 || c.Dropped.Total() != 0 {
		t.Errorf("%+v", c)
	}
	want(t, "it goes on", w.branches(), "main running turn?")
}

// TestToolWaits: an answer with calls is a wait for the first of them, counted
// once, whether the agent says so, too, or not.
func TestToolWaits(t *testing.T) {
	w := newWorld(t, nil)
	call := func(id string) func(*schemas.Result) {
		return says(`{"role":"assistant","content":null,"tool_calls":[{"id":"` + id + `","type":"function","function":{"name":"bash","arguments":"{}"}}]}`)
	}
	w.chat("s", "u1", user("a"))
	w.branches()
	w.answer("u1", "bash", "|", call("c1"))
	want(t, "inferred", w.branches(), "main tool-waiting result? bash")
	w.publish("s", schemas.EventToolWait, `{"v":1,"expected_ns":5000000000}`)
	want(t, "said", w.branches(), "main tool-waiting tool_wait bash")
	s := w.l.sessions["t.s"]
	if b := s.branches["main"]; b.toolWaits != 1 || s.events["tool_wait"] != 1 || s.events["inferred.tool_wait"] != 1 || b.resume == 0 {
		t.Errorf("%+v %v", b, s.events)
	}
}

// TestWaitIsBounded: whatever a model calls a tool, and however long an agent says that it
// will take.
func TestWaitIsBounded(t *testing.T) {
	w := newWorld(t, nil)
	w.chat("s", "u1", user("a"))
	w.sent = nil
	name := strings.Repeat("é", 5000)
	w.answer("u1", "x", "|", says(`{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"x`+name+`","arguments":"{}"}}]}`))
	w.publish("s", schemas.EventToolWait, `{"v":1,"expected_ns":9223372036854775807}`)
	told := 0
	for _, m := range w.sent {
		if m.Kind == schemas.KindBranch {
			told++
			if b := m.Branch; len(b.Tool) > toolBytes || !utf8.ValidString(b.Tool) || b.Tool == "" || b.ResumeNS < 0 {
				t.Errorf("a tool of %d bytes, back at %d", len(b.Tool), b.ResumeNS)
			}
		}
	}
	if told != 2 {
		t.Errorf("told %d times", told)
	}
}

// TestQueueIsTold: the tier hears how long an answered turn had waited, once.
func TestQueueIsTold(t *testing.T) {
	span := func(stage string, from, to int64) schemas.StageSpan {
		return schemas.StageSpan{Stage: stage, From: from, To: to}
	}
	for name, c := range map[string]struct {
		spans []schemas.StageSpan
		want  int64
	}{
		"not known":     {nil, 0},
		"not rendered":  {[]schemas.StageSpan{span(schemas.SpanPrefill, 50, 60)}, 0},
		"no engine":     {[]schemas.StageSpan{span(schemas.SpanRender, 0, 10)}, 0},
		"prefill":       {[]schemas.StageSpan{span(schemas.SpanRender, 0, 10), span(schemas.SpanQueue, 10, 30), span(schemas.SpanPrefillWait, 30, 50), span(schemas.SpanPrefill, 50, 60), span(schemas.SpanDecode, 70, 80)}, 40},
		"decode alone":  {[]schemas.StageSpan{span(schemas.SpanRender, 0, 10), span(schemas.SpanDecode, 25, 80)}, 15},
		"another clock": {[]schemas.StageSpan{span(schemas.SpanRender, 0, 10), span(schemas.SpanPrefill, 5, 60)}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.chat("s", "t1", user("hello"))
			w.sent = nil
			w.answer("t1", "ok", "|", func(r *schemas.Result) { r.Timing.Spans = c.spans })
			var told []int64
			for _, m := range w.sent {
				if m.Kind == schemas.KindBranch {
					told = append(told, m.Branch.QueueNS)
				}
			}
			if len(told) != 1 || told[0] != c.want {
				t.Errorf("told %d, want one of %d", told, c.want)
			}
		})
	}
}

// TestDecay: a wait that nobody spoke of is believed for an hour; one that an agent
// announced stays.
func TestDecay(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.DecayNS = 3600 * int64(second) })
	for i := range 600 {
		id := fmt.Sprint("u", i)
		w.turn("s", id, fmt.Sprint("b", i), "a", "")
		w.answer(id, "Hi", "|")
	}
	w.publish("s", schemas.EventUserWait, `{"v":1,"branch":"b7"}`)
	snap, seqs := w.snapshot()
	w.restart(snap, seqs)
	w.branches()
	w.now += 3600 * second
	heard := 0
	for ticks := 1; w.tick(); ticks++ {
		got := strings.Count(w.branches(), "ended decay?")
		if heard += got; got > maxDecays || ticks > 10 {
			t.Fatalf("%d decayed in tick %d", got, ticks)
		}
	}
	if s := w.l.sessions["t.s"]; heard != 599 || w.l.Counts().Decayed != 599 || s.branches["b7"].state != schemas.BranchUserWaiting {
		t.Errorf("%d decayed, b7 is %s", heard, s.branches["b7"].state)
	}
	w.turn("s", "v", "b1", "b", "")
	want(t, "it goes on", w.branches(), "b1 superseded rewrite?, b1 running rewrite?")
	if w.l.Counts().Revived != 0 {
		t.Error("a branch that nobody ended was revived")
	}
}

// TestAnyEvents: whatever is said in whatever order, nothing panics, every turn
// ends, and the state can be saved.
func TestAnyEvents(t *testing.T) {
	kinds := []schemas.EventKind{
		schemas.EventToolWait, schemas.EventUserWait, schemas.EventBranchFork, schemas.EventBranchEnd, schemas.EventCompacted, schemas.EventPrefixRewrite,
		schemas.EventSessionEnd, schemas.EventCancel,
	}
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t, func(c *Config) { c.MaxBranches, c.MaxTokens, c.DecayNS = 4, 600, int64(second) })
		ids := rapid.SampledFrom([]string{"main", "x", "y", "z"})
		for i := range rapid.IntRange(1, 40).Draw(rt, "steps") {
			session := rapid.SampledFrom([]string{"s", "r"}).Draw(rt, "session")
			switch rapid.IntRange(0, 4).Draw(rt, "what") {
			case 0:
				id := fmt.Sprint("u", i)
				w.turn(session, id, ids.Draw(rt, "branch"), rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "text"), `,"parent":"`+ids.Draw(rt, "parent")+`"`)
			case 1:
				w.chat(session, fmt.Sprint("u", i), user(rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "text")))
			case 2:
				w.publish(session, rapid.SampledFrom(kinds).Draw(rt, "kind"), fmt.Sprintf(`{"v":1,"branch":%q,"parent":%q,"turn":"u%d"}`, ids.Draw(rt, "branch"), ids.Draw(rt, "parent"), max(0, i-1)))
			case 3:
				w.finish(rapid.IntRange(0, 3).Draw(rt, "pick"))
			case 4:
				w.tick()
			}
		}
		for w.finish(0) {
		}
		for _, s := range w.l.sessions {
			if s.pending != 0 || len(s.work) != 0 || len(s.line) != 0 {
				rt.Fatalf("left: %d turns, %d at work, %d in line", s.pending, len(s.work), len(s.line))
			}
		}
		snap, _ := w.snapshot()
		if err := New(w.cfg).Restore(snap); err != nil {
			rt.Fatal(err)
		}
	})
}

// finish answers a turn that is in work.
func (w *world) finish(pick int) bool {
	var ids []string
	for i := range w.agent {
		if m := &w.agent[i]; m.Turn != nil && w.readyAt[m.Turn.Weir.Turn] {
			ids = append(ids, m.Turn.Weir.Turn)
		}
	}
	if len(ids) == 0 {
		return false
	}
	w.answer(ids[pick%len(ids)], "ok", "|")
	return true
}
