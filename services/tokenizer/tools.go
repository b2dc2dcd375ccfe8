package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"

	"github.com/weir-dev/weir/gpuexec/grammar"
	"github.com/weir-dev/weir/schemas"
)

// toolsName finds the variable by which a template is given tools. A template that
// never mentions it would leave them out without a word.
var toolsName = regexp.MustCompile(`\btools\b`)

// choice is what a request says about tools.
type choice struct {
	tools  []json.RawMessage // shown to the model
	parse  bool              // calls are looked for in the answer
	forced bool              // there must be a call
	only   []string          // names of which one must be called; nil: of any
	one    bool              // at most one call
}

// names of tool_choice, in an error's text.
const choices = `"auto", "none", "required", {"type":"function","function":{"name":…}} or {"type":"allowed_tools",…}`

// choice reads tools, tool_choice and parallel_tool_calls. With "none" the tools
// stay in the prompt, so that a turn without calls has the same prefix as the
// others.
func (r *Renderer) choice(req *schemas.RenderRequest) (choice, *schemas.Failure) {
	c := choice{tools: req.Tools, one: req.Parallel != nil && !*req.Parallel}
	names, f := toolNames(req.Tools)
	if f != nil {
		return c, f
	}
	mode, only, f := toolChoice(req.ToolChoice)
	if f != nil {
		return c, f
	}
	for _, name := range only {
		if !slices.Contains(names, name) {
			return c, invalid("tool_choice", "tool_choice names the function %q, which is not in tools", name)
		}
	}
	switch {
	case mode == "required" && len(names) == 0:
		return c, invalid("tool_choice", "tool_choice requires a call, but there are no tools")
	case mode == "none" && !r.takesTool:
		c.tools = nil
		return c, nil
	case len(names) == 0 || mode == "none":
		return c, nil
	case !r.takesTool:
		return c, invalid("tools", "the chat template of model %s does not show tools to the model; send the turn without tools, or serve a model whose template knows them", r.model.Name)
	}
	c.parse = true
	if mode == "required" {
		c.forced, c.only = true, only
		c.one = c.one || namesFunction(req.ToolChoice)
		return c, nil
	}
	if len(only) > 0 { // allowed, not required: the others are not shown
		c.tools = nil
		for i, raw := range req.Tools {
			if slices.Contains(only, names[i]) {
				c.tools = append(c.tools, raw)
			}
		}
	}
	return c, nil
}

// namesFunction tells whether tool_choice names one function. It is called once, as
// the real service does.
func namesFunction(choice json.RawMessage) bool {
	var v struct {
		Type string `json:"type"`
	}
	return json.Unmarshal(choice, &v) == nil && v.Type == "function"
}

// toolNames checks the tools of a request and returns their functions' names.
func toolNames(tools []json.RawMessage) ([]string, *schemas.Failure) {
	var names []string
	for i, raw := range tools {
		at := fmt.Sprintf("tools[%d]", i)
		var t struct {
			Type     string `json:"type"`
			Function *struct {
				Name string `json:"name"`
			} `json:"function"`
		}
		switch err := json.Unmarshal(raw, &t); {
		case err != nil:
			return nil, invalid(at, "%s must be an object with type and function", at)
		case t.Type != "function":
			return nil, invalid(at+".type", "%s.type is %q; only tools of type function can be used here", at, t.Type)
		case t.Function == nil || t.Function.Name == "":
			return nil, invalid(at+".function.name", "%s.function needs a name", at)
		}
		names = append(names, t.Function.Name)
	}
	return names, nil
}

