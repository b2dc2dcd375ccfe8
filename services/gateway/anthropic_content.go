package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// chatOut is a message as Chat Completions has it, made from another API's.
type chatOut struct {
	Role      string     `json:"role"`
	Content   any        `json:"content"`
	Reasoning string     `json:"reasoning_content,omitempty"`
	Calls     []toolCall `json:"tool_calls,omitempty"`
	CallID    string     `json:"tool_call_id,omitempty"`
}

// chatPart is a part of its content.
type chatPart struct {
	Type  string     `json:"type"`
	Text  *string    `json:"text,omitempty"`
	Image *chatImage `json:"image_url,omitempty"`
}

type chatImage struct {
	URL    string `json:"url"`
	Detail string `json:"detail,omitempty"`
}

func textPart(s string) chatPart { return chatPart{Type: "text", Text: &s} }

func imagePart(url, detail string) chatPart {
	return chatPart{Type: "image_url", Image: &chatImage{URL: url, Detail: detail}}
}

// contentOf is the shortest form of parts: a string where there is one text.
func contentOf(parts []chatPart) any {
	switch {
	case len(parts) == 0:
		return ""
	case len(parts) == 1 && parts[0].Text != nil:
		return *parts[0].Text
	}
	return parts
}

// plain encodes without HTML's escapes: a prompt of code would grow by a tenth.
func plain(v any) (json.RawMessage, *apiError) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, invalid("", "a part of the body cannot be encoded: %s", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func plainAll(list []chatOut) ([]json.RawMessage, *apiError) {
	out := make([]json.RawMessage, 0, len(list))
	for i := range list {
		raw, e := plain(&list[i])
		if e != nil {
			return nil, e
		}
		out = append(out, raw)
	}
	return out, nil
}

// chat translates system and messages.
func (q *messagesRequest) chat(o messagesOptions) ([]json.RawMessage, *apiError) {
	if len(q.Messages) == 0 {
		return nil, invalid("messages", "messages: at least one message is required")
	}
	var out []chatOut
	system, e := systemText(q.System, o.keepBilling)
	if e != nil {
		return nil, e
	}
	if system != "" {
		out = append(out, chatOut{Role: "system", Content: system})
	}
	for i, raw := range q.Messages {
		if out, e = chatMessages(out, fmt.Sprintf("messages.%d", i), raw); e != nil {
			return nil, e
		}
	}
	if out[len(out)-1].Role == "assistant" {
		return nil, invalid("messages", "messages: the last message is the assistant's; an answer that was begun is not continued here")
	}
	return plainAll(out)
}

// textBlock is a block of text of a system prompt or a message.
type textBlock struct {
	Type         string          `json:"type"`
	Text         string          `json:"text"`
	CacheControl json.RawMessage `json:"cache_control"`
	Citations    json.RawMessage `json:"citations"`
}

// billingHeader begins a system block in which Claude Code says how a request is to
// be charged. It names a build and a digest of the conversation that differs from
// request to request, so with it no two requests would share a prefix.
const billingHeader = "x-anthropic-billing-header:"

// systemText joins the blocks of a system prompt as paragraphs.
func systemText(raw json.RawMessage, keepBilling bool) (string, *apiError) {
	if !given(raw) {
		return "", nil
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s, nil
	}
	var blocks []json.RawMessage
	if json.Unmarshal(raw, &blocks) != nil {
		return "", invalid("system", "system: Input should be a string or a list of text blocks")
	}
	var texts []string
	for i, b := range blocks {
		var t textBlock
		path := fmt.Sprintf("system.%d", i)
		if kindOf(b) != "text" {
			return "", invalid(path, "%s: a system prompt has text blocks only, this is %.40q", path, kindOf(b))
		}
		if e := below(path, b, &t); e != nil {
			return "", e
		}
		if i == 0 && !keepBilling && strings.HasPrefix(t.Text, billingHeader) {
			continue
		}
		texts = append(texts, t.Text)
	}
	return strings.Join(texts, "\n\n"), nil
}

// chatMessages appends what one message becomes: tool results are messages of their
// own in Chat Completions.
func chatMessages(out []chatOut, path string, raw json.RawMessage) ([]chatOut, *apiError) {
	var m struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	}
	if e := below(path, raw, &m); e != nil {
		return nil, e
	}
	switch m.Role {
	case "user", "assistant", "system":
	default:
		return nil, invalid(path+".role", "%s.role: Input should be 'user', 'assistant' or 'system'", path)
	}
	var s string
	if json.Unmarshal(m.Content, &s) == nil && given(m.Content) {
		return append(out, chatOut{Role: m.Role, Content: s}), nil
	}
	var blocks []json.RawMessage
	if !given(m.Content) || json.Unmarshal(m.Content, &blocks) != nil {
		return nil, invalid(path+".content", "%s.content: Input should be a string or a list of blocks", path)
	}
	if m.Role == "assistant" {
		one, e := assistantMessage(path+".content", blocks)
		if e != nil {
			return nil, e
		}
		return append(out, one), nil
	}
	return userMessages(out, m.Role, path+".content", blocks)
}

