package tokenizer

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weir-dev/weir/gpuexec/chat"
	"github.com/weir-dev/weir/schemas"
)

// Whatever was generated, the answer's tokens are used to its very end and nothing
// behind it is lost or repeated; or they are not used at all, with a reason.
func TestSpliceProperty(t *testing.T) {
	renderers := map[string]*Renderer{}
	ends := map[string]string{"default": "<|im_end|>", "hermes": "<|im_end|>", "llama3": "<|eot_id|>", "kimi": "<|im_end|>", "deepseek": "<｜end▁of▁sentence｜>", "mistral": "</s>"}
	rest := map[string]string{
		"default": "\n<|im_start|>user\nnext 다음<|im_end|>\n<|im_start|>assistant\n", "hermes": "\n<|im_start|>user\nnext 다음<|im_end|>\n<|im_start|>assistant\n",
		"llama3": "<|start_header_id|>user<|end_header_id|>\n\nnext 다음<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
		"kimi":   "<|im_user|>user<|im_middle|>next 다음<|im_end|><|im_assistant|>assistant<|im_middle|>", "deepseek": "<｜User｜>next 다음<｜Assistant｜></think>", "mistral": "[INST]next 다음[/INST]",
	}
	for name := range ends {
		renderers[name] = renderer(t, familyTemplate(t, name))
	}
	pieces := []string{
		"words ", "한국어", "\n", "\n\n", " ", "\t", "<tool_call>", "</tool_call>", `{"name": "f", "arguments": {"a": 1}}`, `{"name": "f", "parameters": {}}`, "<think>", "</think>",
		"<|im_end|>", "<|im_end|>\n", "<|im_start|>user\n", "[TOOL_CALLS]", "[ARGS]", "{}", "</s>", "<|eot_id|>", "next 다음", "\uFFFD", "\x00", `"`, `\`, "<|image_pad|>",
	}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom([]string{"deepseek", "default", "hermes", "kimi", "llama3", "mistral"}).Draw(t, "template")
		r := renderers[name]
		generated := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 12).Draw(t, "answer"), "")
		end := ends[name]
		if rapid.Bool().Draw(t, "cut") {
			end = ""
		}
		render := func(req schemas.RenderRequest) schemas.RenderReply {
			reply := r.Render(&req)
			if reply.Failure != nil {
				t.Fatalf("%+v", reply.Failure)
			}
			return reply
		}
		req := schemas.RenderRequest{Messages: []json.RawMessage{json.RawMessage(`{"role":"user","content":"q"}`)}}
		prompt := render(req)
		spec, err := chat.ParseSpec(prompt.Parse)
		if err != nil {
			t.Fatal(err)
		}
		p := chat.NewParser(spec, "job")
		p.Add(generated)
		p.End()
		req.Messages = append(req.Messages, p.Message(), json.RawMessage(`{"role":"user","content":"next 다음"}`))
		req.Known = []schemas.KnownText{{Bytes: len(prompt.Text), Digest: digest(prompt.Text)}}
		req.Answer = &schemas.AnswerText{At: 1, Known: 1, Text: generated, End: end}
		second := render(req)
		if second.Answered == 0 {
			if second.Rewrite == "" {
				t.Fatalf("not used, without a reason: %q", second.Text)
			}
			return
		}
		if !strings.HasPrefix(second.Text, prompt.Text) || second.Matched != 1 {
			t.Fatalf("matched %d, %q", second.Matched, second.Text)
		}
		want := rest[name]
		if end == "" {
			want = ends[name] + want
		}
		if got := second.Text[second.Answered:]; got != want {
			t.Fatalf("behind the answer stands %q, want %q", got, want)
		}
	})
}
