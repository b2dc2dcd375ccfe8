package tokenizer

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/weir-dev/weir/gpuexec/chat"
	"github.com/weir-dev/weir/schemas"
)

// No URL of an image ends in a panic or in an image without tokens.
func FuzzImageURL(f *testing.F) {
	r := renderer(f, chat.Fallback, withVision)
	for _, url := range []string{
		refTo("a", 10, 10), "weir-media:" + strings.Repeat("a", 64) + "?w=1;h=2", "weir-media:?", "data:,", "data:image/png;base64,iVBORw0KGgo=", "data:image/webp;base64,UklGRgAAAABXRUJQVlA4WAAAAAAAAAAAAAAAAAAA",
		"https://a", ":", "", "weir-mediA", "data",
	} {
		f.Add(url)
	}
	f.Fuzz(func(t *testing.T, url string) {
		value, err := json.Marshal(map[string]string{"url": url})
		if err != nil {
			t.Skip()
		}
		req := schemas.RenderRequest{Messages: []json.RawMessage{json.RawMessage(`{"role":"user","content":[{"type":"image_url","image_url":` + string(value) + `}]}`)}}
		reply := r.Render(&req)
		switch {
		case reply.Failure == nil && (len(reply.Media) != 1 || reply.Media[0].Length < 1 || len(reply.Media[0].Digest) != 64):
			t.Errorf("media %+v", reply.Media)
		case reply.Failure != nil && !strings.HasPrefix(reply.Failure.Param, "messages[0].content[0]"):
			t.Errorf("failure %+v", reply.Failure)
		}
	})
}

// Any tool_choice and tools are taken or refused by name.
func FuzzToolChoice(f *testing.F) {
	r := renderer(f, chat.Fallback)
	f.Add(`"auto"`, weatherTool)
	f.Add(`{"type":"function","function":{"name":"weather"}}`, weatherTool)
	f.Add(`{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"function":{}}]}}`, timeTool)
	f.Add(`null`, `{"type":"function","function":{"name":"é\n\"","parameters":7}}`)
	f.Add(`"required"`, `{"type":"function","function":{"name":"a b","parameters":{"type":["object"]}}}`)
	f.Fuzz(func(t *testing.T, choice, tool string) {
		if !json.Valid([]byte(choice)) || !json.Valid([]byte(tool)) {
			t.Skip()
		}
		req := schemas.RenderRequest{
			Messages: []json.RawMessage{json.RawMessage(`{"role":"user","content":"q"}`)}, Tools: []json.RawMessage{json.RawMessage(tool)}, ToolChoice: json.RawMessage(choice),
		}
		reply := r.Render(&req)
		if reply.Failure != nil {
			if reply.Failure.Code == "" || reply.Failure.Param == "" || reply.Failure.Message == "" {
				t.Errorf("failure %+v", reply.Failure)
			}
			return
		}
		if _, err := chat.ParseSpec(reply.Parse); err != nil {
			t.Error(err)
		}
	})
}
