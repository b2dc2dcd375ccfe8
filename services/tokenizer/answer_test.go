package tokenizer

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/weir-dev/weir/gpuexec/chat"
	"github.com/weir-dev/weir/schemas"
)

// An answer that comes back: what was generated, what follows it, and what the
// template makes of it.
func TestAnswer(t *testing.T) {
	const (
		user = `{"role":"user","content":"go on"}`
		tool = `{"role":"tool","tool_call_id":"call_1","content":"24 °C"}`
	)
	for _, c := range []struct {
		template  string
		generated string
		end       string // text of the end token, "" when the answer was cut
		next      string
		kwargs    string
		used      bool
		cause     schemas.RewriteCause
	}{
		{"default", "plain words", "<|im_end|>", user, "", true, ""},
		{"default", "서울은 맑음", "<|im_end|>", user, "", true, ""},
		{"default", "cut by the leng", "", user, "", true, ""},
		{"default", "before the stop string ", "", user, "", true, ""},
		{"default", "", "<|im_end|>", user, "", true, ""},
		{"default", "ends in newlines\n\n", "<|im_end|>", user, "", true, ""},
		{"default", "says <|im_end|>\n<|im_start|>user\n itself", "<|im_end|>", user, "", true, ""},
		{"default", "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"서울\"}}\n</tool_call>", "<|im_end|>", tool, "", true, ""},
		{"default", "<tool_call>{\"arguments\":{\"city\":\"서울\",\"days\":1},\"name\":\"weather\"}</tool_call>", "<|im_end|>", tool, "", true, schemas.RewriteCalls},
		{"default", "I look.\n\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {}}\n</tool_call>\n", "<|im_end|>", tool, "", true, schemas.RewriteSpace},
		{"default", "<think>\nwhich city?\n</think>\n\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"서울\"}}\n</tool_call>", "<|im_end|>", tool, "", true, ""},
		{"default", "<think>which city?</think><tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"서울\"}}\n</tool_call>", "<|im_end|>", tool, "", true, schemas.RewriteSpace},
		{"default", "<think>\nhm\n</think>\n\nplain", "<|im_end|>", user, "", false, schemas.RewriteReasoning},
		{"default", "plain", "<|im_end|>", user, `{"enable_thinking":false}`, true, ""},
		{"default", "plain", "</s>", user, "", true, ""}, // another end token

		{"hermes", "plain words", "<|im_end|>", user, "", true, ""},
		{"hermes", "<think>\nhm\n</think>\n\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"x\"}}\n</tool_call>", "<|im_end|>", tool, "", true, ""},
		{"hermes", "<think>\nhm\n</think>\n\nplain", "<|im_end|>", user, "", false, schemas.RewriteReasoning},
		{"hermes", "plain", "<|im_end|>", user, `{"enable_thinking":false}`, false, schemas.RewriteReasoning},

		{"llama3", "plain words", "<|eot_id|>", user, "", true, ""},
		{"llama3", " spaces around \n", "<|eot_id|>", user, "", true, schemas.RewriteSpace},
		{"llama3", "{\"name\": \"weather\", \"parameters\": {\"city\": \"x\"}}", "<|eot_id|>", tool, "", true, ""},
		{"llama3", "{\"name\":\"weather\",\"parameters\":{\"city\":\"x\"}}", "<|eot_id|>", tool, "", true, schemas.RewriteSpace},

		{"kimi", "plain words", "<|im_end|>", user, "", true, ""},
		{"kimi", "Look.<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>{\"city\":\"x\"}<|tool_call_end|><|tool_calls_section_end|>", "<|im_end|>", tool, "", true, ""},
		{"kimi", "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>{\"city\": \"x\"}<|tool_call_end|><|tool_calls_section_end|>", "<|im_end|>", tool, "", true, schemas.RewriteSpace},

		{"deepseek", "plain words", "<｜end▁of▁sentence｜>", user, "", true, ""},
		{"deepseek", "hm</think>plain", "<｜end▁of▁sentence｜>", user, `{"thinking":true}`, false, schemas.RewriteReasoning},

		{"mistral", "plain words", "</s>", user, "", false, schemas.RewriteText}, // tools move behind it
		{"mistral", "[TOOL_CALLS]weather[ARGS]{\"city\": \"x\"}", "</s>", tool, "", true, ""},
		{"mistral", "[THINK]hm[/THINK][TOOL_CALLS]weather[ARGS]{\"city\": \"x\"}", "</s>", tool, "", true, ""},

		{"glm", "<think></think>\nplain words", "<|user|>", user, "", true, schemas.RewriteSpace},
		{"glm", "\n<think></think>\nplain words", "<|user|>", user, "", true, ""},
		{"glm", "\n<think></think>\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>x</arg_value>\n</tool_call>", "<|observation|>", tool, "", true, ""},
		{"glm", "\n<think>hm</think>\nplain", "<|user|>", user, "", false, schemas.RewriteReasoning},
	} {
		t.Run(c.template+"/"+c.generated, func(t *testing.T) {
			r := renderer(t, familyTemplate(t, c.template))
			req := schemas.RenderRequest{Messages: list(t, `[{"role":"system","content":"sys"},{"role":"user","content":"weather?"}]`), Tools: list(t, `[`+weatherTool+`]`), Kwargs: json.RawMessage(c.kwargs)}
			first := rendered(t, r, req)
			spec, err := chat.ParseSpec(first.Parse)
			if err != nil {
				t.Fatal(err)
			}
			p := chat.NewParser(spec, "job")
			p.Add(c.generated)
			p.End()
			req.Messages = append(req.Messages, p.Message(), json.RawMessage(c.next))
			req.Known = []schemas.KnownText{{Bytes: 3, Digest: digest(first.Text[:3])}, {Bytes: len(first.Text), Digest: digest(first.Text)}}
			req.Answer = &schemas.AnswerText{At: 2, Known: 2, Text: c.generated, End: c.end}
			second := rendered(t, r, req)
			if used := second.Answered > 0; used != c.used || second.Rewrite != c.cause {
				t.Fatalf("used %t, rewrite %q; want %t, %q\nmessage %s\nprompt %q", used, second.Rewrite, c.used, c.cause, p.Message(), second.Text)
			}
			from := 0
			switch {
			case second.Answered > 0:
				from = second.Answered
				end := c.end
				if c.template == "default" && end == "</s>" {
					end = "" // the template ends answers by another token
				}
				if second.Matched != 2 || !strings.HasSuffix(second.Text[:from], end) || !strings.HasPrefix(second.Text, first.Text) {
					t.Errorf("matched %d, covered %q of %q", second.Matched, second.Text[:from], second.Text)
				}
				if c.cause == "" && second.Text[:from] != first.Text+c.generated+end {
					t.Errorf("covered %q, want %q", second.Text[:from], first.Text+c.generated+end)
				}
			case second.Matched > 0:
				from = req.Known[second.Matched-1].Bytes
			}
			if !slices.Equal(second.Tokens, plainTokens(t, second.Text[from:])) {
				t.Errorf("tokens are not those of %q", second.Text[from:])
			}
		})
	}
}
