package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
)

// turn translates a request. first: the context begins here, so the instructions
// belong to it.
func (q *responsesRequest) turn(first, thinks bool) (*schemas.Turn, *apiError) {
	if e := q.refuse(); e != nil {
		return nil, e
	}
	t := &schemas.Turn{Weir: q.Weir}
	t.Model, t.Temperature, t.TopP, t.ParallelToolCalls = q.Model, q.Temperature, q.TopP, q.Parallel
	t.MaxCompletionTokens, t.User, t.Metadata, t.PromptCacheKey, t.NVExt = q.MaxOutputTokens, q.User, q.Metadata, q.PromptCacheKey, q.NVExt
	in := itemReader{}
	if first && q.Instructions != nil && *q.Instructions != "" {
		in.out = append(in.out, chatOut{Role: "system", Content: *q.Instructions})
	}
	if e := in.input(q.Input); e != nil {
		return nil, e
	}
	var e *apiError
	if t.Messages, e = plainAll(in.out); e != nil {
		return nil, e
	}
	for _, set := range [...]func(*schemas.Turn) *apiError{q.tools, q.choice, q.format, func(t *schemas.Turn) *apiError { return q.think(t, thinks) }} {
		if e := set(t); e != nil {
			return nil, e
		}
	}
	if err := turns.CheckTurn(t); err != nil {
		e := ofError(err)
		if e.Param == "max_completion_tokens" {
			e.Param = "max_output_tokens"
			e.Message = e.Param + e.Message[len("max_completion_tokens"):]
		}
		return nil, e
	}
	return t, nil
}

// refuse names what cannot be done here.
func (q *responsesRequest) refuse() *apiError {
	switch {
	case q.Background != nil && *q.Background:
		return invalid("background", "background responses are not available here; stream, or publish the turn to NATS")
	case given(q.Conversation):
		return invalid("conversation", "conversations are not stored here; use previous_response_id, or the header X-Weir-Session with the whole input")
	case given(q.Prompt):
		return invalid("prompt", "prompt templates are not stored here; send instructions and input")
	case q.TopLogprobs != nil && *q.TopLogprobs > 0:
		return invalid("top_logprobs", "log probabilities are available in Chat Completions only")
	}
	return nil
}

// itemReader turns input items into messages. Items that one answer consists of,
// reasoning, text and calls, become one message again.
type itemReader struct {
	out   []chatOut
	open  bool // the last message is an answer that may go on
	texts bool // it has text
}

func (in *itemReader) input(raw json.RawMessage) *apiError {
	var s string
	var items []json.RawMessage
	switch {
	case !given(raw):
		return invalid("input", "input must not be empty")
	case json.Unmarshal(raw, &s) == nil:
		in.out = append(in.out, chatOut{Role: "user", Content: s})
		return nil
	case json.Unmarshal(raw, &items) != nil:
		return invalid("input", "input must be a string or an array of items")
	case len(items) == 0:
		return invalid("input", "input must not be empty")
	}
	for i, raw := range items {
		if e := in.item(fmt.Sprintf("input[%d]", i), raw); e != nil {
			return e
		}
	}
	return nil
}

// responsesItem has the fields of all kinds of items that are read here.
type responsesItem struct {
	Type      string          `json:"type"`
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"`
	Output    json.RawMessage `json:"output"`

	ID        json.RawMessage `json:"id"`
	Status    json.RawMessage `json:"status"`
	Phase     json.RawMessage `json:"phase"`
	Summary   json.RawMessage `json:"summary"`
	Encrypted json.RawMessage `json:"encrypted_content"`
	Caller    json.RawMessage `json:"caller"`
	Namespace json.RawMessage `json:"namespace"`
	Async     json.RawMessage `json:"async"`
}

func (in *itemReader) item(path string, raw json.RawMessage) *apiError {
	kind := kindOf(raw)
	switch kind {
	case "", "message", "function_call", "function_call_output", "reasoning":
	case "item_reference":
		return invalid(path+".type", "%s: items are not stored here one by one; send the item itself, or previous_response_id", path)
	default:
		return invalid(path+".type", "%s: items of type %.60q are not available here", path, kind)
	}
	var m responsesItem
	if e := strictly(path, raw, &m); e != nil {
		return e
	}
	switch kind {
	case "function_call":
		return in.called(path, &m)
	case "function_call_output":
		return in.returned(path, &m)
	case "reasoning":
		return in.reasoned(path, &m)
	}
	return in.message(path, &m)
}

// strictly reads an object below a path, with OpenAI's words for errors.
func strictly(path string, raw json.RawMessage, into any) *apiError {
	if len(raw) == 0 || raw[0] != '{' {
		return invalid(path, "%s must be an object", path)
	}
	err := turns.DecodeRequest(raw, into)
	if err == nil {
		return nil
	}
	e := ofError(err)
	if e.Param == "" {
		e.Param = path
	} else {
		e.Param = path + "." + e.Param
	}
	if e.Code == "unknown_parameter" {
		e.Message = "Unknown parameter: '" + e.Param + "'."
	} else {
		e.Message = path + ": " + e.Message
	}
	return e
}

