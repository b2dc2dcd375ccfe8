package gateway

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/weir-dev/weir/schemas"
)

// response is OpenAI's object of that name.
type response struct {
	ID                string            `json:"id"`
	Object            string            `json:"object"`
	CreatedAt         int64             `json:"created_at"`
	CompletedAt       *int64            `json:"completed_at"`
	Status            string            `json:"status"`
	Error             *responseError    `json:"error"`
	IncompleteDetails *responseCut      `json:"incomplete_details"`
	Instructions      *string           `json:"instructions"`
	MaxOutputTokens   *int64            `json:"max_output_tokens"`
	Model             string            `json:"model"`
	Output            []responseItem    `json:"output"`
	Parallel          bool              `json:"parallel_tool_calls"`
	Previous          *string           `json:"previous_response_id"`
	Reasoning         json.RawMessage   `json:"reasoning"`
	Store             bool              `json:"store"`
	Temperature       *float64          `json:"temperature"`
	Text              json.RawMessage   `json:"text"`
	ToolChoice        json.RawMessage   `json:"tool_choice"`
	Tools             []json.RawMessage `json:"tools"`
	TopP              *float64          `json:"top_p"`
	Truncation        string            `json:"truncation"`
	Usage             *responseUsage    `json:"usage"`
	User              json.RawMessage   `json:"user,omitempty"`
	Metadata          json.RawMessage   `json:"metadata"`
	Weir              *about            `json:"weir,omitempty"`
}

type responseError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Retry   int    `json:"retry_after,omitempty"` // seconds
}

type responseCut struct {
	Reason string `json:"reason"`
}

