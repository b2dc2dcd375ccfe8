package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/weir-dev/weir/schemas"
)

// TestClients: what agents send without knowing of weir, and where that places
// their turns. The headers are those of the clients' releases of 2026.
func TestClients(t *testing.T) {
	const uuid = "6077ec0e-253c-4954-af89-ef7685f11142"
	for _, c := range []struct {
		name            string
		header          []string // name, value, …
		more            string   // of the body
		session, branch string
		hint            schemas.TurnHint
		priority        int
	}{
		{
			name: "Claude Code", session: uuid,
			header: []string{"user-agent", "claude-cli/2.1.142 (external, cli)", "x-app", "cli", "x-claude-code-session-id", uuid, "x-stainless-retry-count", "0"},
		},
		{
			name: "Claude Code, sub-agent", session: uuid, branch: "a7f3c2d9",
			header: []string{"x-claude-code-session-id", uuid, "x-claude-code-agent-id", "a7f3c2d9", "x-claude-code-parent-agent-id", "b1"},
		},
		{
			name: "Claude Code without headers", session: uuid,
			more: `,"metadata":{"user_id":"user_0a1b_account_1111-22_session_` + uuid + `"}`,
		},
		{
			name: "Claude Code with JSON in the user", session: uuid,
			more: `,"metadata":{"user_id":"{\"device_id\":\"d\",\"account_uuid\":\"\",\"session_id\":\"` + uuid + `\"}"}`,
		},
		{
			name: "Codex", session: uuid,
			header: []string{
				"originator", "codex_cli_rs", "session-id", uuid, "thread-id", uuid, "x-codex-window-id", uuid + ":0",
				"x-codex-turn-metadata", `{"session_id":"` + uuid + `","thread_id":"` + uuid + `","turn_id":"t","sandbox":"none","request_kind":"turn"}`,
			},
			more: `,"prompt_cache_key":"` + uuid + `","store":false`,
		},
		{
			name: "Codex, compaction", session: uuid, hint: schemas.HintCompaction,
			header: []string{
				"session-id", uuid, "thread-id", uuid,
				"x-codex-turn-metadata", `{"session_id":"` + uuid + `","request_kind":"compaction","compaction":{"trigger":"auto","reason":"context_limit","phase":"mid_turn"}}`,
			},
		},
		{
			name: "Codex, sub-agent", session: uuid, branch: "child",
			header: []string{"session-id", uuid, "thread-id", "child", "x-codex-parent-thread-id", uuid, "x-openai-subagent", "collab_spawn"},
		},
		{
			name: "Codex, sub-agent with threads only", session: uuid, branch: "child",
			header: []string{"thread-id", "child", "x-codex-parent-thread-id", uuid},
		},
		{name: "Codex, thread only", session: uuid, header: []string{"thread-id", uuid}},
		{name: "Codex of 2025", session: uuid, header: []string{"conversation_id", uuid, "session_id", uuid}},
		{
			name: "Codex, only its metadata", session: uuid, branch: "child",
			header: []string{"x-codex-turn-metadata", `{"session_id":"` + uuid + `","thread_id":"child"}`},
		},
		{name: "Codex, metadata that is no JSON", session: "s", header: []string{"session-id", "s", "x-codex-turn-metadata", "{"}},
		{
			name: "OpenCode", session: "ses_a",
			header: []string{"user-agent", "opencode/1.2", "x-session-affinity", "ses_a", "x-session-id", "ses_a"},
		},
		{
			name: "OpenCode, sub-agent", session: "ses_a", branch: "ses_b",
			header: []string{"x-session-affinity", "ses_b", "x-session-id", "ses_b", "x-parent-session-id", "ses_a"},
		},
		{name: "OpenCode, affinity only", session: "ses_a", header: []string{"x-session-affinity", "ses_a"}},
		{
			name: "Dynamo", session: "d1",
			header: []string{"x-dynamo-session-id", "d1", "x-dynamo-request-priority", "7", "x-dynamo-strict-priority", "1", "x-tenant-id", "other"},
			more:   `,"nvext":{"agent_hints":{"priority":5,"strict_priority":1,"osl":200,"speculative_prefill":true}}`, priority: 7,
		},
		{name: "Dynamo, priority in the body", session: "d1", header: []string{"x-dynamo-session-id", "d1"}, more: `,"nvext":{"agent_hints":{"priority":-5}}`, priority: -5},
		{name: "Dynamo, a priority without bound", session: "d1", header: []string{"x-dynamo-session-id", "d1", "x-dynamo-request-priority", "100000"}, priority: 3600},
		{name: "Dynamo, a priority that is none", session: "d1", header: []string{"x-dynamo-session-id", "d1", "x-dynamo-request-priority", "high"}},
		{name: "weir's own priority wins", session: "d1", header: []string{"x-dynamo-session-id", "d1", "x-dynamo-request-priority", "7"}, more: `,"weir":{"priority":2}`, priority: 2},
		{name: "Dynamo, sub-agent", session: "d1", branch: "d2", header: []string{"x-dynamo-session-id", "d2", "x-dynamo-parent-session-id", "d1"}},
		{
			name: "Dynamo, agent_context", session: "d1", branch: "d2", hint: schemas.HintCompaction,
			more: `,"nvext":{"agent_context":{"session_id":"d2","parent_session_id":"d1","session_type_id":"x","compaction":{"trigger":"auto"}}}`,
		},
		{
			name: "weir's own header wins", session: "w", branch: "b",
			header: []string{headerSession, "w", headerBranch, "b", "x-dynamo-session-id", "d", "x-claude-code-session-id", "c", "x-claude-code-agent-id", "a"},
		},
		{
			name: "the order", session: "c", branch: "a",
			header: []string{"x-claude-code-session-id", "c", "x-claude-code-agent-id", "a", "session-id", "x", "x-session-id", "o"},
		},
		{name: "blank ids are none", session: "o", header: []string{"x-claude-code-session-id", "  ", "x-session-id", "o"}},
		{name: "ids that are none of weir's", session: schemas.CleanID("ses/ä 1"), branch: schemas.CleanID("b.c"), header: []string{headerSession, "ses/ä 1", headerBranch, "b.c"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newFake(t, Options{})
			k.scripts["hi"] = hello
			a := k.post("/v1/chat/completions", chatBody("hi", c.more), c.header...)
			if a.status != 200 {
				t.Fatalf("%d %s", a.status, a.body)
			}
			ref, turn := within(t, k.refs), within(t, k.turns)
			if ref.Session != c.session || turn.Weir.Branch != c.branch || turn.Weir.Hint != c.hint || turn.Weir.Priority != c.priority || turn.Weir.Inferred || turn.Weir.Parent != "" {
				t.Errorf("session %q, turn %+v; want session %q, branch %q, hint %q, priority %d", ref.Session, turn.Weir, c.session, c.branch, c.hint, c.priority)
			}
			if ref.Tenant != schemas.DefaultTenant {
				t.Errorf("tenant %q: no header may choose it", ref.Tenant)
			}
			if turn.Metadata != nil || turn.PromptCacheKey != nil || turn.NVExt != nil || turn.Store != nil {
				t.Errorf("the turn still has what only the gateway reads: %+v", turn.Body)
			}
		})
	}
}

