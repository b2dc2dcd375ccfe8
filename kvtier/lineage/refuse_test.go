package lineage

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/weir-dev/weir/schemas"
)

func small() *Lineage {
	l := New(Config{Cell: "c0", Models: []Model{{Name: "m", Digest: "d", Vocab: "v", Template: "t", Context: 100, Size: 50}}})
	l.started = 1
	return l
}

// publish gives a turn to lineage and returns the failure of its result, if any.
func publish(t *testing.T, l *Lineage, seq uint64, session, body string) *schemas.Failure {
	t.Helper()
	subject := schemas.AgentSubject("default", session, schemas.EventTurn)
	m, err := schemas.DecodeMsg(subject, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	m.Seq, m.At = seq, 1000
	return failure(l.Step(1000, &m, nil))
}

func failure(out []schemas.Msg) *schemas.Failure {
	for _, m := range out {
		if m.Kind == schemas.KindResult {
			return m.Result.Failure
		}
	}
	return nil
}

// TestRefusedBeforeRendering: what cannot succeed is refused with the field's name.
func TestRefusedBeforeRendering(t *testing.T) {
	user := `{"role":"user","content":"a"}`
	for _, c := range []struct{ body, code, param, says string }{
		{`{"messages":[` + user + strings.Repeat(","+user, 100) + `]}`, schemas.CodeTooLong, "messages", "101 messages"},
		{`{"messages":[` + user + `],"logit_bias":{"x":1}}`, schemas.CodeInvalid, "logit_bias", `"x"`},
		{`{"messages":[` + user + `],"logit_bias":{"50":1}}`, schemas.CodeInvalid, "logit_bias", "0 to 49"},
		{`{"messages":[` + user + `],"logit_bias":{"49":200}}`, schemas.CodeInvalid, "logit_bias", "200"},
		{`{"messages":[` + user + `],"weir":{"force_output":[1,50]}}`, schemas.CodeInvalid, "weir.force_output", "[1] is 50"},
		{`{"messages":[` + user + `],"tools":[{}]}`, schemas.CodeInvalid, "tools", "tools[0]"},
		{`{"messages":[` + user + `],"tools":[7]}`, schemas.CodeInvalid, "tools", "tools[0]"},
		{`{"messages":[` + user + `],"tools":[{"type":"function","function":{}}]}`, schemas.CodeInvalid, "tools", "name"},
		{`{"messages":[` + user + `],"tool_choice":"sometimes"}`, schemas.CodeInvalid, "tool_choice", "sometimes"},
		{`{"messages":[` + user + `],"tool_choice":"required"}`, schemas.CodeInvalid, "tool_choice", "no tools"},
		{`{"messages":[` + user + `],"tool_choice":{"type":"function"}}`, schemas.CodeInvalid, "tool_choice.function.name", "empty"},
		{`{"messages":[` + user + `],"tool_choice":{"type":"custom"}}`, schemas.CodeInvalid, "tool_choice.type", "custom"},
		{`{"messages":[` + user + `],"tool_choice":{"type":"allowed_tools"}}`, schemas.CodeInvalid, "tool_choice.allowed_tools", "missing"},
		{`{"messages":[` + user + `,{"role":"tool","tool_call_id":"c1","content":"x"}]}`, schemas.CodeInvalid, "messages[1].tool_call_id", "c1"},
		{`{"messages":[` + user + `,{"role":"assistant","tool_calls":[{"id":"c2","function":{"name":"f"}}]},{"role":"tool","tool_call_id":"c1","content":"x"}]}`, schemas.CodeInvalid, "messages[2].tool_call_id", "c1"},
		{`{"messages":[` + user + `],"tool_choice":17}`, schemas.CodeInvalid, "tool_choice", "object"},
		{`{"weir":{"input_tokens":[1,2],"deadline_ns":999}}`, schemas.CodeDeadline, "weir.deadline_ns", "passed"},
		{`{"weir":{"input_tokens":[1,-2]}}`, schemas.CodeInvalid, "weir.input_tokens", "-2"},
		{`{"weir":{"known":"ab"},"messages":[` + user + `]}`, schemas.CodeNeedFull, "weir.known", "all messages"},
		{`{"weir":{"branch":"b","parent":"p"},"messages":[` + user + `]}`, schemas.CodeSession, "weir.parent", `"p"`},
	} {
		f := publish(t, small(), 1, "s", c.body)
		if f == nil || f.Code != c.code || f.Param != c.param || !strings.Contains(f.Message, c.says) {
			t.Errorf("%.80s: %+v", c.body, f)
		}
	}
	for _, body := range []string{
		`{"messages":[` + user + `],"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"none"}`,
		`{"messages":[` + user + `],"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"required"}`,
		`{"messages":[` + user + `,{"role":"assistant","tool_calls":[{"id":"c1","function":{"name":"f"}}]},{"role":"tool","tool_call_id":"c1","content":"x"}]}`,
		`{"messages":[` + user + `],"tool_choice":"auto","logit_bias":{"49":-100}}`,
		`{"weir":{"input_tokens":[1,2],"deadline_ns":1001}}`,
	} {
		if f := publish(t, small(), 1, "s", body); f != nil {
			t.Errorf("%s: %+v", body, f)
		}
	}
}

// TestUnreadable: a body that cannot be read is answered once, and never in the
// place of a turn that was there before.
func TestUnreadable(t *testing.T) {
	l := small()
	subject := schemas.AgentSubject("default", "s", schemas.EventTurn)
	cause := errors.New("no JSON")
	if f := publish(t, l, 1, "s", `{"weir":{"turn":"t1","input_tokens":[1,2]}}`); f != nil {
		t.Fatal(f)
	}
	bad := []byte(`{"weir":{"turn":"t1"},"temperature":"hot"}`)
	out := l.Unreadable(1000, subject, 2, bad, cause)
	if len(out) != 1 || out[0].Kind != schemas.KindFrame || out[0].Frame.Reject == nil || out[0].Frame.Reject.Failure.Code != schemas.CodeConflict {
		t.Errorf("beside a good turn of that id: %+v", out)
	}
	out = l.Unreadable(1000, subject, 3, []byte("nonsense"), cause)
	if f := failure(out); f == nil || f.Code != schemas.CodeInvalid || out[0].Result.Turn != "t3" || f.Message != "no JSON" {
		t.Errorf("without an id: %+v", out)
	}
	if out = l.Unreadable(1000, subject, 3, []byte("nonsense"), cause); len(out) != 0 {
		t.Errorf("the same again: %+v", out)
	}
	if out = l.Unreadable(1000, subject, 4, []byte(`{"weir":{"turn":"t4"},"n":"x"}`), cause); len(out) != 1 || out[0].Result.Turn != "t4" {
		t.Errorf("with an id: %+v", out)
	}
	for _, s := range []string{"agent.default.s.cancel", "agent.default.*.turn", "ready.c0.default.s.t"} {
		if out = l.Unreadable(1000, s, 5, nil, cause); out != nil {
			t.Errorf("%s: %+v", s, out)
		}
	}
}

// TestOwedRefusal: a refusal that a full stream did not take is published again,
// and no snapshot says meanwhile that the turn is done with.
func TestOwedRefusal(t *testing.T) {
	l := small()
	if f := publish(t, l, 7, "s", `{"messages":[]}`); f == nil {
		t.Fatal("not refused")
	}
	subject := schemas.ResultSubject("default", "s", "t7")
	said := func(err string) []schemas.Msg {
		return l.Step(1000, &schemas.Msg{Kind: schemas.KindPublished, Subject: subject, Err: err}, nil)
	}
	said(schemas.ErrTextFull)
	if got := l.Seqs()["AGENT"]; got != 6 {
		t.Errorf("a snapshot would begin behind %d", got)
	}
	b, err := l.Snapshot(nil)
	if err != nil || strings.Contains(string(b), `"t7"`) {
		t.Errorf("the snapshot holds the turn: %s %v", b, err)
	}
	out := l.Step(l.Next(), &schemas.Msg{Kind: schemas.KindTick}, nil)
	if f := failure(out); f == nil {
		t.Errorf("not published again: %+v", out)
	}
	said("")
	if got := l.Seqs()["AGENT"]; got != 7 {
		t.Errorf("a snapshot would begin behind %d", got)
	}
	if b, err = l.Snapshot(nil); err != nil || !json.Valid(b) || !strings.Contains(string(b), `"t7"`) {
		t.Errorf("the snapshot lacks the turn: %s %v", b, err)
	}
}

// TestBusyQuestion: a question that is refused for lack of room is asked again,
// and the turn is not given up before its deadline.
func TestBusyQuestion(t *testing.T) {
	l := small()
	m, err := schemas.DecodeMsg(schemas.AgentSubject("default", "s", schemas.EventTurn), []byte(`{"weir":{"turn":"u"},"messages":[{"role":"user","content":"a"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	m.Seq, m.At = 1, 1000
	now := schemas.Time(1000)
	op := func(out []schemas.Msg) *schemas.Op {
		if f := failure(out); f != nil {
			t.Fatalf("refused: %+v", f)
		}
		for _, o := range out {
			if o.Kind == schemas.KindOp {
				return o.Op
			}
		}
		return nil
	}
	q := op(l.Step(now, &m, nil))
	for range 3 {
		if op(l.Step(now, &schemas.Msg{Kind: schemas.KindOpDone, OpDone: &schemas.OpDone{ID: q.ID, Err: "full", Code: schemas.CodeBusy}}, nil)) != nil {
			t.Fatal("asked again at once")
		}
		now = l.Next()
		if now == schemas.Never {
			t.Fatal("never asked again")
		}
		if q = op(l.Step(now, &schemas.Msg{Kind: schemas.KindTick}, nil)); q == nil || q.Render == nil {
			t.Fatalf("asked %+v", q)
		}
	}
	now += schemas.Time(l.cfg.DeadlineNS)
	f := failure(l.Step(now, &schemas.Msg{Kind: schemas.KindOpDone, OpDone: &schemas.OpDone{ID: q.ID, Err: "full", Code: schemas.CodeBusy}}, nil))
	if f == nil || f.Code != schemas.CodeBusy {
		t.Errorf("after the deadline: %+v", f)
	}
}
