package lineage

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-dev/weir/schemas"
)

var (
	system = message("system", strings.Repeat("be good ", 20))
	longU  = user(strings.Repeat("a long story ", 60))
)

// TestPlacedByContent: turns that send messages and nothing else go where they
// belong, and the tier nodes hear why.
func TestPlacedByContent(t *testing.T) {
	w := newWorld(t, nil)
	turn := func(id, want string, messages ...string) {
		t.Helper()
		w.branches()
		w.chat("s", id, messages...)
		if got := w.branches(); got != want {
			t.Errorf("%s:\n got %s\nwant %s", id, got, want)
		}
	}
	answered := func(id, text, want string) {
		t.Helper()
		w.answer(id, text, "|")
		if got := w.branches(); got != want {
			t.Errorf("%s answered:\n got %s\nwant %s", id, got, want)
		}
	}
	ok := message("assistant", "ok")
	turn("u1", "main running turn?", system, longU)
	answered("u1", "ok", "main user-waiting result?")
	turn("u2", "main running turn?", system, longU, ok, user("two"))
	// main runs: what parts from it is another branch.
	turn("u3", "b3 running fork?", system, longU, ok, user("three"))
	want(t, "fork", w.prompt("u3"), "<system>"+strings.Repeat("be good ", 20)+"|<user>"+strings.Repeat("a long story ", 60)+"|<assistant>{ok|}<user>three|<assistant>")
	turn("u4", "b4 running sub_agent?", system, user("explore"))
	answered("u2", "ok", "main user-waiting result?")
	answered("u3", "ok", "b3 user-waiting result?")
	answered("u4", "ok", "b4 user-waiting result?")
	turn("u5", "b3 running turn?", system, longU, ok, user("three"), ok, user("go"))
	answered("u5", "ok", "b3 user-waiting result?")
	turn("u6", "b3 superseded rewrite?, b3 running rewrite?", system, longU, ok, user("another two"))
	answered("u6", "ok", "b3 user-waiting result?")
	// Little stands in the place of the long story.
	turn("u7", "b3 superseded compaction?, b3 running compaction?", system, user("in short"), ok, user("go"))
	answered("u7", "ok", "b3 user-waiting result?")
	b := w.l.sessions["t.s"].branches
	if len(b) != 3 || b["b3"].parent != "main" || !b["b3"].guessed {
		t.Errorf("%d branches, %+v", len(b), b["b3"])
	}
	e := w.l.sessions["t.s"].events
	for kind, n := range map[string]int{"fork": 1, "inferred.fork": 1, "sub_agent": 1, "rewrite": 1, "inferred.compaction": 1, "user_wait": 7} {
		if e[kind] != n {
			t.Errorf("%d %s, want %d: %v", e[kind], kind, n, e)
		}
	}
}

// TestOvertakes: a caller may know a result before lineage does. Its next turn
// waits for it, whether it repeats the answer or names it; one that names what
// never was waits for a while only.
func TestOvertakes(t *testing.T) {
	w := newWorld(t, nil)
	w.chat("s", "u1", user("begin"))
	r := w.ready["u1"]
	res := &schemas.Result{
		Header: schemas.H(), Tenant: "t", Session: "s", Turn: "u1", Branch: "main", Job: r.Job, Attempt: 1, Status: schemas.StatusOK, Text: "Hi", End: "|",
		Finish: "stop", Tokens: schemas.Tokens{72 + 128, 105 + 128, 124 + 128},
	}
	w.chat("s", "u2", user("begin"), message("assistant", "Hi"), user("go"))
	w.publish("s", schemas.EventTurn, `{"weir":{"turn":"u3","known":"`+res.Known()+`"},"messages":[`+user("more")+`]}`)
	w.publish("s", schemas.EventTurn, `{"weir":{"turn":"u4","known":"00"},"messages":[`+user("more")+`]}`)
	w.chat("s", "u5", user("begin"), user("other"))
	want(t, "too early", w.prompt("u2"), "not ready")
	want(t, "too early", w.prompt("u3"), "not ready")
	want(t, "another branch waits for nothing", w.ready["u5"].Branch, "b5")
	w.store(res)
	want(t, "repeats", w.prompt("u2"), "<user>begin|<assistant>{Hi|}<user>go|<assistant>")
	want(t, "on", w.ready["u2"].Branch, "main")
	want(t, "names", w.prompt("u3"), "<user>begin|<assistant>{Hi|}<user>more|<assistant>")
	want(t, "on", w.ready["u3"].Branch, "b3") // main was taken
	want(t, "what never was", w.failure("s", "u4"), "no result")
	w.tick()
	want(t, "what never was", w.failure("s", "u4"), schemas.CodeNeedFull)
}