// answer is the message that the next part of an answer belongs to.
func (in *itemReader) answer(fresh bool) *chatOut {
	if !in.open || fresh {
		in.out = append(in.out, chatOut{Role: "assistant"})
		in.open, in.texts = true, false
	}
	return &in.out[len(in.out)-1]
}

func (in *itemReader) message(path string, m *responsesItem) *apiError {
	parts, e := responsesParts(path+".content", m.Content)
	if e != nil {
		return e
	}
	switch m.Role {
	case "assistant":
		var text string
		for i, p := range parts {
			if p.Text == nil {
				return invalid(path+".content", "%s.content[%d]: an answer has text only", path, i)
			}
			text += *p.Text
		}
		// Two texts without a call between them are two answers.
		one := in.answer(in.texts && len(in.out[len(in.out)-1].Calls) == 0)
		if s, ok := one.Content.(string); ok {
			text = s + text
		}
		one.Content, in.texts = text, true
		return nil
	case "user", "system", "developer":
		in.open = false
		in.out = append(in.out, chatOut{Role: m.Role, Content: contentOf(parts)})
		return nil
	}
	return invalid(path+".role", "%s.role is %.40q, allowed are user, assistant, system and developer", path, m.Role)
}

func (in *itemReader) called(path string, m *responsesItem) *apiError {
	if m.CallID == "" || m.Name == "" {
		return invalid(path, "%s: a function_call has a call_id and a name", path)
	}
	one := in.answer(false)
	one.Calls = append(one.Calls, toolCall{ID: m.CallID, Type: "function", Function: calledFunction{Name: m.Name, Arguments: m.Arguments}})
	return nil
}

func (in *itemReader) returned(path string, m *responsesItem) *apiError {
	if m.CallID == "" {
		return invalid(path+".call_id", "%s: a function_call_output has a call_id", path)
	}
	parts, e := responsesParts(path+".output", m.Output)
	if e != nil {
		return e
	}
	in.open = false
	in.out = append(in.out, chatOut{Role: "tool", Content: contentOf(parts), CallID: m.CallID})
	return nil
}

// reasoned begins an answer: reasoning stands before all else. Without its text
// there is nothing to show to a model; lineage has it, if it was generated here.
func (in *itemReader) reasoned(path string, m *responsesItem) *apiError {
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if given(m.Content) && json.Unmarshal(m.Content, &parts) != nil {
		return invalid(path+".content", "%s.content must be an array of parts", path)
	}
	var text string
	for _, p := range parts {
		text += p.Text
	}
	fresh := in.open && (in.texts || len(in.out[len(in.out)-1].Calls) > 0)
	if text == "" {
		in.open = in.open && !fresh
		return nil
	}
	in.answer(fresh).Reasoning += text
	return nil
}

// responsesParts reads content: a string, or parts of text and images.
func responsesParts(path string, raw json.RawMessage) ([]chatPart, *apiError) {
	var s string
	var list []json.RawMessage
	switch {
	case !given(raw):
		return nil, invalid(path, "%s is missing", path)
	case json.Unmarshal(raw, &s) == nil:
		return []chatPart{textPart(s)}, nil
	case json.Unmarshal(raw, &list) != nil:
		return nil, invalid(path, "%s must be a string or an array of parts", path)
	}
	out := make([]chatPart, 0, len(list))
	for i, raw := range list {
		p, e := responsesPart(fmt.Sprintf("%s[%d]", path, i), raw)
		if e != nil {
			return nil, e
		}
		out = append(out, p)
	}
	return out, nil
}

func responsesPart(path string, raw json.RawMessage) (chatPart, *apiError) {
	var p struct {
		Type       string          `json:"type"`
		Text       string          `json:"text"`
		Refusal    string          `json:"refusal"`
		ImageURL   *string         `json:"image_url"`
		FileID     *string         `json:"file_id"`
		Detail     *string         `json:"detail"`
		Notes      json.RawMessage `json:"annotations"`
		Logprobs   json.RawMessage `json:"logprobs"`
		Breakpoint json.RawMessage `json:"prompt_cache_breakpoint"`
	}
	switch kind := kindOf(raw); kind {
	case "input_text", "output_text", "text", "refusal", "input_image":
	default:
		return chatPart{}, invalid(path+".type", "%s: parts of type %.60q are not available here", path, kind)
	}
	if e := strictly(path, raw, &p); e != nil {
		return chatPart{}, e
	}
	switch p.Type {
	case "refusal":
		return textPart(p.Refusal), nil
	case "input_image":
		if p.ImageURL == nil || *p.ImageURL == "" {
			return chatPart{}, invalid(path+".image_url", "%s: an image needs an image_url; files are not stored here", path)
		}
		detail := ""
		if p.Detail != nil {
			detail = *p.Detail
		}
		return imagePart(*p.ImageURL, detail), nil
	}
	return textPart(p.Text), nil
}