// toolChoice reads tool_choice: the mode is auto, none or required, and only are
// the functions that it is limited to, nil for all.
func toolChoice(raw json.RawMessage) (mode string, only []string, f *schemas.Failure) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return "auto", nil, nil
	}
	if json.Unmarshal(raw, &mode) == nil {
		switch mode {
		case "auto", "none", "required":
			return mode, nil, nil
		}
		return "", nil, invalid("tool_choice", "tool_choice is %q, allowed are %s", mode, choices)
	}
	type named struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	var v struct {
		Type string `json:"type"`
		named
		Allowed struct {
			Mode  string  `json:"mode"`
			Tools []named `json:"tools"`
		} `json:"allowed_tools"`
	}
	if json.Unmarshal(raw, &v) != nil {
		return "", nil, invalid("tool_choice", "tool_choice must be %s", choices)
	}
	switch {
	case v.Type == "function" && v.Function.Name != "":
		return "required", []string{v.Function.Name}, nil
	case v.Type == "allowed_tools" && (v.Allowed.Mode == "auto" || v.Allowed.Mode == "required") && len(v.Allowed.Tools) > 0:
		for _, t := range v.Allowed.Tools {
			only = append(only, t.Function.Name)
		}
		return v.Allowed.Mode, only, nil
	case v.Type == "allowed_tools":
		return "", nil, invalid("tool_choice.allowed_tools", "allowed_tools needs a mode, auto or required, and a list of tools")
	}
	return "", nil, invalid("tool_choice", "tool_choice must be %s", choices)
}

// grammar is what the answer is constrained to: a grammar that came with the
// request, response_format or a required call. Nothing unchecked reaches a library.
// thinks: the prompt has opened the reasoning.
func (r *Renderer) grammar(req *schemas.RenderRequest, c choice, thinks bool) (string, *schemas.Failure) {
	g, param, f := format(req)
	switch {
	case f != nil:
		return "", f
	case c.forced && g != "":
		return "", invalid("tool_choice", "a required tool call and %s both say what the answer must be; leave one of them out", param)
	case c.forced:
		param = "tool_choice"
	case g == "":
		return "", nil
	}
	if !r.constrain {
		return "", invalid(param, "the %s engine cannot constrain its answers; use the llama engine", r.model.Engine)
	}
	if !c.parse || param == "grammar" {
		return g, nil
	}
	calls, err := grammar.ToolCalls(grammar.Calls{
		Family: string(r.family), Template: r.model.Template, Tools: c.tools, Only: c.only, One: c.one, Thinks: thinks && c.forced,
	})
	switch {
	case err != nil && c.forced:
		return "", invalid("tool_choice", "the call cannot be required: %s", err)
	case err != nil: // nothing can be called in that form
		return g, nil
	case c.forced:
		return calls, nil
	}
	// The model may call a tool or give the answer in its format.
	both := either(g, calls)
	if err := grammar.Check(both); err != nil {
		return "", invalid(param, "%s and tools together: %s", param, err)
	}
	return both, nil
}

// format turns grammar or response_format into GBNF; param says which it was.
func format(req *schemas.RenderRequest) (g, param string, f *schemas.Failure) {
	if req.Grammar != "" {
		if err := grammar.Check(req.Grammar); err != nil {
			return "", "", invalid("grammar", "%s", err)
		}
		return req.Grammar, "grammar", nil
	}
	if len(req.ResponseFormat) == 0 || string(req.ResponseFormat) == "null" {
		return "", "", nil
	}
	var v struct {
		Type       string `json:"type"`
		JSONSchema struct {
			Schema json.RawMessage `json:"schema"`
		} `json:"json_schema"`
	}
	if err := json.Unmarshal(req.ResponseFormat, &v); err != nil {
		return "", "", invalid("response_format", "response_format must be an object with a type")
	}
	switch v.Type {
	case "text":
		return "", "", nil
	case "json_object":
		return grammar.JSONObject(), "response_format", nil
	case "json_schema":
		if len(v.JSONSchema.Schema) == 0 {
			return "", "", invalid("response_format.json_schema.schema", "the schema is missing")
		}
		if g, err := grammar.FromSchema(v.JSONSchema.Schema); err == nil {
			return g, "response_format", nil
		} else {
			return "", "", invalid("response_format.json_schema.schema", "%s", err)
		}
	}
	return "", "", invalid("response_format.type", "%q is not one of text, json_object, json_schema", v.Type)
}
