package gateway

import (
	"encoding/json"
	"errors"
	"strconv"

	"github.com/weir-dev/weir/schemas"
)

// messagesUsage is Anthropic's object of that name. The parts add up to the prompt.
// weir keeps every block that it computes, at no cost to the caller, so nothing is
// counted as written to a cache.
type messagesUsage struct {
	Input    int `json:"input_tokens"`
	Creation int `json:"cache_creation_input_tokens"`
	Read     int `json:"cache_read_input_tokens"`
	Output   int `json:"output_tokens"`
}

func messagesUsageOf(u schemas.Usage) messagesUsage {
	return messagesUsage{Input: u.Prompt - u.Cached, Read: u.Cached, Output: u.Completion}
}

// messagesBlock is a block of an answer.
type messagesBlock struct {
	Type      string          `json:"type"`
	Text      *string         `json:"text,omitempty"`
	Thinking  *string         `json:"thinking,omitempty"`
	Signature *string         `json:"signature,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
}

// messagesAnswer is a whole answer, or its head in message_start.
type messagesAnswer struct {
	ID           string          `json:"id"`
	Type         string          `json:"type"`
	Role         string          `json:"role"`
	Model        string          `json:"model"`
	Content      []messagesBlock `json:"content"`
	StopReason   *string         `json:"stop_reason"`
	StopSequence *string         `json:"stop_sequence"`
	Usage        messagesUsage   `json:"usage"`
	Weir         *about          `json:"weir,omitempty"`
}

// thinkingSignature stands where Anthropic signs its models' reasoning. Clients send
// it back unread.
const thinkingSignature = "weir"

func messagesHead(c *call) messagesAnswer {
	return messagesAnswer{ID: "msg_" + c.ref.Turn, Type: "message", Role: "assistant", Model: c.model, Content: []messagesBlock{}}
}

func (anthropic) whole(c *call, r *reply) any {
	out := messagesHead(c)
	out.Model = c.modelOf(r.Result)
	if s := r.Message.Reasoning; s != "" {
		sign := thinkingSignature
		out.Content = append(out.Content, messagesBlock{Type: "thinking", Thinking: &s, Signature: &sign})
	}
	if s := r.Message.Content; s != nil && *s != "" {
		out.Content = append(out.Content, messagesBlock{Type: "text", Text: s})
	}
	for _, t := range r.Message.Calls {
		out.Content = append(out.Content, messagesBlock{Type: "tool_use", ID: t.ID, Name: t.Function.Name, Input: inputOf(t.Function.Arguments)})
	}
	out.StopReason, out.StopSequence = stopReason(c, r)
	out.Usage, out.Weir = messagesUsageOf(r.Usage), r.About
	return out
}

// inputOf is the object of a call's arguments. What a token limit cut off has none.
func inputOf(arguments string) json.RawMessage {
	var m map[string]json.RawMessage
	if json.Unmarshal([]byte(arguments), &m) != nil || m == nil {
		return json.RawMessage("{}")
	}
	return json.RawMessage(arguments)
}

// stopReason: an answer that ended without an end token ended at a stop sequence.
// Which one is known only where there is one.
func stopReason(c *call, r *reply) (reason, sequence *string) {
	out := "end_turn"
	more, _ := c.more.(*messagesMore)
	switch {
	case r.Finish == "tool_calls":
		out = "tool_use"
	case r.Finish == "length":
		out = "max_tokens"
	case more != nil && len(more.stops) > 0 && r.End == "":
		out = "stop_sequence"
		if len(more.stops) == 1 {
			sequence = &more.stops[0]
		}
	}
	return &out, sequence
}

// messagesSpeaker writes an answer as Anthropic's events:
//
//	message_start ping (content_block_start content_block_delta… content_block_stop)… message_delta message_stop
type messagesSpeaker struct {
	w     *sse
	c     *call
	buf   []byte
	index int    // of the next block
	open  string // type of the block that is open
	call  int    // index of the open tool call
}

func (anthropic) newSpeaker(c *call, w *sse) speaker { return &messagesSpeaker{w: w, c: c} }

func (s *messagesSpeaker) begin() error {
	return s.event("message_start", struct {
		Type    string         `json:"type"`
		Message messagesAnswer `json:"message"`
	}{"message_start", messagesHead(s.c)}, true)
}

func (s *messagesSpeaker) early() error { return nil }

// event writes one event, with a ping behind it.
func (s *messagesSpeaker) event(name string, v any, ping bool) error {
	raw, e := plain(v)
	if e != nil {
		return errors.New(e.Message)
	}
	if err := s.w.event(name, raw); err != nil || !ping {
		return err
	}
	return s.ping()
}

func (s *messagesSpeaker) ping() error { return s.w.event("ping", []byte(`{"type":"ping"}`)) }

func (s *messagesSpeaker) idle() error {
	if err := s.ping(); err != nil {
		return err
	}
	return s.w.flush()
}

func (s *messagesSpeaker) piece(p *piece) error {
	b := s.buf[:0]
	switch {
	case p.Reasoning != "":
		b = s.block(b, "thinking", `{"type":"thinking","thinking":"","signature":""}`)
		b = s.delta(b, `{"type":"thinking_delta","thinking":`, p.Reasoning)
	case p.Content != "":
		b = s.block(b, "text", `{"type":"text","text":""}`)
		b = s.delta(b, `{"type":"text_delta","text":`, p.Content)
	case p.Call >= 0:
		if s.open == "tool_use" && s.call != p.Call {
			b = s.stop(b)
		}
		s.call = p.Call
		head := quote([]byte(`{"type":"tool_use","id":`), p.ID)
		head = quote(append(head, `,"name":`...), p.Name)
		b = s.block(b, "tool_use", string(append(head, `,"input":{}}`...)))
		if p.Arguments != "" {
			b = s.delta(b, `{"type":"input_json_delta","partial_json":`, p.Arguments)
		}
	}
	s.buf = b
	if len(b) == 0 {
		return nil
	}
	return s.w.write(b)
}

// block opens a block of that type unless it is open.
func (s *messagesSpeaker) block(b []byte, kind, head string) []byte {
	if s.open == kind {
		return b
	}
	b = s.stop(b)
	s.open = kind
	b = append(b, "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":"...)
	b = strconv.AppendInt(b, int64(s.index), 10)
	return append(append(append(b, `,"content_block":`...), head...), "}\n\n"...)
}

// delta adds to the open block; head is the delta up to its text.
func (s *messagesSpeaker) delta(b []byte, head, text string) []byte {
	b = append(b, "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":"...)
	b = strconv.AppendInt(b, int64(s.index), 10)
	b = append(append(b, `,"delta":`...), head...)
	return append(quote(b, text), "}}\n\n"...)
}

// stop ends the open block.
func (s *messagesSpeaker) stop(b []byte) []byte {
	if s.open == "" {
		return b
	}
	if s.open == "thinking" {
		b = s.delta(b, `{"type":"signature_delta","signature":`, thinkingSignature)
	}
	s.open = ""
	b = append(b, "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":"...)
	b = strconv.AppendInt(b, int64(s.index), 10)
	s.index++
	return append(b, "}\n\n"...)
}

func (s *messagesSpeaker) end(r *reply) error {
	s.buf = s.stop(s.buf[:0])
	if len(s.buf) > 0 {
		if err := s.w.write(s.buf); err != nil {
			return err
		}
	}
	type delta struct {
		StopReason   *string `json:"stop_reason"`
		StopSequence *string `json:"stop_sequence"`
	}
	reason, sequence := stopReason(s.c, r)
	err := s.event("message_delta", struct {
		Type  string        `json:"type"`
		Delta delta         `json:"delta"`
		Usage messagesUsage `json:"usage"`
		Weir  *about        `json:"weir,omitempty"`
	}{"message_delta", delta{reason, sequence}, messagesUsageOf(r.Usage), r.About}, false)
	if err != nil {
		return err
	}
	if err := s.w.event("message_stop", []byte(`{"type":"message_stop"}`)); err != nil {
		return err
	}
	return s.w.flush()
}

func (s *messagesSpeaker) fail(e *apiError) error {
	if err := s.w.event("error", anthropic{}.failure(s.c, e)); err != nil {
		return err
	}
	return s.w.flush()
}