// assistantMessage joins the blocks of an answer. Text blocks are joined as they
// are: an answer with text on both sides of a call comes back as two blocks.
func assistantMessage(path string, blocks []json.RawMessage) (chatOut, *apiError) {
	m := chatOut{Role: "assistant"}
	var text strings.Builder
	for i, raw := range blocks {
		path := fmt.Sprintf("%s.%d", path, i)
		switch kind := kindOf(raw); kind {
		case "text":
			var b textBlock
			if e := below(path, raw, &b); e != nil {
				return m, e
			}
			text.WriteString(b.Text)
		case "thinking":
			var b struct {
				Type      string `json:"type"`
				Thinking  string `json:"thinking"`
				Signature string `json:"signature"`
			}
			if e := below(path, raw, &b); e != nil {
				return m, e
			}
			m.Reasoning += b.Thinking
		case "redacted_thinking": // never made here, and nobody can read it
		case "tool_use":
			c, e := toolUse(path, raw)
			if e != nil {
				return m, e
			}
			m.Calls = append(m.Calls, c)
		default:
			return m, refusedBlock(path, kind)
		}
	}
	if text.Len() > 0 || len(m.Calls) == 0 {
		m.Content = text.String()
	}
	return m, nil
}

func toolUse(path string, raw json.RawMessage) (toolCall, *apiError) {
	var b struct {
		Type         string          `json:"type"`
		ID           string          `json:"id"`
		Name         string          `json:"name"`
		Input        json.RawMessage `json:"input"`
		CacheControl json.RawMessage `json:"cache_control"`
		Caller       json.RawMessage `json:"caller"`
		Toolset      json.RawMessage `json:"toolset_name"`
	}
	if e := below(path, raw, &b); e != nil {
		return toolCall{}, e
	}
	if b.ID == "" || b.Name == "" {
		return toolCall{}, invalid(path, "%s: a tool_use block has an id and a name", path)
	}
	args := []byte("{}")
	if given(b.Input) {
		var c bytes.Buffer
		if err := json.Compact(&c, b.Input); err != nil {
			return toolCall{}, invalid(path+".input", "%s.input: %s", path, err)
		}
		args = c.Bytes()
	}
	return toolCall{ID: b.ID, Type: "function", Function: calledFunction{Name: b.Name, Arguments: string(args)}}, nil
}

// userMessages splits the blocks of a user's message at its tool results.
func userMessages(out []chatOut, role, path string, blocks []json.RawMessage) ([]chatOut, *apiError) {
	var parts []chatPart
	flush := func() {
		if len(parts) > 0 {
			out = append(out, chatOut{Role: role, Content: contentOf(parts)})
			parts = nil
		}
	}
	for i, raw := range blocks {
		path := fmt.Sprintf("%s.%d", path, i)
		if kindOf(raw) == "tool_result" && role == "user" {
			flush()
			m, e := toolResult(path, raw)
			if e != nil {
				return nil, e
			}
			out = append(out, m)
			continue
		}
		p, e := partOf(path, raw)
		if e != nil {
			return nil, e
		}
		parts = append(parts, p)
	}
	if len(blocks) == 0 {
		return append(out, chatOut{Role: role, Content: ""}), nil
	}
	flush()
	return out, nil
}

