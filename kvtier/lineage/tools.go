package lineage

import (
	"encoding/json"

	"github.com/weir-dev/weir/schemas"
)

// checkTools reports tools that no template could show to a model, and a choice
// among them that means nothing.
func checkTools(m *schemas.Turn) *schemas.Failure {
	for i, raw := range m.Tools {
		var tool struct {
			Type     string `json:"type"`
			Function struct {
				Name string `json:"name"`
			} `json:"function"`
		}
		switch err := json.Unmarshal(raw, &tool); {
		case err != nil:
			return invalid("tools", "tools[%d] must be an object with a type and a function that has a name", i)
		case tool.Type != "function":
			return invalid("tools", "tools[%d].type is %.40q, only function is known", i, tool.Type)
		case tool.Function.Name == "":
			return invalid("tools", "tools[%d].function.name must not be empty", i)
		}
	}
	if len(m.ToolChoice) == 0 || string(m.ToolChoice) == "null" {
		return nil
	}
	var word string
	if json.Unmarshal(m.ToolChoice, &word) == nil {
		switch word {
		case "none", "auto":
			return nil
		case "required":
			return invalid("tool_choice", "a call cannot be required: answers are not parsed into tool calls yet; use auto")
		}
		return invalid("tool_choice", "tool_choice is %.40q, allowed are none and auto", word)
	}
	var choice struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(m.ToolChoice, &choice) != nil || choice.Type == "" {
		return invalid("tool_choice", "tool_choice must be a string, or an object with a type")
	}
	return invalid("tool_choice", "a certain call cannot be required: answers are not parsed into tool calls yet; use auto")
}
