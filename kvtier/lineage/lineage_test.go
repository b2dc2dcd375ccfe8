package lineage

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-dev/weir/schemas"
)

// TestSecondTurn: whether a session goes on with a delta, or sends all messages
// again, the computed tokens of prompt and answer stand in the second prompt.
func TestSecondTurn(t *testing.T) {
	long := strings.Repeat("tell me more ", 10)
	full := func(id, answer string) string {
		return fmt.Sprintf(`{"weir":{"turn":%q},"messages":[{"role":"user","content":%q},{"role":"assistant","content":%q},{"role":"user","content":"and"}]}`, id, long, answer)
	}
	for _, c := range []struct {
		name, text, end, body, want string
	}{
		{"delta", "Hi!", "|", `{"weir":{"turn":"u2","known":"KNOWN"},"messages":[{"role":"user","content":"and"}]}`, "{Hi!|}"},
		{"full history", "Hi!", "|", full("u2", "Hi!"), "{Hi!|}"},
		{"an answer that the client changed", "Hi!", "|", full("u2", "Hi?"), "Hi?|"},
		// Cut at the limit: the template writes the end, which was not generated.
		{"cut at the limit", "Hi!", "", full("u2", "Hi!"), "{Hi!}|"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.turn("s", "u1", "main", long, "")
			want(t, "first", w.prompt("u1"), "<user>"+long+"|<assistant>")
			r := w.answer("u1", c.text, c.end)
			if c.end == "" {
				r.Finish = "length"
				w = newWorld(t, nil)
				w.turn("s", "u1", "main", long, "")
				w.store(r)
			}
			w.publish("s", schemas.EventTurn, strings.ReplaceAll(c.body, "KNOWN", r.Known()))
			want(t, "second", w.prompt("u2"), "<user>"+long+"|<assistant>"+c.want+"<user>and|<assistant>")
			p := w.ready["u2"].Prompt
			if blocks := len("<user>"+long+"|<assistant>") / 64; p.TailFrom < blocks*64 || !named(&p) {
				t.Errorf("the job carries tokens from %d on, path %+v", p.TailFrom, p.Path)
			}
		})
	}
}

// TestStopString: an answer that ended inside a token is not spliced: its text and
// its tokens do not correspond. The prompt before it is.
func TestStopString(t *testing.T) {
	w := newWorld(t, nil)
	w.turn("s", "u1", "main", "a", "")
	r := w.answer("u1", "HiSTOP", "")
	r.Text = "Hi"
	w = newWorld(t, nil)
	w.turn("s", "u1", "main", "a", "")
	w.store(r)
	w.turn("s", "u2", "main", "b", `,"known":"`+r.Known()+`"`)
	want(t, "second", w.prompt("u2"), "<user>a|<assistant>Hi|<user>b|<assistant>")
	if w.l.Counts().Spliced != uint64(len("<user>a|<assistant>")) {
		t.Errorf("spliced %d", w.l.Counts().Spliced)
	}
}

// TestTokens: prompts as tokens continue tokens.
func TestTokens(t *testing.T) {
	w := newWorld(t, nil)
	w.publish("s", schemas.EventTurn, `{"weir":{"turn":"u1","input_tokens":[65,66,67]}}`)
	r := w.answer("u1", "x", "|")
	w.publish("s", schemas.EventTurn, `{"weir":{"turn":"u2","known":"`+r.Known()+`","input_tokens":[68]}}`)
	want(t, "delta", w.prompt("u2"), "ABC{x|}D")
	w.answer("u2", "y", "|")
	w.publish("s", schemas.EventTurn, `{"weir":{"turn":"u3"},"prompt":[65,66,67,248,252]}`)
	want(t, "in full", w.prompt("u3"), "ABC{x|")
	r = w.answer("u3", "z", "|")
	// Messages cannot stand behind tokens, a text prompt behind nothing.
	w.turn("s", "u4", "main", "b", `,"known":"`+r.Known()+`"`)
	want(t, "messages behind tokens", w.failure("s", "u4"), schemas.CodeNeedFull)
	w.publish("s", schemas.EventTurn, `{"weir":{"turn":"u5","known":"`+r.Known()+`"},"prompt":"text"}`)
	want(t, "text behind tokens", w.failure("s", "u5"), schemas.CodeInvalid)
}

