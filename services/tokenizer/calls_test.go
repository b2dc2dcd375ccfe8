package tokenizer

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/weir-dev/weir/gpuexec/grammar"
	"github.com/weir-dev/weir/schemas"
)

// TestForced: a required call is a grammar of what the template's family writes.
func TestForced(t *testing.T) {
	for template, call := range map[string]string{
		"default":  "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"x\"}}\n</tool_call>",
		"hermes":   "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"x\"}}\n</tool_call>",
		"llama3":   `{"name": "weather", "parameters": {"city": "x"}}`,
		"kimi":     `<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>{"city": "x"}<|tool_call_end|><|tool_calls_section_end|>`,
		"coder":    "<tool_call>\n<function=weather>\n<parameter=city>\nx\n</parameter>\n</function>\n</tool_call>",
		"glm":      "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>x</arg_value>\n</tool_call>",
		"deepseek": `<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{"city": "x"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>`,
		"mistral":  `[TOOL_CALLS]weather[ARGS]{"city": "x"}`,
	} {
		for _, choice := range []string{`"required"`, `{"type":"function","function":{"name":"weather"}}`} {
			r := renderer(t, familyTemplate(t, template))
			reply := rendered(t, r, schemas.RenderRequest{
				Messages: list(t, `[{"role":"user","content":"weather?"}]`), Tools: list(t, `[`+weatherTool+`]`), ToolChoice: json.RawMessage(choice),
			})
			g, err := grammar.Parse(reply.Grammar)
			if err != nil {
				t.Fatalf("%s: %v", template, err)
			}
			if !g.Match(call) || g.Match(strings.Replace(call, "weather", "whether", 1)) || g.Match("weather is fine") {
				t.Errorf("%s: %s\n%s", template, call, reply.Grammar)
			}
		}
	}
}
