package tokenizer

import (
	"encoding/json"
	"strings"

	"github.com/weir-dev/weir/gpuexec/chat"
)

// family is the way in which a model writes reasoning and calls; "" when it is not
// known, and then answers are text.
type family chat.Family

func familyOf(template string) family {
	f, _ := chat.FamilyOf(template)
	return family(f)
}

// openTags are what begins reasoning in the known families.
var openTags = []string{"<think>", "[THINK]", "◁think▷", "<|think|>"}

// opensReasoning tells whether a prompt ends inside reasoning that it has opened.
func opensReasoning(prompt string) bool {
	end := strings.TrimRight(prompt, " \n")
	for _, tag := range openTags {
		if strings.HasSuffix(end, tag) {
			return true
		}
	}
	return false
}

// spec is RenderReply.Parse. tools are nil where calls are not looked for.
func (f family) spec(tools []json.RawMessage, thinks, one bool) string {
	if f == "" {
		return ""
	}
	s := chat.Spec{Family: chat.Family(f), Thinks: thinks}
	if len(tools) > 0 {
		s.Tools, s.One, s.Strings = true, one, chat.StringParameters(s.Family, tools)
	}
	return s.String()
}

// said is an answer taken apart.
type said struct {
	Reasoning string            `json:"reasoning_content"`
	Content   string            `json:"content"`
	Calls     []json.RawMessage `json:"tool_calls"`
}

// parse takes an answer apart; thinks: the prompt has opened the reasoning.
func (f family) parse(text string, thinks bool) said {
	if f == "" {
		return said{Content: text}
	}
	p := chat.NewParser(chat.Spec{Family: chat.Family(f), Tools: true, Thinks: thinks}, "")
	p.Add(text)
	p.End()
	var s said
	if json.Unmarshal(p.Message(), &s) != nil {
		return said{Content: text}
	}
	return s
}
