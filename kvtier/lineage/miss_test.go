package lineage

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-dev/weir/schemas"
)

// TestMiss: every cause that the text decides is found, with the message and the
// byte where it begins.
func TestMiss(t *testing.T) {
	sys := func(s string) string { return message("system", strings.Repeat("be good ", 20)+s) }
	tool := func(n int, s string) string {
		return fmt.Sprintf(`{"role":"tool","tool_call_id":"c%d","content":%q}`, n, strings.Repeat(s, 100))
	}
	call := func(n int) string {
		return fmt.Sprintf(`{"role":"assistant","content":null,"tool_calls":[{"id":"c%d","type":"function","function":{"name":"f","arguments":"{}"}}]}`, n)
	}
	ok := message("assistant", "ok")
	image := fmt.Sprintf(`{"role":"user","content":[{"type":"text","text":"see"},{"type":"image_url","image_url":{"url":"%s%064d"}}]}`, mediaRef, 1)
	body := func(more string, messages ...string) string {
		return `{"weir":{"turn":"u2"` + more + `,"messages":[` + strings.Join(messages, ",") + `]}`
	}
	base := []string{sys(""), longU}
	for _, c := range []struct {
		name    string
		first   []string
		more    string // of the first turn
		answer  string // its message; what is generated is its text
		gen     string
		keeps   bool
		reasons bool
		second  string
		miss    schemas.Miss // Known and Lost are checked apart
		lost    bool
	}{
		{name: "new text", first: base, second: body("}", sys(""), longU, ok, user("go")), miss: schemas.Miss{Cause: schemas.MissNewText, Message: 3}},
		{name: "retry", first: base, second: body("}", sys(""), longU), miss: schemas.Miss{Cause: schemas.MissNewText, Message: 2}, lost: true},
		{name: "system", first: base, second: body("}", sys("!"), longU, ok, user("go")), miss: schemas.Miss{Cause: schemas.MissSystem, Message: 0, Byte: 160}, lost: true},
		{
			name: "tools", first: base, second: body(`},"tools":[{"type":"function","function":{"name":"f"}}]`, sys(""), longU, ok, user("go")),
			miss: schemas.Miss{Cause: schemas.MissTools, Message: -1}, lost: true,
		},
		{
			name: "template options", first: base, second: body(`},"chat_template_kwargs":{"enable_thinking":true}`, sys(""), longU, ok, user("go")),
			miss: schemas.Miss{Cause: schemas.MissTemplate, Message: -1}, lost: true,
		},
		{
			name: "template options, spelt otherwise", first: base, more: `},"chat_template_kwargs":{"a":1,"b":2}`,
			second: body(`},"chat_template_kwargs":{"b":2.0,"a":1}`, sys(""), longU, ok, user("go")), miss: schemas.Miss{Cause: schemas.MissNewText, Message: 3},
		},
		{name: "model", first: base, second: body(`},"model":"m2"`, sys(""), longU, ok, user("go")), miss: schemas.Miss{Cause: schemas.MissModel, Message: -1}, lost: true},
		{name: "rewrite", first: base, second: body("}", sys(""), user(strings.Repeat("a long story ", 59)+"and"), ok, user("go")), miss: schemas.Miss{Cause: schemas.MissRewrite, Message: 1, Byte: 768}, lost: true},
		{name: "compaction", first: base, second: body("}", sys(""), user("in short"), ok, user("go")), miss: schemas.Miss{Cause: schemas.MissCompaction, Message: 1}, lost: true},
		{
			name: "pruned tool result", first: []string{sys(""), user("a"), call(1), tool(1, "x"), call(2), tool(2, "y")},
			second: body("}", sys(""), user("a"), call(1), `{"role":"tool","tool_call_id":"c1","content":"removed"}`, call(2), tool(2, "y"), ok, user("go")),
			miss:   schemas.Miss{Cause: schemas.MissPruned, Message: 3}, lost: true,
		},
		{
			name: "pruned image", first: []string{sys(""), user("a"), ok, image}, second: body("}", sys(""), user("a"), ok, user("see"), ok, user("go")),
			miss: schemas.Miss{Cause: schemas.MissPruned, Message: 3, Byte: 3}, lost: true,
		},
		{
			name: "reasoning", first: base, answer: `{"role":"assistant","content":"ok","reasoning_content":"hm"}`, gen: "~" + strings.Repeat("hm", 100) + "ok", reasons: true,
			second: body("}", sys(""), longU, ok, user("go")), miss: schemas.Miss{Cause: schemas.MissReasoning, Message: 2, Detail: "reasoning"}, lost: true,
		},
		{
			name: "reworded", first: base, answer: ok, gen: "ok", second: body("}", sys(""), longU, message("assistant", "OK"), user("go")),
			miss: schemas.Miss{Cause: schemas.MissRewrite, Message: 2}, lost: true,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, func(c *Config) {
				c.Models = append(c.Models, Model{Name: "m2", Digest: "d2", Vocab: "v", Template: "tpl", Context: 4000, Size: 256})
			})
			w.keeps, w.reasons = c.keeps, c.reasons
			if c.more == "" {
				c.more = "}"
			}
			w.publish("s", schemas.EventTurn, `{"weir":{"turn":"u1"`+c.more+`,"messages":[`+strings.Join(c.first, ",")+`]}`)
			if m := w.ready["u1"].Miss; m.Cause != schemas.MissFirst || m.Message != -1 || m.Known != 0 {
				t.Errorf("first: %+v", m)
			}
			if c.answer == "" {
				c.answer, c.gen = ok, "ok"
			}
			w.answer("u1", c.gen, "|", says(c.answer))
			w.publish("s", schemas.EventTurn, c.second)
			r := w.ready["u2"]
			if r == nil {
				t.Fatalf("not ready: %+v", w.results["s/u2"].Failure)
			}
			m := *r.Miss
			if m.Known < r.Prompt.TailFrom || m.Known > r.Prompt.N || (m.Lost > 0) != c.lost {
				t.Errorf("%d tokens are known and %d lost of %d; the tail begins at %d", m.Known, m.Lost, r.Prompt.N, r.Prompt.TailFrom)
			}
			m.Known, m.Lost = 0, 0
			if m != c.miss {
				t.Errorf("got %+v, want %+v", m, c.miss)
			}
			if r.ReadyNS == 0 || r.Parse != "fake" {
				t.Errorf("ready at %d, parsed as %q", r.ReadyNS, r.Parse)
			}
		})
	}
}