// TestIdempotent: a turn id means one turn; with other content it is a conflict
// that touches nobody but its caller.
func TestIdempotent(t *testing.T) {
	w := newWorld(t, nil)
	w.turn("s", "u1", "main", "a", "")
	w.turn("s", "u1", "main", "a", "")
	w.turn("s", "u1", "main", "other", "")
	if c := w.l.Counts(); c.Admitted != 1 || c.Duplicates != 1 || c.Conflicts != 1 || len(w.rejects) != 1 || w.rejects[0].Failure.Code != schemas.CodeConflict ||
		w.rejects[0].Digest != w.agent[2].Digest {
		t.Errorf("%+v, %+v", c, w.rejects)
	}
	w.answer("u1", "x", "|")
	w.turn("s", "u1", "main", "a", "")
	w.turn("s", "u1", "main", "other", "")
	want(t, "result", w.failure("s", "u1"), "ok")
	if len(w.rejects) != 2 {
		t.Errorf("%d conflicts", len(w.rejects))
	}
	w.turn("other", "u1", "main", "a", "") // of another session
	want(t, "another session", w.prompt("u1"), "<user>a|<assistant>")
}

// TestBranchOrder: turns of one branch run one after the other, those of others
// beside them; what waits is bounded.
func TestBranchOrder(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.MaxQueue = 2; c.MaxBranches = 2 })
	w.turn("s", "u1", "main", "a", "")
	w.turn("s", "u2", "main", "b", "")
	w.turn("s", "u3", "side", "c", "")
	w.turn("s", "u4", "main", "d", "")
	w.turn("s", "u5", "main", "e", "")
	w.turn("s", "u6", "third", "f", "")
	want(t, "u2", w.prompt("u2"), "not ready")
	want(t, "u3", w.prompt("u3"), "<user>c|<assistant>")
	want(t, "u5", w.failure("s", "u5"), schemas.CodeBusy)
	want(t, "u6", w.failure("s", "u6"), schemas.CodeBusy)
	w.answer("u1", "x", "|")
	want(t, "u2", w.prompt("u2"), "<user>b|<assistant>")
	want(t, "u4", w.prompt("u4"), "not ready")
	w.publish("s", schemas.EventCancel, `{"v":1,"turn":"u4"}`)
	want(t, "a waiting turn, cancelled", w.failure("s", "u4"), schemas.CodeCancelled)
	w.answer("u2", "y", "|")
	if w.l.sessions["t.s"].branches["main"].busy != nil {
		t.Error("the branch is still busy")
	}
}

// TestFork: a new branch begins with its parent's context.
func TestFork(t *testing.T) {
	w := newWorld(t, nil)
	w.turn("s", "u1", "main", "a", "")
	r := w.answer("u1", "x", "|")
	w.turn("s", "u2", "sub", "b", `,"parent":"main","known":"`+r.Known()+`"`)
	want(t, "fork", w.prompt("u2"), "<user>a|<assistant>{x|}<user>b|<assistant>")
	w.answer("u2", "y", "|")
	w.turn("s", "u3", "main", "c", `,"known":"`+r.Known()+`"`)
	want(t, "the parent goes on", w.prompt("u3"), "<user>a|<assistant>{x|}<user>c|<assistant>")
	w.turn("s", "u4", "sub2", "b", `,"parent":"nobody"`)
	want(t, "an unknown parent", w.failure("s", "u4"), schemas.CodeSession)
	w.turn("s", "u5", "sub", "b", `,"known":"0000"`)
	want(t, "an unknown prefix", w.failure("s", "u5"), schemas.CodeNeedFull)
}

