package lineage

import (
	"encoding/json"
	"strings"

	"github.com/weir-dev/weir/schemas"
)

// render is the fake template and tokenizer.
func (w *world) render(r *schemas.RenderRequest) schemas.RenderReply {
	text := r.Text
	reply := schemas.RenderReply{Header: schemas.H(), Parse: "fake", Uncached: w.uncached}
	var images []schemas.MediaSpan
	for _, tool := range r.Tools {
		text += "[" + string(tool) + "]"
	}
	prefix, afterAnswer := 0, ""
	for i, raw := range r.Messages {
		m, err := readFake(raw)
		if err != nil {
			return schemas.RenderReply{Header: schemas.H(), Failure: &schemas.Failure{Code: schemas.CodeInvalid, Message: "no message", Param: "messages"}}
		}
		if r.Answer != nil && i == r.Answer.At {
			prefix = len(text)
		}
		text += "<" + m.role + ">"
		for k, part := range m.parts {
			if m.images[k] != "" {
				images = append(images, schemas.MediaSpan{Digest: digestText(m.images[k]), Offset: len(text), Length: 8, Ref: m.images[k]})
				part = "########"
			}
			text += part
		}
		if w.reasons && i > w.lastUser(r.Messages) || w.keeps {
			text += m.reasoning
		}
		text += m.calls
		if r.Answer != nil && i == r.Answer.At {
			afterAnswer = text
		}
		text += "|"
	}
	if len(r.Messages) > 0 {
		text += "<assistant>"
	}
	reply.Text = text
	rest, from := text, 0
	for i := len(r.Known) - 1; i >= 0; i-- {
		if k := r.Known[i]; k.Bytes <= len(text) && digestText(text[:k.Bytes]) == k.Digest {
			reply.Matched, from = i+1, k.Bytes
			break
		}
	}
	if a := r.Answer; a != nil && reply.Matched == a.Known {
		written := strings.TrimPrefix(afterAnswer[prefix:], "<assistant>")
		switch {
		case strings.TrimSpace(written) == strings.TrimSpace(a.Text):
			reply.Rewrite = schemas.RewriteSpace
		case strings.Contains(a.Text, "~"):
			reply.Rewrite = schemas.RewriteReasoning
		default:
			reply.Rewrite = schemas.RewriteCalls
		}
		if reply.Rewrite != schemas.RewriteReasoning {
			from = len(afterAnswer)
			if a.End != "" {
				from++
			}
			reply.Answered = from
		}
	}
	rest = text[from:]
	for _, m := range images {
		if m.Offset >= from {
			m.Offset -= from
			reply.Media = append(reply.Media, m)
		}
	}
	for i := range len(rest) {
		reply.Tokens = append(reply.Tokens, int32(rest[i]))
	}
	return reply
}

func (w *world) lastUser(messages []json.RawMessage) (at int) {
	for i, raw := range messages {
		if m, err := readFake(raw); err == nil && m.role == "user" {
			at = i
		}
	}
	return at
}

// fakeMessage is a message as the fake template sees it.
type fakeMessage struct {
	role, reasoning, calls string
	parts, images          []string
}

func readFake(raw json.RawMessage) (out fakeMessage, err error) {
	var m struct {
		Role      string          `json:"role"`
		Content   json.RawMessage `json:"content"`
		Reasoning string          `json:"reasoning_content"`
		Calls     []struct {
			Function struct {
				Name      string          `json:"name"`
				Arguments json.RawMessage `json:"arguments"`
			} `json:"function"`
		} `json:"tool_calls"`
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return out, err
	}
	out.role = m.Role
	if m.Reasoning != "" {
		out.reasoning = "~" + m.Reasoning
	}
	for _, c := range m.Calls {
		args := string(c.Function.Arguments)
		var text string
		if json.Unmarshal(c.Function.Arguments, &text) == nil {
			args = text
		}
		if v, err := schemas.CanonicalJSON(json.RawMessage(args)); err == nil {
			args = string(v)
		}
		out.calls += "(" + c.Function.Name + args + ")"
	}
	var one string
	if len(m.Content) == 0 || json.Unmarshal(m.Content, &one) == nil {
		out.parts, out.images = []string{one}, []string{""}
		return out, nil
	}
	var parts []struct {
		Text  string `json:"text"`
		Image struct {
			URL string `json:"url"`
		} `json:"image_url"`
	}
	if err := json.Unmarshal(m.Content, &parts); err != nil {
		return out, err
	}
	for _, p := range parts {
		out.parts, out.images = append(out.parts, p.Text), append(out.images, p.Image.URL)
	}
	return out, nil
}