// TestKeysOfOptions: equal tokens under other options, models or tenants are other
// blocks, and nothing of them counts as computed.
func TestKeysOfOptions(t *testing.T) {
	w := newWorld(t, nil)
	w.chat("s", "u1", longU)
	w.answer("u1", "ok", "|")
	w.publish("s", schemas.EventTurn, `{"weir":{"turn":"u2"},"chat_template_kwargs":{"a":1},"messages":[`+longU+`,`+message("assistant", "ok")+`,`+user("go")+`]}`)
	a, b := w.ready["u1"], w.ready["u2"]
	if a.Keys.Template != "tpl" || !strings.HasPrefix(b.Keys.Template, "tpl+") || len(b.Keys.Template) != 4+32 {
		t.Errorf("%q, %q", a.Keys.Template, b.Keys.Template)
	}
	if b.Prompt.TailFrom != 0 || b.Prompt.Path != nil {
		t.Errorf("blocks of other options count: %+v", b.Prompt.Path)
	}
	w.answer("u2", "ok", "|")
	w.publish("s", schemas.EventTurn, `{"weir":{"turn":"u3"},"chat_template_kwargs":{"a":1},"messages":[`+longU+`,`+message("assistant", "ok")+`,`+user("go")+`,`+message("assistant", "ok")+`,`+user("on")+`]}`)
	if p := w.ready["u3"].Prompt; p.TailFrom == 0 {
		t.Errorf("blocks of the same options do not count: %+v", p)
	}
}