// TestCancel in every state; a cancel is never lost, whatever READY does.
func TestCancel(t *testing.T) {
	cancel := func(w *world) { w.publish("s", schemas.EventCancel, `{"v":1,"turn":"u1"}`) }
	cancels := func(w *world) (n int) {
		for _, m := range w.sent {
			if m.Kind == schemas.KindReady && m.Ready.Cancel {
				n++
			}
		}
		return n
	}
	t.Run("ready", func(t *testing.T) {
		w := newWorld(t, nil)
		w.turn("s", "u1", "main", "a", "")
		cancel(w)
		if cancels(w) != 1 || w.failure("s", "u1") != "no result" {
			t.Errorf("%d cancels, %s", cancels(w), w.failure("s", "u1"))
		}
	})
	t.Run("rendering", func(t *testing.T) {
		w := newWorld(t, nil)
		w.slow = true
		w.turn("s", "u1", "main", "a", "")
		cancel(w)
		w.run()
		if cancels(w) != 1 && w.failure("s", "u1") != schemas.CodeCancelled {
			t.Errorf("%d cancels, %s", cancels(w), w.failure("s", "u1"))
		}
	})
	t.Run("ready from an earlier life", func(t *testing.T) {
		w := newWorld(t, nil)
		w.turn("s", "u1", "main", "a", "")
		w.slow = true
		w.restart(nil, nil)
		cancel(w)
		w.run()
		if cancels(w) != 1 {
			t.Errorf("%d cancels", cancels(w))
		}
	})
	t.Run("refused by a full READY", func(t *testing.T) {
		w := newWorld(t, nil)
		w.full[schemas.KindReady] = true
		w.turn("s", "u1", "main", "a", "")
		cancel(w)
		w.full = map[schemas.Kind]bool{}
		w.tick()
		want(t, "result", w.failure("s", "u1"), schemas.CodeCancelled)
		want(t, "ready", w.prompt("u1"), "not ready")
	})
	t.Run("itself refused by a full READY", func(t *testing.T) {
		w := newWorld(t, nil)
		w.turn("s", "u1", "main", "a", "")
		w.full[schemas.KindReady] = true
		cancel(w)
		w.tick()
		w.full = map[schemas.Kind]bool{}
		w.tick()
		if cancels(w) != 1 || w.tick() {
			t.Errorf("%d cancels", cancels(w))
		}
	})
	t.Run("ended and unknown", func(t *testing.T) {
		w := newWorld(t, nil)
		cancel(w)
		w.turn("s", "u1", "main", "a", "")
		w.answer("u1", "x", "|")
		cancel(w)
		if cancels(w) != 0 {
			t.Errorf("%d cancels", cancels(w))
		}
	})
}

// TestFullStreams: what a full stream refuses is published again until its
// deadline; a turn is never left without a result.
func TestFullStreams(t *testing.T) {
	w := newWorld(t, nil)
	w.full[schemas.KindReady], w.full[schemas.KindResult] = true, true
	w.turn("s", "u1", "main", "a", "")
	w.turn("s", "u2", "other", "a", "")
	w.turn("s", "bad", "third", "a", `,"known":"00"`)
	for range 5 {
		if !w.tick() {
			t.Fatal("nothing is tried again")
		}
	}
	delete(w.full, schemas.KindReady)
	w.tick()
	want(t, "u1", w.prompt("u1"), "<user>a|<assistant>")
	delete(w.full, schemas.KindResult)
	w.tick()
	want(t, "bad", w.failure("s", "bad"), schemas.CodeNeedFull)
	if w.tick() {
		t.Error("something is still tried again")
	}
	w.full[schemas.KindReady] = true
	w.turn("s", "late", "fourth", "a", "")
	w.now += 601 * second
	w.tick()
	want(t, "late", w.failure("s", "late"), schemas.CodeBusy)
}

