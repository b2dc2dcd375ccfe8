package badinput

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/weir-dev/weir/schemas"
)

// The codes of failures, as the table needs them.
const (
	invalid = schemas.CodeInvalid
	unknown = "unknown_parameter" // the gateway's, for a field that nobody knows
)

func fixed(s string) func() []byte { return func() []byte { return []byte(s) } }

// chat is a good body with more fields.
func chat(more string) func() []byte {
	return fixed(`{"messages":[{"role":"user","content":"hello"}],"max_tokens":4` + more + `}`)
}

// bare is a body with nothing but these fields.
func bare(fields string) func() []byte { return fixed("{" + fields + "}") }

// Shapes are bodies that are no requests: not JSON, of wrong types, too large, or
// about what does not exist. ctx is the stack's --ctx.
func Shapes(ctx int) []Input {
	ins := []Input{
		{Name: "empty body", Body: fixed(""), Code: invalid, Status: 400, Dead: true},
		{Name: "no JSON", Body: fixed("hello there"), Code: invalid, Status: 400, Dead: true},
		{Name: "JSON cut off", Body: fixed(`{"messages":[{"role":"us`), Code: invalid, Status: 400, Dead: true},
		{Name: "an array", Body: fixed(`[1,2]`), Code: invalid, Status: 400, Dead: true},
		{Name: "null", Body: fixed(`null`), Code: invalid, Status: 400},
		{Name: "two objects", Body: fixed(`{"messages":[{"role":"user","content":"a"}]} {}`), Code: invalid, Status: 400, Dead: true},
		{Name: "zero bytes", Body: fixed("\x00\x00\x00\x00"), Code: invalid, Status: 400, Dead: true},
		{Name: "a text file with a BOM", Body: fixed("\xef\xbb\xbf{}"), Code: invalid, Status: 400, Dead: true},
		{Name: "invalid UTF-8 in a message", Body: fixed("{\"messages\":[{\"role\":\"user\",\"content\":\"a\xff\xfeb\"}]}"), Code: invalid, Status: 400, Says: "UTF-8", Dead: true},
		{Name: "invalid UTF-8 in a prompt", Body: fixed("{\"prompt\":\"a\xffb\"}"), Path: "/v1/completions", Code: invalid, Status: 400, Says: "UTF-8", Dead: true},
		{Name: "half a surrogate pair", Body: fixed(`{"messages":[{"role":"user","content":"\ud800"}],"max_tokens":4}`), Code: Answered, Status: 200},
		{Name: "unknown field", Body: chat(`,"teperature":1`), Code: unknown, Status: 400, BusCode: invalid, Says: "teperature", Dead: true},
		{Name: "unknown weir field", Body: chat(`,"weir":{"brnch":"a"}`), Code: unknown, Status: 400, BusCode: invalid, Says: "brnch", Dead: true},
		{Name: "other version", Body: chat(`,"weir":{"v":99}`), Code: invalid, Status: 400, Says: "99", Dead: true},
		{Name: "messages is a string", Body: bare(`"messages":"hello"`), Code: invalid, Status: 400, Says: "messages", Dead: true},
		{Name: "a message is a number", Body: bare(`"messages":[7]`), Code: invalid, Status: 400, Says: "message"},
		{Name: "a message is null", Body: bare(`"messages":[null]`), Code: invalid, Status: 400, Says: "message"},
		{Name: "a message is empty", Body: bare(`"messages":[{}]`), Code: invalid, Status: 400, Says: "role"},
		{Name: "role is a number", Body: bare(`"messages":[{"role":1,"content":"a"}]`), Code: invalid, Status: 400, Says: "role"},
		{Name: "content is a number", Body: bare(`"messages":[{"role":"user","content":1}]`), Code: invalid, Status: 400, Says: "content"},
		{Name: "content is an object", Body: bare(`"messages":[{"role":"user","content":{"a":1}}]`), Code: invalid, Status: 400, Says: "content"},
		{Name: "a part is a number", Body: bare(`"messages":[{"role":"user","content":[5]}]`), Code: invalid, Status: 400, Says: "content"},
		{Name: "a part of unknown kind", Body: bare(`"messages":[{"role":"user","content":[{"type":"smell","smell":"x"}]}]`), Code: invalid, Status: 400, Says: "smell"},
		{Name: "no messages", Body: bare(`"messages":[]`), Code: invalid, Status: 400, Says: "messages"},
		{Name: "nothing", Body: bare(``), Code: invalid, Status: 400, Says: "messages"},
		{Name: "messages and a prompt", Body: bare(`"messages":[{"role":"user","content":"a"}],"prompt":"b"`), Path: "-", Code: invalid, Says: "one of"},
		{Name: "an empty prompt", Body: bare(`"prompt":""`), Path: "/v1/completions", Code: Answered, Status: 200},
		{Name: "prompt is a number", Body: bare(`"prompt":5`), Path: "/v1/completions", Code: invalid, Status: 400, Says: "prompt"},
		{Name: "two prompts", Body: bare(`"prompt":["a","b"]`), Path: "/v1/completions", Code: invalid, Status: 400, Says: "prompt"},
		{Name: "unknown model", Body: chat(`,"model":"gpt-17"`), Code: schemas.CodeModel, Status: 404, Says: "gpt-17"},
		{Name: "model is a number", Body: chat(`,"model":3`), Code: invalid, Status: 400, Says: "model", Dead: true},
		{Name: "an image by URL", Body: bare(`"messages":[{"role":"user","content":[{"type":"text","text":"what is this"},{"type":"image_url","image_url":{"url":"http://example.org/a.png"}}]}]`), Code: invalid, Status: 400, Says: "image_url"},
		{Name: "an image in the text", Body: bare(`"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}}]}]`), Code: invalid, Status: 400, Says: "image_url"},
		{Name: "sound", Body: bare(`"messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"AA==","format":"wav"}}]}]`), Code: invalid, Status: 400, Says: "input_audio"},
		{Name: "a file", Body: bare(`"messages":[{"role":"user","content":[{"type":"file","file":{"file_id":"f"}}]}]`), Code: invalid, Status: 400, Says: "file"},
	}
	return append(ins, sizes(ctx)...)
}

