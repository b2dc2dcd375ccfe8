package gateway

import (
	"encoding/json"

	"github.com/weir-dev/weir/schemas"
)

// delta is a part of an answer as chat.Parser yields it.
type delta struct {
	Content, Reasoning  string
	Call                int // index of the tool call, -1 for none
	ID, Name, Arguments string
}

// textParser turns generated text into deltas.
type textParser interface {
	Add(text string) []delta
	End() []delta
	Message() json.RawMessage
	Calls() int
}

// newParser makes the parser that a frame or result names; nil means that the
// text is the content.
func newParser(spec, job string) (textParser, error) {
	return nil, nil
}

// replyOf parses a result. The message that the decoding executor made counts;
// where it made none, its text is parsed here.
func replyOf(r *schemas.Result, a *about) *reply {
	out := &reply{Result: r, Finish: r.Finish, About: a}
	raw := r.Message
	if len(raw) == 0 && r.Parse != "" {
		if p, err := newParser(r.Parse, schemas.JobID(r.Tenant, r.Session, r.Turn)); err == nil && p != nil {
			p.Add(r.Text)
			p.End()
			raw = p.Message()
		}
	}
	if len(raw) == 0 || json.Unmarshal(raw, &out.Message) != nil {
		out.Message = message{Content: &r.Text}
	}
	out.Message.Role = "assistant"
	switch {
	case out.Finish == "":
		out.Finish = "stop"
	case out.Finish == "stop" && len(out.Message.Calls) > 0:
		out.Finish = "tool_calls"
	}
	return out
}
