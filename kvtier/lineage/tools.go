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
			return toolsNeeded(m)
		}
		return invalid("tool_choice", "tool_choice is %.40q, allowed are none, auto, required and an object that names a function", word)
	}
	var choice struct {
		Type     string `json:"type"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
		Allowed json.RawMessage `json:"allowed_tools"`
	}
	if json.Unmarshal(m.ToolChoice, &choice) != nil || choice.Type == "" {
		return invalid("tool_choice", "tool_choice must be a string, or an object with a type")
	}
	switch {
	case choice.Type == "function" && choice.Function.Name == "":
		return invalid("tool_choice.function.name", "tool_choice.function.name must not be empty")
	case choice.Type == "allowed_tools" && len(choice.Allowed) == 0:
		return invalid("tool_choice.allowed_tools", "tool_choice.allowed_tools is missing")
	case choice.Type != "function" && choice.Type != "allowed_tools":
		return invalid("tool_choice.type", "tool_choice.type is %.40q, known are function and allowed_tools", choice.Type)
	}
	return toolsNeeded(m)
}

func toolsNeeded(m *schemas.Turn) *schemas.Failure {
	if len(m.Tools) == 0 {
		return invalid("tool_choice", "tool_choice asks for a call and there are no tools")
	}
	return nil
}