// TestSiblings: of two agents with one first prompt the one that is answered goes on
// at once; it does not wait for the other one's answer.
func TestSiblings(t *testing.T) {
	w := newWorld(t, nil)
	w.chat("s", "u1", user("begin"))
	w.chat("s", "u2", user("begin"))
	want(t, "the second", w.ready["u2"].Branch, "b2")
	w.answer("u2", "Hi", "|")
	w.chat("s", "u3", user("begin"), message("assistant", "Hi"), user("go"))
	want(t, "goes on", w.ready["u3"].Branch, "b2")
	w.answer("u1", "Hi", "|")
	w.chat("s", "u4", user("begin"), message("assistant", "Hi"), user("on"))
	want(t, "the first", w.ready["u4"].Branch, "main")
}

// TestKnownWithoutBranch: a turn may continue any earlier answer whose context is
// still there, also one that the branch has gone on from.
func TestKnownWithoutBranch(t *testing.T) {
	w := newWorld(t, nil)
	delta := func(id, known, text string) {
		t.Helper()
		w.publish("s", schemas.EventTurn, fmt.Sprintf(`{"weir":{"turn":%q,"known":%q},"messages":[%s]}`, id, known, user(text)))
	}
	w.chat("s", "u1", user("a"))
	k1 := w.answer("u1", "x", "|").Known()
	delta("u2", k1, "b")
	want(t, "the end", w.ready["u2"].Branch, "main")
	k2 := w.answer("u2", "y", "|").Known()
	delta("u3", k1, "c")
	want(t, "earlier", w.ready["u3"].Branch+" "+w.prompt("u3"), "b3 <user>a|<assistant>{x|}<user>c|<assistant>")
	k3 := w.answer("u3", "z", "|").Known()
	delta("u4", k2, "d")
	want(t, "main goes on", w.ready["u4"].Branch+" "+w.prompt("u4"), "main <user>a|<assistant>{x|}<user>b|<assistant>{y|}<user>d|<assistant>")
	delta("u5", k3, "e")
	want(t, "the fork goes on", w.ready["u5"].Branch, "b3")
	// main's context is replaced: its first turns are in the fork only.
	w.answer("u4", "x", "|")
	w.answer("u5", "x", "|")
	w.turn("s", "u6", "main", "all new", "")
	w.answer("u6", "x", "|")
	delta("u7", k1, "f")
	want(t, "from the fork", w.ready["u7"].Branch+" "+w.prompt("u7"), "b7 <user>a|<assistant>{x|}<user>f|<assistant>")
	w.answer("u7", "x", "|")
	delta("u8", k2, "g")
	want(t, "gone", w.failure("s", "u8"), schemas.CodeNeedFull)
}