// tools translates the flat form of functions. Other tools are run by OpenAI.
func (q *responsesRequest) tools(t *schemas.Turn) *apiError {
	for i, raw := range q.Tools {
		path := fmt.Sprintf("tools[%d]", i)
		if kind := kindOf(raw); kind != "function" {
			return invalid(path+".type", "%s: tools of type %.60q are not available here, only functions", path, kind)
		}
		var f struct {
			Type        string          `json:"type"`
			Name        string          `json:"name"`
			Description string          `json:"description"`
			Parameters  json.RawMessage `json:"parameters"`
			Strict      *bool           `json:"strict"`

			Callers json.RawMessage `json:"allowed_callers"`
			Async   json.RawMessage `json:"async"`
			Defer   json.RawMessage `json:"defer_loading"`
			Output  json.RawMessage `json:"output_schema"`
		}
		if e := strictly(path, raw, &f); e != nil {
			return e
		}
		if f.Name == "" {
			return invalid(path+".name", "%s: a function has a name", path)
		}
		if !given(f.Parameters) {
			f.Parameters = nil
		}
		out, e := plain(chatTool{Type: "function", Function: chatFunction{Name: f.Name, Description: f.Description, Parameters: f.Parameters, Strict: f.Strict}})
		if e != nil {
			return e
		}
		t.Tools = append(t.Tools, out)
	}
	return nil
}

// choice translates tool_choice.
func (q *responsesRequest) choice(t *schemas.Turn) *apiError {
	if !given(q.ToolChoice) {
		return nil
	}
	var word string
	if json.Unmarshal(q.ToolChoice, &word) == nil {
		t.ToolChoice = q.ToolChoice // the words are the same
		return nil
	}
	var c struct {
		Type  string `json:"type"`
		Name  string `json:"name"`
		Mode  string `json:"mode"`
		Tools []struct {
			Type string `json:"type"`
			Name string `json:"name"`
		} `json:"tools"`
	}
	if json.Unmarshal(q.ToolChoice, &c) != nil {
		return invalid("tool_choice", "tool_choice must be a string or an object")
	}
	switch c.Type {
	case "function":
		t.ToolChoice = namedTool(c.Name)
		return nil
	case "allowed_tools":
		b := append([]byte(`{"type":"allowed_tools","allowed_tools":{"mode":`), quote(nil, c.Mode)...)
		b = append(b, `,"tools":[`...)
		for i, f := range c.Tools {
			if f.Type != "function" {
				return invalid("tool_choice.tools", "tool_choice.tools[%d]: tools of type %.60q are not available here", i, f.Type)
			}
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, namedTool(f.Name)...)
		}
		t.ToolChoice = append(b, `]}}`...)
		return nil
	}
	return invalid("tool_choice.type", "tool_choice: %.60q is not available here", c.Type)
}

// format translates text.format; the verbosity has no counterpart.
func (q *responsesRequest) format(t *schemas.Turn) *apiError {
	if !given(q.Text) {
		return nil
	}
	var x struct {
		Format    json.RawMessage `json:"format"`
		Verbosity json.RawMessage `json:"verbosity"`
	}
	if e := strictly("text", q.Text, &x); e != nil {
		return e
	}
	if !given(x.Format) {
		return nil
	}
	var f struct {
		Type string `json:"type"`
		namedSchema
	}
	if e := strictly("text.format", x.Format, &f); e != nil {
		return e
	}
	switch f.Type {
	case "text":
		return nil
	case "json_object":
		t.ResponseFormat = json.RawMessage(`{"type":"json_object"}`)
		return nil
	case "json_schema":
		if !given(f.Schema) {
			return invalid("text.format.schema", "text.format.schema is missing")
		}
		var e *apiError
		t.ResponseFormat, e = jsonSchema(f.namedSchema)
		return e
	}
	return invalid("text.format.type", "text.format.type is %.40q, allowed are text, json_object and json_schema", f.Type)
}

// think translates the effort: "none" switches a template's reasoning off where it
// has that switch. Other efforts have no counterpart.
func (q *responsesRequest) think(t *schemas.Turn, thinks bool) *apiError {
	if !given(q.Reasoning) {
		return nil
	}
	var r struct {
		Effort *string `json:"effort"`
	}
	if !bytes.HasPrefix(q.Reasoning, []byte("{")) || json.Unmarshal(q.Reasoning, &r) != nil {
		return invalid("reasoning", "reasoning must be an object")
	}
	if thinks && r.Effort != nil && *r.Effort == "none" {
		t.ChatTemplateKwargs = thinkingKwargs(false)
	}
	return nil
}