// TestClientMetadata: what a client behind a web socket says in the body of a
// Responses request counts as its headers do, after them.
func TestClientMetadata(t *testing.T) {
	for meta, want := range map[string]identity{
		`{"session_id":"s","thread_id":"child","x-codex-turn-metadata":"{\"request_kind\":\"compaction\"}"}`: {session: "s", branch: "child", hint: schemas.HintCompaction},
		`{"thread_id":"child","X-Codex-Parent-Thread-Id":"s","n":1}`:                                         {session: "s", branch: "child"},
		`{"x-codex-installation-id":"i"}`:                                                                    {},
		`7`:                                                                                                  {},
	} {
		if got := identify(clues{header: http.Header{}, body: saidIn([]byte(meta))}); got != want {
			t.Errorf("%s gives %+v, want %+v", meta, got, want)
		}
	}
	h := http.Header{"Session-Id": {"h"}, "Thread-Id": {"h"}}
	if got := identify(clues{header: h, body: map[string]string{"session_id": "s", "thread_id": "child"}}); got.session != "h" || got.branch != "" {
		t.Errorf("headers and body give %+v", got)
	}
}

// TestInferredSession: without any name, turns of a conversation meet in one
// session as it grows, and conversations that begin otherwise do not.
func TestInferredSession(t *testing.T) {
	k := newFake(t, Options{Models: []Model{{Name: "tiny"}}})
	place := func(body string, header ...string) (string, *schemas.Turn) {
		t.Helper()
		h := http.Header{}
		for i := 0; i+1 < len(header); i += 2 {
			h.Set(header[i], header[i+1])
		}
		r := &http.Request{Header: h}
		c, e := openai{text: strings.Contains(body, `"prompt":`)}.parse(k.g, r, []byte(body))
		if e == nil {
			c.model = first(c.turn.Model, k.g.fleet.defaultModel())
			e = k.g.place(r, c)
		}
		if e != nil {
			t.Fatalf("%s: %+v", body, e)
		}
		return c.session, c.turn
	}
	body := func(messages, more string) string { return fmt.Sprintf(`{"messages":[%s]%s}`, messages, more) }
	const system, user = `{"role":"system","content":"You are S."}`, `{"role":"user","content":"Fix it"}`
	base, turn := place(body(system+","+user, ""))
	if !strings.HasPrefix(base, "i-") || !schemas.ValidID(base) || !turn.Weir.Inferred || turn.Weir.Branch != "" {
		t.Fatalf("session %q, turn %+v", base, turn.Weir)
	}
	for name, same := range map[string]string{
		"again":           body(system+","+user, ""),
		"grown":           body(system+","+user+`,{"role":"assistant","content":"ok"},{"role":"user","content":"more"}`, ""),
		"model by name":   body(system+","+user, `,"model":"tiny"`),
		"other options":   body(system+","+user, `,"temperature":0.5,"stream":true,"tools":[]`),
		"keys in a row":   body(`{"content":"You are S.","role":"system"},{"content":[{"type":"text","text":"Fix it"}],"role":"user"}`, ""),
		"cache marks":     body(system+`,{"role":"user","content":[{"type":"text","text":"Fix it","cache_control":{"type":"ephemeral"}}]}`, `,"cache_control":{"type":"ephemeral"}`),
		"inferred itself": body(system+","+user, `,"weir":{"inferred":true}`),
	} {
		if s, _ := place(same); s != base {
			t.Errorf("%s: session %q, want %q", name, s, base)
		}
	}
	seen := map[string]string{base: "base"}
	for name, other := range map[string]string{
		"system":    body(`{"role":"system","content":"You are T."},`+user, ""),
		"user":      body(system+`,{"role":"user","content":"Fix that"}`, ""),
		"model":     body(system+","+user, `,"model":"large"`),
		"cache key": body(system+","+user, `,"prompt_cache_key":"a"`),
		"user id":   body(system+","+user, `,"user":"u"`),
		"no user":   body(system, ""),
		"prompt":    `{"prompt":"Fix it"}`,
		"branch":    body(system+","+user, `,"weir":{"branch":"b"}`),
		"known":     body(system+","+user, `,"weir":{"known":"00"}`),
	} {
		s, turn := place(other)
		if was := seen[s]; was != "" {
			t.Errorf("%s has the session of %s", name, was)
		}
		seen[s] = name
		if inferred := strings.HasPrefix(s, "i-"); inferred != turn.Weir.Inferred {
			t.Errorf("%s: session %q, inferred %v", name, s, turn.Weir.Inferred)
		}
	}
}

