package gateway

import (
	"encoding/json"

	"github.com/weir-dev/weir/gpuexec/chat"
	"github.com/weir-dev/weir/schemas"
)

// delta is a part of an answer.
type delta = chat.Delta

// newParser makes the parser that a frame or result names.
func newParser(spec, job string) (*chat.Parser, error) {
	s, err := chat.ParseSpec(spec)
	if err != nil {
		return nil, err
	}
	return chat.NewParser(s, job), nil
}

// replyOf parses a result. The message that the decoding executor made counts;
// where it made none, its text is parsed here.
func replyOf(r *schemas.Result, a *about) *reply {
	out := &reply{Result: r, Finish: r.Finish, About: a}
	raw := r.Message
	if len(raw) == 0 && r.Parse != "" {
		if p, err := newParser(r.Parse, schemas.JobID(r.Tenant, r.Session, r.Turn)); err == nil {
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