// sizes are bodies that are too long or too deep.
func sizes(ctx int) []Input {
	repeat := func(s string, n int) string { return strings.Repeat(s, n) }
	message := func(content string) string { return `{"messages":[{"role":"user","content":"` + content + `"}]}` }
	return []Input{
		{Name: "prompt beyond the context", Body: func() []byte { return []byte(message(repeat("word ", ctx))) }, Code: schemas.CodeTooLong, Status: 400, Says: fmt.Sprint(ctx)},
		{Name: "prompt far beyond the context", Body: func() []byte { return []byte(message(repeat("word ", 40_000))) }, Code: schemas.CodeTooLong, Status: 400, Says: fmt.Sprint(ctx)},
		{Name: "tokens beyond the context", Body: func() []byte { return []byte(`{"weir":{"input_tokens":[` + repeat("1,", ctx) + `1]}}`) }, Code: schemas.CodeTooLong, Status: 400, Says: fmt.Sprint(ctx), Path: "-"},
		{Name: "12 MB prompt", Body: func() []byte { return []byte(message(repeat("lorem ipsum ", 1_000_000))) }, Code: schemas.CodeTooLong, Status: 400, BusCode: "-", Says: fmt.Sprint(ctx)},
		{Name: "20 MB body", Body: func() []byte { return []byte(message(repeat("a", 20<<20))) }, Code: "request_too_large", Status: 413, BusCode: "-"},
		{Name: "20 MB body over NATS", Body: func() []byte { return []byte(message(repeat("a", 20<<20))) }, Path: "-", Code: "refused", Says: "maximum payload"},
		{Name: "body above weir's message limit over NATS", Body: func() []byte { return []byte(message(repeat("a", schemas.MaxMessage+4096))) }, Path: "-", Code: invalid, Says: "at most", Dead: true},
		{Name: "a million messages", Body: func() []byte { return []byte(`{"messages":[` + repeat(`{},`, 999_999) + `{}]}`) }, Code: schemas.CodeTooLong, Status: 400, BusCode: "-", Says: "messages"},
		{Name: "many short messages", Body: func() []byte {
			m := `{"role":"user","content":"a"},{"role":"assistant","content":"b"},`
			return []byte(`{"messages":[` + repeat(m, 6000) + `{"role":"user","content":"a"}]}`)
		}, Code: schemas.CodeTooLong, Status: 400, Says: "messages"},
		{Name: "arrays 100,000 deep", Body: func() []byte { return []byte(`{"messages":[` + repeat("[", 100_000) + repeat("]", 100_000) + `]}`) }, Code: invalid, Status: 400, Dead: true},
		{Name: "objects 100,000 deep and cut off", Body: func() []byte { return []byte(repeat(`{"messages":`, 70_000)) }, Code: invalid, Status: 400, Dead: true},
		{Name: "content 9,000 deep", Body: func() []byte {
			return []byte(`{"messages":[{"role":"user","content":` + repeat("[", 9000) + repeat("]", 9000) + `}]}`)
		}, Code: invalid, Status: 400, Says: "nested"},
		{Name: "tools 9,000 deep", Body: func() []byte {
			return []byte(`{"messages":[{"role":"user","content":"a"}],"max_tokens":2,"tools":[{"type":"function","function":{"name":"f","parameters":` + repeat(`{"a":`, 9000) + "1" + repeat("}", 9000) + `}}]}`)
		}, Code: invalid, Status: 400, Says: "tools"},
		{Name: "a long line without a break", Body: func() []byte {
			return bytes.ReplaceAll([]byte(message("X")), []byte("X"), bytes.Repeat([]byte("\u4e2d"), 200_000))
		}, Code: schemas.CodeTooLong, Status: 400, Says: fmt.Sprint(ctx)},
	}
}