// TestCacheControl: marks change neither what is published nor its digest, and
// what merely has that name stays.
func TestCacheControl(t *testing.T) {
	for _, c := range []struct{ in, inner, want string }{
		{`{"role":"user","content":"x"}`, "content", `{"role":"user","content":"x"}`},
		{`{"role":"user","content":"cache_control"}`, "content", `{"role":"user","content":"cache_control"}`},
		{`{"cache_control":{"type":"ephemeral"},"role":"user","content":"x"}`, "content", `{"role":"user","content":"x"}`},
		{
			`{"role":"user","content":[{"type":"text","text":"a\u00e9","cache_control":{"ttl":"1h"}},{"type":"text","text":"b"}],"cache_control":null}`, "content",
			`{"role":"user","content":[{"type":"text","text":"a\u00e9"},{"type":"text","text":"b"}]}`,
		},
		{
			`{"type":"function","cache_control":{},"function":{"name":"f","cache_control":{},"parameters":{"properties":{"cache_control":{"type":"string"}}}}}`, "function",
			`{"type":"function","function":{"name":"f","parameters":{"properties":{"cache_control":{"type":"string"}}}}}`,
		},
		{`{"role":"assistant","tool_calls":[{"function":{"arguments":"{\"cache_control\":1}"}}]}`, "content", `{"role":"assistant","tool_calls":[{"function":{"arguments":"{\"cache_control\":1}"}}]}`},
		{`["cache_control"]`, "content", `["cache_control"]`},
		{`"cache_control"`, "content", `"cache_control"`},
		{`{"cache_control":`, "content", `{"cache_control":`},
	} {
		if got := string(without([]byte(c.in), c.inner)); got != c.want {
			t.Errorf("%s\nbecame %s\n  want %s", c.in, got, c.want)
		}
	}
}

