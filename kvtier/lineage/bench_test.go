package lineage

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/weir-dev/weir/schemas"
)

// BenchmarkTurn is one small turn through lineage, from AGENT to its result: a
// session's next turn as a delta, or with its whole history.
func BenchmarkTurn(b *testing.B) {
	for _, style := range []string{"single", "delta", "history"} {
		b.Run(style, func(b *testing.B) { benchTurns(b, style) })
	}
}

func benchTurns(b *testing.B, style string) {
	l := New(Config{Cell: "c0", Models: []Model{{Name: "m", Digest: "d", Vocab: "v", Template: "t", Context: 1 << 20, Size: 50000}}})
	now := schemas.Time(1000 * second)
	l.Step(now, &schemas.Msg{Kind: schemas.KindHeartbeat, Heartbeat: &schemas.Heartbeat{
		Header: schemas.H(), Executor: "e0", Node: "n0", Pool: "m", Format: schemas.KVFormat{Engine: "fake", Version: "1", Numerics: "none", Layout: 1},
	}}, nil)
	const perSession = 16
	user := `{"role":"user","content":"` + strings.Repeat("word ", 60) + `"}`
	var out []schemas.Msg
	var known string
	var history []string
	text := ""
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		n := i % perSession
		if style == "single" || n == 0 {
			known, history, text = "", nil, ""
		}
		session := fmt.Sprint("s", i/perSession)
		if style == "single" {
			session = fmt.Sprint("s", i)
		}
		history = append(history, user)
		body := fmt.Sprintf(`{"weir":{"turn":"u%d"},"messages":[%s]}`, n, strings.Join(history, ","))
		if style == "delta" && known != "" {
			body = fmt.Sprintf(`{"weir":{"turn":"u%d","known":%q},"messages":[%s]}`, n, known, user)
		}
		m := schemas.Msg{Kind: schemas.KindTurn, Subject: schemas.AgentSubject("t", session, schemas.EventTurn), Seq: uint64(i + 1), At: now, Digest: fmt.Sprint(i), Turn: &schemas.Turn{}}
		if err := json.Unmarshal([]byte(body), m.Turn); err != nil {
			b.Fatal(err)
		}
		now += 1000
		out = l.Step(now, &m, out[:0])
		var op *schemas.Op
		for _, o := range out {
			if o.Kind == schemas.KindOp {
				op = o.Op
			}
		}
		text += "user " + user + " assistant "
		reply := schemas.RenderReply{Header: schemas.H(), Text: text, Matched: len(op.Render.Request.Known)}
		reply.Tokens = make(schemas.Tokens, 64)
		for j := range reply.Tokens {
			reply.Tokens[j] = int32(i + j)
		}
		out = l.Step(now, &schemas.Msg{Kind: schemas.KindOpDone, OpDone: &schemas.OpDone{ID: op.ID, Render: &schemas.RenderDone{Reply: reply}}}, out[:0])
		var r *schemas.Ready
		for _, o := range out {
			if o.Kind == schemas.KindReady {
				r = o.Ready
			}
		}
		if r == nil {
			b.Fatalf("not ready: %+v", out)
		}
		res := &schemas.Result{
			Header: schemas.H(), Tenant: "t", Session: session, Turn: r.Turn, Branch: r.Branch, Job: r.Job, Attempt: 1, Status: schemas.StatusOK,
			Text: "an answer of a few words", End: "|", Finish: "stop", Tokens: make(schemas.Tokens, 32),
		}
		text += res.Text + "|"
		history = append(history, `{"role":"assistant","content":"an answer of a few words"}`)
		known = res.Known()
		out = l.Step(now, &schemas.Msg{Kind: schemas.KindResult, Seq: uint64(i + 1), Result: res}, out[:0])
	}
}