// TestBounds: tokens of all sessions together, sessions and turn ids are bounded
// (invariant 8). What was forgotten asks for the whole text, and its old turns are
// looked up instead of run again.
func TestBounds(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.MaxTokens, c.MaxSessions, c.MaxTurns = 400, 5, 3 })
	one := func(s, id string) *schemas.Result {
		w.turn(s, id, "main", "hello", "")
		if w.ready[id] == nil {
			return w.results[s+"/"+id]
		}
		return w.answer(id, "Hi", "|")
	}
	first := one("s0", "a0")
	for i := 1; i < 30; i++ {
		one(fmt.Sprintf("s%d", i), fmt.Sprintf("a%d", i))
		if n, tokens := w.l.Load(); n > 5 || tokens > 400+64 {
			t.Fatalf("%d sessions, %d tokens", n, tokens)
		}
	}
	// Branches of one session grow, too.
	w2 := newWorld(t, func(c *Config) { c.MaxTokens = 200 })
	for i := range 20 {
		s := fmt.Sprintf("s%d", i%3)
		id := fmt.Sprintf("u%d", i)
		w2.turn(s, id, fmt.Sprintf("b%d", i), "hello", "")
		w2.answer(id, "Hi", "|")
	}
	if n, tokens := w2.l.Load(); tokens > 3*200 || n > 3 {
		t.Errorf("%d sessions, %d tokens", n, tokens)
	}
	w.turn("s0", "a99", "main", "x", `,"known":"`+first.Known()+`"`)
	want(t, "forgotten", w.failure("s0", "a99"), schemas.CodeNeedFull)
	// The old turn again: its result is found, and its branch goes on.
	before := len(w.asked)
	delete(w.ready, "a0")
	w.turn("s0", "a0", "main", "hello", "")
	want(t, "not run again", w.prompt("a0"), "not ready")
	if got := strings.Join(w.asked[before:], " "); got != "lookup render" {
		t.Errorf("asked %s", got)
	}
	w.turn("s0", "a1000", "main", "x", `,"known":"`+first.Known()+`"`)
	want(t, "goes on", w.prompt("a1000"), "<user>hello|<assistant>{Hi|}<user>x|<assistant>")
	for i := range 10 {
		id := fmt.Sprintf("b%d", i)
		w.turn("s1", id, "main", "x", "")
		w.answer(id, "y", "|")
	}
	if s := w.l.sessions["t.s1"]; len(s.turns) > 3 || len(s.order) > 3 {
		t.Errorf("%d turn ids are remembered", len(s.turns))
	}
}

// TestMessageBounds: stored messages are bounded as tokens are. A session that is
// too large alone loses the tokens of branches that were not used longest, and then
// their messages: they go on, or ask for all messages.
func TestMessageBounds(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.MaxBytes = 8000 })
	for i := range 40 {
		s, id := fmt.Sprintf("s%d", i), fmt.Sprintf("u%d", i)
		w.turn(s, id, "main", strings.Repeat("word ", 100), "")
		w.answer(id, "Hi", "|")
		if w.l.bytes > 8000+600 {
			t.Fatalf("%d bytes of messages after %d sessions", w.l.bytes, i+1)
		}
	}
	w = newWorld(t, func(c *Config) { c.MaxTokens = 1000 })
	known := ""
	for i := range 40 {
		id := fmt.Sprintf("u%d", i)
		w.turn("s", id, fmt.Sprintf("b%d", i), "hello", "")
		if r := w.answer(id, strings.Repeat("Hi", 40), "|"); i == 1 {
			known = r.Known()
		}
	}
	if c := w.l.Counts(); w.l.tokens > 1000+100 || c.Cooled == 0 || c.Forgotten != 0 {
		t.Errorf("%d tokens, %+v", w.l.tokens, c)
	}
	w.turn("s", "more", "b1", "again", `,"known":"`+known+`"`)
	want(t, "a branch without tokens", w.prompt("more"), "<user>hello|<assistant>"+strings.Repeat("Hi", 40)+"|<user>again|<assistant>")
	w = newWorld(t, func(c *Config) { c.MaxBytes = 80_000 })
	for i := range 40 {
		id := fmt.Sprintf("u%d", i)
		w.turn("s", id, fmt.Sprintf("b%d", i), strings.Repeat(id, 1000), "")
		if r := w.answer(id, "Hi", "|"); i == 1 {
			known = r.Known()
		}
	}
	if w.l.bytes > 80_000+4000 {
		t.Errorf("%d bytes of messages", w.l.bytes)
	}
	w.turn("s", "more", "b1", "again", `,"known":"`+known+`"`)
	want(t, "a branch without messages", w.failure("s", "more"), schemas.CodeNeedFull)
}