// FuzzCacheControl: what is valid JSON stays it, loses no other member, and a
// second pass changes nothing.
func FuzzCacheControl(f *testing.F) {
	for _, s := range []string{
		`{"cache_control":{},"content":[{"cache_control":1,"text":"\ud83d\ude00"}]}`, `[{"cache_control":null}]`, `{"content":{"cache_control":{}}}`,
		`{"a":1,"a":2,"cache_control":3}`, `{"cache_control"`, `{"content":"cache_control \u0000"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		out := without(b, "content")
		if json.Valid(b) != json.Valid(out) {
			t.Fatalf("%q became %q", b, out)
		}
		if again := without(out, "content"); !bytes.Equal(again, out) {
			t.Errorf("%q became %q, then %q", b, out, again)
		}
		var was, is map[string]json.RawMessage
		if json.Unmarshal(b, &was) != nil {
			return
		}
		if err := json.Unmarshal(out, &is); err != nil {
			t.Fatal(err)
		}
		delete(was, "cache_control")
		for k := range was {
			if _, has := is[k]; !has {
				t.Errorf("%q lost %q: %q", b, k, out)
			}
		}
		if len(is) != len(was) {
			t.Errorf("%q became %q", b, out)
		}
	})
}

func TestNVExt(t *testing.T) {
	k := newFake(t, Options{})
	for _, c := range []struct{ ext, code, param string }{
		{`7`, "invalid_request", "nvext"},
		{`{"agent_hints":{"osl":"many"}}`, "invalid_request", "nvext.agent_hints.osl"},
		{`{"top_k":7}`, "unknown_parameter", "nvext.top_k"},
		{`{"agent_hints":{"speed":7}}`, "unknown_parameter", "nvext.speed"},
	} {
		a := k.post("/v1/chat/completions", chatBody("x", `,"nvext":`+c.ext))
		m := a.object(t)
		if a.status != 400 || at(m, "error", "code") != c.code || at(m, "error", "param") != c.param {
			t.Errorf("%s: %d %s", c.ext, a.status, a.body)
		}
	}
}

// TestFinalTurn: a client that says with a turn that it was the last one ends its
// session, or only its branch when it is a sub-agent.
func TestFinalTurn(t *testing.T) {
	k := newFake(t, Options{})
	k.scripts["hi"] = hello
	kinds := make(chan string, 8)
	if _, err := k.nc.Subscribe("agent.default.d1.*", func(m *nats.Msg) {
		kinds <- m.Subject
	}); err != nil {
		t.Fatal(err)
	}
	if err := k.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		header       []string
		kind, branch string
	}{
		{[]string{"x-dynamo-session-id", "d1", "x-dynamo-session-final", "true"}, "session_end", ""},
		{[]string{"x-dynamo-session-id", "d2", "x-dynamo-parent-session-id", "d1", "x-dynamo-session-final", "True"}, "branch_end", "main"},
	} {
		if a := k.post("/v1/chat/completions", chatBody("hi", ""), c.header...); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		if s := within(t, kinds); s != "agent.default.d1.turn" {
			t.Fatalf("first comes %s", s)
		}
		if s := within(t, kinds); s != "agent.default.d1."+c.kind {
			t.Errorf("the turn is followed by %s, want a %s", s, c.kind)
		}
		if e := within(t, k.events); e.Branch != c.branch {
			t.Errorf("the event is %+v, want branch %q", e, c.branch)
		}
	}
}