// partOf reads a block of text or an image.
func partOf(path string, raw json.RawMessage) (chatPart, *apiError) {
	switch kind := kindOf(raw); kind {
	case "text":
		var b textBlock
		if e := below(path, raw, &b); e != nil {
			return chatPart{}, e
		}
		return textPart(b.Text), nil
	case "image":
		var b struct {
			Type         string          `json:"type"`
			Source       json.RawMessage `json:"source"`
			CacheControl json.RawMessage `json:"cache_control"`
		}
		if e := below(path, raw, &b); e != nil {
			return chatPart{}, e
		}
		return imageOf(path+".source", b.Source)
	default:
		return chatPart{}, refusedBlock(path, kind)
	}
}

func imageOf(path string, raw json.RawMessage) (chatPart, *apiError) {
	var s struct {
		Type      string `json:"type"`
		MediaType string `json:"media_type"`
		Data      string `json:"data"`
		URL       string `json:"url"`
		FileID    string `json:"file_id"`
	}
	if e := below(path, raw, &s); e != nil {
		return chatPart{}, e
	}
	switch s.Type {
	case "base64":
		return imagePart("data:"+s.MediaType+";base64,"+s.Data, ""), nil
	case "url": // whether it is fetched is for the turn path to say
		return imagePart(s.URL, ""), nil
	}
	return chatPart{}, invalid(path+".type", "%s.type: %.40q is not available here, use base64", path, s.Type)
}

func refusedBlock(path, kind string) *apiError {
	return invalid(path+".type", "%s.type: blocks of type %.60q are not available here", path, kind)
}

// toolResult is a tool's message. Chat Completions has no mark of failed calls, so
// the text of one that does not say so itself begins with "Error: ".
func toolResult(path string, raw json.RawMessage) (chatOut, *apiError) {
	var b struct {
		Type         string          `json:"type"`
		ID           string          `json:"tool_use_id"`
		Content      json.RawMessage `json:"content"`
		IsError      *bool           `json:"is_error"`
		CacheControl json.RawMessage `json:"cache_control"`
		Toolset      json.RawMessage `json:"toolset_name"`
	}
	if e := below(path, raw, &b); e != nil {
		return chatOut{}, e
	}
	if b.ID == "" {
		return chatOut{}, invalid(path+".tool_use_id", "%s.tool_use_id: Field required", path)
	}
	m := chatOut{Role: "tool", CallID: b.ID}
	var parts []chatPart
	var s string
	var blocks []json.RawMessage
	switch {
	case !given(b.Content):
	case json.Unmarshal(b.Content, &s) == nil:
		parts = []chatPart{textPart(s)}
	case json.Unmarshal(b.Content, &blocks) == nil:
		for i, raw := range blocks {
			p, e := partOf(fmt.Sprintf("%s.content.%d", path, i), raw)
			if e != nil {
				return m, e
			}
			parts = append(parts, p)
		}
	default:
		return m, invalid(path+".content", "%s.content: Input should be a string or a list of blocks", path)
	}
	if b.IsError != nil && *b.IsError {
		parts = markError(parts)
	}
	m.Content = contentOf(parts)
	return m, nil
}

func markError(parts []chatPart) []chatPart {
	if len(parts) == 0 || parts[0].Text == nil {
		return append([]chatPart{textPart("Error")}, parts...)
	}
	s := *parts[0].Text
	if l := strings.ToLower(s); !strings.HasPrefix(l, "error") && !strings.HasPrefix(l, "<tool_use_error>") {
		parts[0] = textPart("Error: " + s)
	}
	return parts
}