// TestCompactionThatKeepsNothing: a context that shares nothing with the one
// before goes on the branch whose agent said that it is compacted.
func TestCompactionThatKeepsNothing(t *testing.T) {
	for _, how := range []string{"event", "hint"} {
		w := newWorld(t, nil)
		w.chat("s", "u1", longU)
		w.answer("u1", "ok", "|")
		n := "2"
		if how == "event" {
			w.publish("s", schemas.EventCompacted, `{"v":1}`)
		} else {
			w.publish("s", schemas.EventTurn, `{"weir":{"turn":"u2","hint":"compaction"},"messages":[`+longU+`,`+message("assistant", "ok")+`,`+user("sum up")+`]}`)
			w.answer("u2", "sum", "|")
			n = "3"
		}
		w.branches()
		w.chat("s", "u"+n, user("in short"))
		want(t, how, w.branches(), "main superseded compaction, main running compaction?")
		if m := w.ready["u"+n].Miss; m.Cause != schemas.MissCompaction || m.Message != 0 || m.Byte != 0 || m.Lost == 0 {
			t.Errorf("%s: %+v", how, m)
		}
		w.answer("u"+n, "ok", "|")
		if e := w.l.sessions["t.s"].events; w.l.sessions["t.s"].expecting != 0 || how == "event" && e["compaction"] != 1 {
			t.Errorf("%s: %v", how, e)
		}
	}
}

// TestLargeBodyInOrder: a turn whose body is fetched is placed by what is in it,
// before what was said after it.
func TestLargeBodyInOrder(t *testing.T) {
	w := newWorld(t, nil)
	w.slow = true
	w.publish("s", schemas.EventTurn, fmt.Sprintf(`{"weir":{"turn":"u77"},"body_ref":{"digest":"%064d","bytes":77}}`, 77))
	w.chat("s", "u2", user("small"))
	w.publish("s", schemas.EventUserWait, `{"v":1}`)
	if len(w.ops) != 1 || w.ops[0].Fetch == nil {
		t.Fatalf("asked for %d things", len(w.ops))
	}
	w.slow = false
	w.run()
	want(t, "first", w.ready["u77"].Branch+" "+w.prompt("u77"), "main <user>large|<assistant>")
	want(t, "second", w.ready["u2"].Branch, "b2")
}

// TestManyBranches: 10,000 branches in a session; inferred ones are forgotten at
// the bound, others refused with a reason.
func TestManyBranches(t *testing.T) {
	const many = 10_000
	w := newWorld(t, func(c *Config) { c.MaxBranches = many })
	first := []string{system, longU, message("assistant", "ok")}
	w.chat("s", "u0", first[:2]...)
	w.answer("u0", "ok", "|")
	w.chat("s", "busy", append(first[:3:3], user("work"))...)
	start := time.Now()
	for i := 1; i < many; i++ {
		id := fmt.Sprint("u", i)
		w.chat("s", id, append(first[:3:3], user(id))...)
	}
	for i := 1; i < many; i++ {
		w.answer(fmt.Sprint("u", i), "ok", "|")
	}
	if n := len(w.l.sessions["t.s"].branches); n != many {
		t.Fatalf("%d branches", n)
	}
	w.answer("busy", "ok", "|")
	w.chat("s", "next", append(first[:3:3], user("u77"), message("assistant", "ok"), user("go on"))...)
	want(t, "finds its branch", w.ready["next"].Branch, w.results["s/u77"].Branch)
	w.chat("s", "more", user("something else"))
	want(t, "over the bound", w.failure("s", "more"), schemas.CodeBusy)
	if r := w.results["s/more"].Failure; !strings.Contains(r.Message, "10000 branches") {
		t.Errorf("%s", r.Message)
	}
	w.publish("s", schemas.EventTurn, `{"weir":{"turn":"more2","inferred":true},"messages":[`+user("something else")+`]}`)
	if w.ready["more2"] == nil || len(w.l.sessions["t.s"].branches) > many-many/20 {
		t.Errorf("%s, %d branches", w.failure("s", "more2"), len(w.l.sessions["t.s"].branches))
	}
	if took := time.Since(start); took > time.Minute {
		t.Errorf("took %s", took)
	}
}