type responseUsage struct {
	Input        int `json:"input_tokens"`
	InputDetails struct {
		Cached  int `json:"cached_tokens"`
		Written int `json:"cache_write_tokens"` // 0: it costs the caller nothing
	} `json:"input_tokens_details"`
	Output        int `json:"output_tokens"`
	OutputDetails struct {
		Reasoning int `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
	Total int `json:"total_tokens"`
}

func responseUsageOf(u schemas.Usage) *responseUsage {
	out := &responseUsage{Input: u.Prompt, Output: u.Completion, Total: u.Prompt + u.Completion}
	out.InputDetails.Cached = u.Cached
	return out
}

// responseItem is one item of the output: a message, reasoning or a call.
type responseItem struct {
	ID        string          `json:"id"`
	Type      string          `json:"type"`
	Status    string          `json:"status"`
	Role      string          `json:"role,omitempty"`
	Summary   *[]struct{}     `json:"summary,omitempty"`
	Content   *[]responsePart `json:"content,omitempty"`
	CallID    string          `json:"call_id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Arguments *string         `json:"arguments,omitempty"`
}

type responsePart struct {
	Type        string      `json:"type"`
	Text        string      `json:"text"`
	Annotations *[]struct{} `json:"annotations,omitempty"`
	Logprobs    *[]struct{} `json:"logprobs,omitempty"`
}

// Kinds of items.
const (
	itemMessage   = "message"
	itemReasoning = "reasoning"
	itemCall      = "function_call"
)

// partOfItem is the part that a message or reasoning consists of.
func partOfItem(kind, text string) responsePart {
	if kind == itemReasoning {
		return responsePart{Type: "reasoning_text", Text: text}
	}
	none := []struct{}{}
	return responsePart{Type: "output_text", Text: text, Annotations: &none, Logprobs: &none}
}

// newItem is an item that has begun. Its id is made of the turn's, so that every
// reader of an answer sees the same ones.
func newItem(c *call, kind string, index int, d *delta) responseItem {
	n := c.ref.Turn + "_" + strconv.Itoa(index)
	it := responseItem{Type: kind, Status: "in_progress"}
	parts := []responsePart{}
	switch kind {
	case itemCall:
		it.ID, it.CallID, it.Name, it.Arguments = "fc_"+n, d.ID, d.Name, new(string)
	case itemReasoning:
		it.ID, it.Summary, it.Content = "rs_"+n, &[]struct{}{}, &parts
	default:
		it.ID, it.Role, it.Content = "msg_"+n, "assistant", &parts
	}
	return it
}

// finish gives an item its whole text.
func (it *responseItem) finish(text string) {
	it.Status = "completed"
	if it.Type == itemCall {
		it.Arguments = &text
		return
	}
	it.Content = &[]responsePart{partOfItem(it.Type, text)}
}

// responseOf is a response that has begun.
func responseOf(c *call) *response {
	more, ok := callMore(c)
	if !ok {
		more = &responsesMore{req: &responsesRequest{}}
	}
	q := more.req
	out := &response{
		ID: responseID{c.session, c.ref.Turn, more.digest}.String(), Object: "response", CreatedAt: c.created, Status: "in_progress", Model: c.model,
		Instructions: q.Instructions, MaxOutputTokens: q.MaxOutputTokens, Output: []responseItem{}, Parallel: q.Parallel == nil || *q.Parallel,
		Previous: q.Previous, Reasoning: q.Reasoning, Store: q.Store == nil || *q.Store, Temperature: q.Temperature, Text: q.Text,
		ToolChoice: q.ToolChoice, Tools: q.Tools, TopP: q.TopP, Truncation: "disabled", User: q.User, Metadata: q.Metadata,
	}
	for _, d := range [...]struct {
		v *json.RawMessage
		d string
	}{{&out.Reasoning, `{"effort":null,"summary":null}`}, {&out.Text, `{"format":{"type":"text"}}`}, {&out.ToolChoice, `"auto"`}, {&out.Metadata, `{}`}} {
		if !given(*d.v) {
			*d.v = json.RawMessage(d.d)
		}
	}
	if out.Tools == nil {
		out.Tools = []json.RawMessage{}
	}
	return out
}

// end says how a response ended.
func (o *response) end(c *call, r *reply) {
	o.Status, o.Model, o.Usage, o.Weir = "completed", c.modelOf(r.Result), responseUsageOf(r.Usage), r.About
	if r.Finish == "length" {
		o.Status, o.IncompleteDetails = "incomplete", &responseCut{Reason: "max_output_tokens"}
		if n := len(o.Output); n > 0 {
			o.Output[n-1].Status = "incomplete"
		}
		return
	}
	if at := (r.Timing.AdmittedNS + r.Timing.TotalNS) / int64(time.Second); at > 0 {
		o.CompletedAt = &at
	}
}

func (o *response) fail(e *apiError) {
	code := e.Code
	switch {
	case e.Status == http.StatusTooManyRequests:
		code = "rate_limit_exceeded"
	case e.Status >= 500 || code == "":
		code = "server_error"
	}
	o.Status, o.Error = "failed", &responseError{Code: code, Message: e.Message, Retry: e.retrySeconds()}
}

func (responses) whole(c *call, r *reply) any {
	out := responseOf(c)
	add := func(kind, text string, d *delta) {
		it := newItem(c, kind, len(out.Output), d)
		it.finish(text)
		out.Output = append(out.Output, it)
	}
	if s := r.Message.Reasoning; s != "" {
		add(itemReasoning, s, nil)
	}
	if s := r.Message.Content; s != nil && (*s != "" || len(r.Message.Calls) == 0) {
		add(itemMessage, *s, nil)
	}
	for _, t := range r.Message.Calls {
		add(itemCall, t.Function.Arguments, &delta{ID: t.ID, Name: t.Function.Name})
	}
	out.end(c, r)
	return out
}

// responsesSpeaker writes an answer as the events of the Responses API. All events
// are numbered. An item is
//
//	output_item.added [content_part.added] delta… done [content_part.done] output_item.done
type responsesSpeaker struct {
	w    *sse
	c    *call
	out  *response
	seq  int
	item *responseItem // that is open
	text []byte        // of the open item
	call int           // index of the open tool call
	cut  bool          // the answer ended at its token limit
	buf  []byte
}

func (responses) newSpeaker(c *call, w *sse) speaker {
	return &responsesSpeaker{w: w, c: c, out: responseOf(c)}
}

// event writes one event with its number.
func (s *responsesSpeaker) event(kind string, v any) error {
	raw, e := plain(v)
	if e != nil {
		return errors.New(e.Message)
	}
	b := quote(append(s.buf[:0], `{"type":`...), kind)
	b = strconv.AppendInt(append(b, `,"sequence_number":`...), int64(s.seq), 10)
	s.seq++
	s.buf = append(append(b, ','), raw[1:]...)
	return s.w.event(kind, s.buf)
}

// responseEvent has the response so far.
type responseEvent struct {
	Response *response `json:"response"`
}

// itemEvent is about one item.
type itemEvent struct {
	OutputIndex int           `json:"output_index"`
	Item        *responseItem `json:"item"`
}

// partEvent is about the only part of an item, or its text.
type partEvent struct {
	ItemID       string        `json:"item_id"`
	OutputIndex  int           `json:"output_index"`
	ContentIndex *int          `json:"content_index,omitempty"`
	Part         *responsePart `json:"part,omitempty"`
	Text         *string       `json:"text,omitempty"`
	Arguments    *string       `json:"arguments,omitempty"`
	Name         string        `json:"name,omitempty"`
	Logprobs     *[]struct{}   `json:"logprobs,omitempty"`
}

func (s *responsesSpeaker) begin() error {
	if err := s.event("response.created", responseEvent{s.out}); err != nil {
		return err
	}
	return s.event("response.in_progress", responseEvent{s.out})
}

func (s *responsesSpeaker) early() error { return nil }

func (s *responsesSpeaker) idle() error { return s.w.comment() }

func (s *responsesSpeaker) piece(p *piece) error {
	kind, text := itemMessage, p.Content
	switch {
	case p.Call >= 0:
		kind, text = itemCall, p.Arguments
	case p.Reasoning != "":
		kind, text = itemReasoning, p.Reasoning
	case text == "":
		return nil
	}
	if s.item == nil || s.item.Type != kind || kind == itemCall && s.call != p.Call {
		if err := s.open(kind, p); err != nil {
			return err
		}
	}
	if text == "" {
		return nil
	}
	s.text = append(s.text, text...)
	return s.delta(kind, text)
}

// open begins an item.
func (s *responsesSpeaker) open(kind string, p *piece) error {
	if err := s.close(); err != nil {
		return err
	}
	it := newItem(s.c, kind, len(s.out.Output), &p.delta)
	s.item, s.text, s.call = &it, s.text[:0], p.Call
	if err := s.event("response.output_item.added", itemEvent{len(s.out.Output), s.item}); err != nil || kind == itemCall {
		return err
	}
	part := partOfItem(kind, "")
	e := s.about()
	e.Part = &part
	return s.event("response.content_part.added", e)
}

// about is an event about the open item.
func (s *responsesSpeaker) about() partEvent {
	e := partEvent{ItemID: s.item.ID, OutputIndex: len(s.out.Output)}
	if s.item.Type != itemCall {
		e.ContentIndex = new(int)
	}
	return e
}

// delta writes new text of the open item, without reflection: there is one per frame.
func (s *responsesSpeaker) delta(kind, text string) error {
	name, rest := "response.output_text.delta", `,"content_index":0,"logprobs":[],"delta":`
	switch kind {
	case itemCall:
		name, rest = "response.function_call_arguments.delta", `,"delta":`
	case itemReasoning:
		name, rest = "response.reasoning_text.delta", `,"content_index":0,"delta":`
	}
	b := append(append(append(s.buf[:0], `{"type":"`...), name...), `","sequence_number":`...)
	b = strconv.AppendInt(b, int64(s.seq), 10)
	s.seq++
	b = quote(append(b, `,"item_id":`...), s.item.ID)
	b = strconv.AppendInt(append(b, `,"output_index":`...), int64(len(s.out.Output)), 10)
	s.buf = append(quote(append(b, rest...), text), '}')
	return s.w.event(name, s.buf)
}

// close ends the open item.
func (s *responsesSpeaker) close() error {
	if s.item == nil {
		return nil
	}
	text := string(s.text)
	s.item.finish(text)
	if s.cut {
		s.item.Status = "incomplete"
	}
	e := s.about()
	if s.item.Type == itemCall {
		e.Arguments, e.Name = &text, s.item.Name
		if err := s.event("response.function_call_arguments.done", e); err != nil {
			return err
		}
	} else if err := s.closePart(e, text); err != nil {
		return err
	}
	err := s.event("response.output_item.done", itemEvent{len(s.out.Output), s.item})
	s.out.Output = append(s.out.Output, *s.item)
	s.item = nil
	return err
}

func (s *responsesSpeaker) closePart(e partEvent, text string) error {
	done := e
	done.Text = &text
	name := "response.reasoning_text.done"
	if s.item.Type == itemMessage {
		name, done.Logprobs = "response.output_text.done", &[]struct{}{}
	}
	if err := s.event(name, done); err != nil {
		return err
	}
	part := partOfItem(s.item.Type, text)
	e.Part = &part
	return s.event("response.content_part.done", e)
}

func (s *responsesSpeaker) end(r *reply) error {
	s.cut = r.Finish == "length"
	if s.item == nil && len(s.out.Output) == 0 {
		// An empty answer is an empty message.
		if err := s.open(itemMessage, &piece{delta: delta{Call: -1}}); err != nil {
			return err
		}
	}
	if err := s.close(); err != nil {
		return err
	}
	s.out.end(s.c, r)
	if err := s.event("response."+s.out.Status, responseEvent{s.out}); err != nil {
		return err
	}
	return s.w.flush()
}

func (s *responsesSpeaker) fail(e *apiError) error {
	s.item = nil
	s.out.fail(e)
	if err := s.event("response.failed", responseEvent{s.out}); err != nil {
		return err
	}
	return s.w.flush()
}