// TestEvents: branch states reach the tier nodes, also after a failure.
func TestEvents(t *testing.T) {
	w := newWorld(t, nil)
	states := func() string {
		var b []string
		for _, m := range w.sent {
			if m.Kind == schemas.KindBranch {
				b = append(b, m.Branch.Branch+" "+string(m.Branch.State)+" "+m.Branch.Tool)
			}
		}
		w.sent = nil
		return strings.TrimSpace(strings.Join(b, ", "))
	}
	w.publish("s", schemas.EventToolWait, `{"v":1}`)
	want(t, "unknown session", states(), "")
	w.turn("s", "u1", "main", "a", "")
	want(t, "ready", states(), "main running")
	w.answer("u1", "x", "|")
	want(t, "answered", states(), "main user-waiting")
	w.publish("s", schemas.EventToolWait, `{"v":1,"tool":"bash","expected_ns":5}`)
	want(t, "tool", states(), "main tool-waiting bash")
	w.turn("s", "u2", "main", "a", "")
	states()
	w.store(&schemas.Result{
		Header: schemas.H(), Tenant: "t", Session: "s", Turn: "u2", Attempt: 1, Status: schemas.StatusFailed, Failure: &schemas.Failure{Code: schemas.CodeDeadline},
	})
	want(t, "failed", states(), "main user-waiting")
	w.publish("s", schemas.EventCompacted, `{"v":1,"branch":"nobody"}`)
	want(t, "unknown branch", states(), "")
	w.publish("s", schemas.EventPrefixRewrite, `{"v":1}`)
	want(t, "rewritten", states(), "main superseded")
	w.publish("s", schemas.EventSessionEnd, `{"v":1}`)
	want(t, "ended", states(), "main ended")
}

// TestBodyByReference: a large body is fetched; ids stay those of the message.
func TestBodyByReference(t *testing.T) {
	w := newWorld(t, nil)
	ref := func(n int) string {
		return fmt.Sprintf(`{"weir":{"turn":"u%d","digest":"%064d"},"body_ref":{"digest":"%064d","bytes":%d}}`, n, n, n, n)
	}
	w.publish("s", schemas.EventTurn, ref(77))
	want(t, "fetched", w.prompt("u77"), "<user>large|<assistant>")
	w.publish("s", schemas.EventTurn, ref(77))
	w.publish("s", schemas.EventTurn, ref(78))
	if w.l.Counts().Duplicates != 1 {
		t.Errorf("%+v", w.l.Counts())
	}
	w.answer("u77", "x", "|")
	want(t, "missing", w.failure("s", "u78"), schemas.CodeInvalid)
}

// TestSeeds: the same stored turn draws the same seed, others draw others.
func TestSeeds(t *testing.T) {
	draw := func(id string) uint64 {
		w := newWorld(t, nil)
		w.turn("s", id, "main", "a", "")
		return w.ready[id].Sampling.Seed
	}
	first, again := draw("u1"), draw("u1")
	if first != again || first == draw("u2") || first>>53 != 0 {
		t.Error("seeds do not follow from what is stored")
	}
}

// TestTooLong: prompts that fit neither the context nor a message are refused with
// the numbers.
func TestTooLong(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Models[0].Context = 1 << 20 })
	w.turn("s", "u1", "main", strings.Repeat("x", 300_000), "")
	want(t, "no message holds it", w.failure("s", "u1"), schemas.CodeTooLong)
	w.turn("s", "u2", "main", strings.Repeat("x", 100_000), "")
	want(t, "fits", fmt.Sprint(w.ready["u2"].Prompt.N), "100018")
	w = newWorld(t, nil)
	w.turn("s", "u1", "main", strings.Repeat("x", 4000), "")
	want(t, "longer than the context", w.failure("s", "u1"), schemas.CodeTooLong)
}

// TestTokensRequest: ranges of a prompt in work; errors instead of panics.
func TestTokensRequest(t *testing.T) {
	w := newWorld(t, nil)
	w.turn("s", "u1", "main", "abc", "")
	for _, c := range []struct {
		turn     string
		from, to int
		want     string
	}{
		{"u1", 0, 6, "<user>"}, {"u1", 6, 9, "abc"}, {"u1", 0, 1000, "the range is longer than the prompt"}, {"nobody", 0, 1, "the turn is not known here"},
	} {
		out := w.l.Step(w.now, &schemas.Msg{
			Kind: schemas.KindTokensRequest, Reply: "r.1",
			TokensReq: &schemas.TokensRequest{Header: schemas.H(), Tenant: "t", Session: "s", Turn: c.turn, From: c.from, To: c.to},
		}, nil)
		got := out[0].TokensRep.Error
		for _, tok := range out[0].TokensRep.Tokens {
			got += string(rune(tok))
		}
		want(t, c.turn, got, c.want)
	}
}

// named reports whether path and rest name all whole blocks before the last token,
// path those before the tail.
func named(p *schemas.Prompt) bool {
	at := 0
	for _, e := range p.Path {
		at += e.N
	}
	if at*64 != p.TailFrom {
		return false
	}
	for _, e := range p.Rest {
		at += e.N
	}
	return at == (p.N-1)/64
}
