package gateway

import (
	"encoding/json"
	"fmt"

	"github.com/weir-dev/weir/schemas"
)

// chatTool is a tool as Chat Completions has it.
type chatTool struct {
	Type     string       `json:"type"`
	Function chatFunction `json:"function"`
}

type chatFunction struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
	Strict      *bool           `json:"strict,omitempty"`
}

// tools translates tool definitions. Tools of a type of their own are run, or known
// by heart, by Anthropic's models; they are refused by name.
func (q *messagesRequest) tools(t *schemas.Turn) *apiError {
	for i, raw := range q.Tools {
		path := fmt.Sprintf("tools.%d", i)
		if kind := kindOf(raw); kind != "" && kind != "custom" {
			return invalid(path+".type", "%s.type: the tool %.60q belongs to Anthropic's service; only tools with an input_schema are available here", path, kind)
		}
		var a struct {
			Type        *string         `json:"type"`
			Name        string          `json:"name"`
			Description string          `json:"description"`
			Schema      json.RawMessage `json:"input_schema"`
			Strict      *bool           `json:"strict"`

			CacheControl json.RawMessage `json:"cache_control"`
			Callers      json.RawMessage `json:"allowed_callers"`
			Defer        json.RawMessage `json:"defer_loading"`
			Eager        json.RawMessage `json:"eager_input_streaming"`
			Examples     json.RawMessage `json:"input_examples"`
		}
		if e := below(path, raw, &a); e != nil {
			return e
		}
		if a.Name == "" {
			return invalid(path+".name", "%s.name: Field required", path)
		}
		if !given(a.Schema) {
			return invalid(path+".input_schema", "%s.input_schema: Field required", path)
		}
		out, e := plain(chatTool{Type: "function", Function: chatFunction{Name: a.Name, Description: a.Description, Parameters: a.Schema, Strict: a.Strict}})
		if e != nil {
			return e
		}
		t.Tools = append(t.Tools, out)
	}
	return nil
}

// choice translates tool_choice.
func (q *messagesRequest) choice(t *schemas.Turn) *apiError {
	if !given(q.ToolChoice) {
		return nil
	}
	var c struct {
		Type   string `json:"type"`
		Name   string `json:"name"`
		Single *bool  `json:"disable_parallel_tool_use"`
	}
	if e := below("tool_choice", q.ToolChoice, &c); e != nil {
		return e
	}
	if c.Single != nil && *c.Single {
		no := false
		t.ParallelToolCalls = &no
	}
	switch c.Type {
	case "auto", "none":
		t.ToolChoice = json.RawMessage(`"` + c.Type + `"`)
	case "any":
		t.ToolChoice = json.RawMessage(`"required"`)
	case "tool":
		t.ToolChoice = namedTool(c.Name)
	default:
		return invalid("tool_choice.type", "tool_choice.type: Input should be 'auto', 'any', 'tool' or 'none'")
	}
	return nil
}

// namedTool is Chat Completions' choice of one function.
func namedTool(name string) json.RawMessage {
	b := append([]byte(`{"type":"function","function":{"name":`), quote(nil, name)...)
	return append(b, `}}`...)
}

// format translates the schema that an answer must have. The effort in
// output_config has no counterpart and is passed by.
func (q *messagesRequest) format(t *schemas.Turn) *apiError {
	path, raw := "output_format", q.OutputFormat
	if given(q.OutputConfig) {
		var c struct {
			Effort json.RawMessage `json:"effort"`
			Format json.RawMessage `json:"format"`
			Budget json.RawMessage `json:"task_budget"`
		}
		if e := below("output_config", q.OutputConfig, &c); e != nil {
			return e
		}
		if given(c.Format) {
			path, raw = "output_config.format", c.Format
		}
	}
	if !given(raw) {
		return nil
	}
	var f struct {
		Type   string          `json:"type"`
		Schema json.RawMessage `json:"schema"`
	}
	if e := below(path, raw, &f); e != nil {
		return e
	}
	if f.Type != "json_schema" || !given(f.Schema) {
		return invalid(path, "%s: Input should be a json_schema with a schema", path)
	}
	var e *apiError
	t.ResponseFormat, e = jsonSchema(namedSchema{Name: "output", Schema: f.Schema})
	return e
}

// namedSchema is what Chat Completions has below response_format.json_schema.
type namedSchema struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema"`
	Strict      *bool           `json:"strict,omitempty"`
}

func jsonSchema(s namedSchema) (json.RawMessage, *apiError) {
	return plain(struct {
		Type   string      `json:"type"`
		Schema namedSchema `json:"json_schema"`
	}{"json_schema", s})
}

// think switches a template's reasoning on or off, where it has that switch; the
// budget cannot be kept and is passed by. Options that the template does not know
// would only keep requests from sharing blocks, so they are left out.
func (q *messagesRequest) think(t *schemas.Turn, o messagesOptions) *apiError {
	if !given(q.Thinking) {
		return nil
	}
	var c struct {
		Type    string          `json:"type"`
		Budget  json.RawMessage `json:"budget_tokens"`
		Display json.RawMessage `json:"display"`
	}
	if e := below("thinking", q.Thinking, &c); e != nil {
		return e
	}
	switch c.Type {
	case "adaptive", "between_tools":
		return nil
	case "enabled", "disabled":
		if o.thinks {
			t.ChatTemplateKwargs = thinkingKwargs(c.Type == "enabled")
		}
		return nil
	}
	return invalid("thinking.type", "thinking.type: Input should be 'enabled', 'disabled', 'adaptive' or 'between_tools'")
}

func thinkingKwargs(on bool) json.RawMessage {
	if on {
		return json.RawMessage(`{"enable_thinking":true}`)
	}
	return json.RawMessage(`{"enable_thinking":false}`)
}
