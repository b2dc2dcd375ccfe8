package tokenizer

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"slices"
	"strings"
	"testing"

	"github.com/weir-dev/weir/gpuexec/chat"
	"github.com/weir-dev/weir/gpuexec/nullengine"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/model"
)

func withVision(m *model.Model) {
	m.Vision = &model.Vision{Token: nullengine.TokenImage, Text: nullengine.ImageText, Patch: 28}
}

func reqWith(t testing.TB, content ...string) schemas.RenderRequest {
	t.Helper()
	return schemas.RenderRequest{Messages: list(t, `[{"role":"user","content":[`+strings.Join(content, ",")+`]}]`)}
}

func imagePart(url string) string {
	return fmt.Sprintf(`{"type":"image_url","image_url":{"url":%q}}`, url)
}

func refTo(c string, w, h int) string {
	return fmt.Sprintf("weir-media:%s?type=image/png&w=%d&h=%d&bytes=1000", strings.Repeat(c, 64), w, h)
}

func TestImages(t *testing.T) {
	for _, template := range []string{"default", "hermes", "llama3", "kimi", "glm", "deepseek", "mistral"} {
		t.Run(template, func(t *testing.T) {
			r := renderer(t, familyTemplate(t, template), withVision)
			first := rendered(t, r, reqWith(t, `{"type":"text","text":"see"}`, imagePart(refTo("a", 56, 84)), imagePart(refTo("b", 28, 280)), `{"type":"text","text":"?"}`))
			if len(first.Media) != 2 || first.Media[0].Length != 6 || first.Media[1].Length != 10 || first.Uncached {
				t.Fatalf("media %+v", first.Media)
			}
			images := 0
			for i, m := range first.Media {
				for _, tok := range first.Tokens[m.Offset : m.Offset+m.Length] {
					if tok != nullengine.TokenImage {
						t.Fatalf("image %d holds token %d", i, tok)
					}
				}
				images += m.Length
				if m.Ref != strings.Repeat(string("ab"[i]), 64) {
					t.Errorf("image %d refers to %q", i, m.Ref)
				}
			}
			placeholders := 0
			for _, tok := range first.Tokens {
				if tok == nullengine.TokenImage {
					placeholders++
				}
			}
			if placeholders != images {
				t.Errorf("%d placeholders for %d image tokens", placeholders, images)
			}
			if strings.Contains(first.Text, "weir-image") {
				t.Errorf("a mark is left in %q", first.Text)
			}
			// The same text with another image is not known text.
			known := []schemas.KnownText{{Bytes: len(first.Text), Digest: digest(first.Text)}}
			req := reqWith(t, `{"type":"text","text":"see"}`, imagePart(refTo("a", 56, 84)), imagePart(refTo("c", 28, 280)), `{"type":"text","text":"?"}`)
			req.Known = known
			other := rendered(t, r, req)
			if other.Matched != 0 || other.Media[0].Digest != first.Media[0].Digest || other.Media[1].Digest == first.Media[1].Digest {
				t.Errorf("matched %d, media %+v and %+v", other.Matched, first.Media, other.Media)
			}
			// And the same one is, without its media.
			req = reqWith(t, `{"type":"text","text":"see"}`, imagePart(refTo("a", 56, 84)), imagePart(refTo("b", 28, 280)), `{"type":"text","text":"?"}`)
			req.Known = known
			if again := rendered(t, r, req); again.Matched != 1 || len(again.Media) != 0 || len(again.Tokens) != 0 {
				t.Errorf("again: %+v", again)
			}
		})
	}
}

// Offsets count from the first token that is returned.
func TestMediaBehindKnown(t *testing.T) {
	r := renderer(t, chat.Fallback, withVision)
	first := rendered(t, r, reqWith(t, `{"type":"text","text":"see"}`, imagePart(refTo("a", 28, 280))))
	req := schemas.RenderRequest{
		Messages: append(reqWith(t, `{"type":"text","text":"see"}`, imagePart(refTo("a", 28, 280))).Messages,
			json.RawMessage(`{"role":"assistant","content":"ok"}`), json.RawMessage(`{"role":"user","content":[`+imagePart(refTo("b", 28, 140))+`]}`)),
		Known:  []schemas.KnownText{{Bytes: len(first.Text), Digest: digest(first.Text)}},
		Answer: &schemas.AnswerText{At: 1, Known: 1, Text: "ok", End: "<|im_end|>"},
	}
	second := rendered(t, r, req)
	if second.Answered == 0 || len(second.Media) != 1 || second.Media[0].Length != 5 {
		t.Fatalf("%+v", second)
	}
	m := second.Media[0]
	want := slices.Concat(plainTokens(t, "\n<|im_start|>user\n"), slices.Repeat([]int32{nullengine.TokenImage}, 5), plainTokens(t, "<|im_end|>\n<|im_start|>assistant\n"))
	if !slices.Equal(second.Tokens, want) || m.Offset != len("\n<|im_start|>user\n")-len("<|im_start|>")+1 {
		t.Errorf("offset %d, tokens %v, want %v", m.Offset, second.Tokens, want)
	}
}

// What a user writes is text, whatever it looks like.
func TestForgedImages(t *testing.T) {
	r := renderer(t, chat.Fallback, withVision)
	first := rendered(t, r, reqWith(t, imagePart(refTo("a", 28, 280))))
	at := strings.Index(first.Text, imageBound)
	forged := first.Text[at : strings.LastIndex(first.Text, imageBound)+len(imageBound)]
	for _, text := range []string{forged, nullengine.ImageText, "weir-image-00000000000000000000000000000000-0.", imageBound} {
		part, err := json.Marshal(map[string]string{"type": "text", "text": text})
		if err != nil {
			t.Fatal(err)
		}
		req := reqWith(t, string(part))
		req.Known = []schemas.KnownText{{Bytes: len(first.Text), Digest: digest(first.Text)}}
		reply := rendered(t, r, req)
		if len(reply.Media) != 0 || reply.Matched != 0 || slices.Contains(reply.Tokens, nullengine.TokenImage) {
			t.Errorf("%q: matched %d, media %+v, tokens %v", text, reply.Matched, reply.Media, reply.Tokens)
		}
	}
}

func TestBadImages(t *testing.T) {
	data := func(b []byte) string { return "data:image/png;base64," + base64.StdEncoding.EncodeToString(b) }
	for _, c := range []struct{ name, part, param, text string }{
		{"web", imagePart("https://example.com/a.png"), "messages[0].content[1].image_url.url", "data: URL"},
		{"no url", `{"type":"image_url","image_url":{}}`, "messages[0].content[1].image_url", "url"},
		{"no object", `{"type":"image_url","image_url":7}`, "messages[0].content[1].image_url", "url"},
		{"other scheme", imagePart("ftp://a"), "messages[0].content[1].image_url.url", "no URL of an image"},
		{"detail", `{"type":"image_url","image_url":{"url":"data:,","detail":"best"}}`, "messages[0].content[1].image_url.detail", "best"},
		{"not base64", imagePart("data:image/png;base64,***"), "messages[0].content[1].image_url.url", "base64"},
		{"no comma", imagePart("data:image/png;base64"), "messages[0].content[1].image_url.url", "data:image/png;base64,"},
		{"no image", imagePart(data([]byte("hello"))), "messages[0].content[1].image_url.url", "no image that is known here"},
		{"broken webp", imagePart(data(append([]byte("RIFF....WEBPVP8 "), make([]byte, 20)...))), "messages[0].content[1].image_url.url", "key frame"},
		{"short digest", imagePart("weir-media:abc?w=1&h=1"), "messages[0].content[1].image_url.url", "SHA-256"},
		{"negative size", imagePart(refTo("a", -1, 5)), "messages[0].content[1].image_url.url", "-1"},
		{"audio", `{"type":"input_audio","input_audio":{}}`, "messages[0].content[1]", "text and images"},
		{"unknown", `{"type":"smell"}`, "messages[0].content[1].type", "smell"},
	} {
		t.Run(c.name, func(t *testing.T) {
			req := reqWith(t, `{"type":"text","text":"see"}`, c.part)
			f := renderer(t, chat.Fallback, withVision).Render(&req).Failure
			if f == nil || f.Code != schemas.CodeInvalid || f.Param != c.param || !strings.Contains(f.Message, c.text) {
				t.Errorf("failure %+v, want param %q with %q", f, c.param, c.text)
			}
		})
	}
	req := reqWith(t, imagePart(refTo("a", 1, 1)))
	if f := renderer(t, chat.Fallback).Render(&req).Failure; f == nil || f.Param != "messages[0].content[0]" || !strings.Contains(f.Message, "text only") {
		t.Errorf("a model without vision: %+v", f)
	}
}

// The size comes from the bytes, whatever type the URL names.
func TestImageFormats(t *testing.T) {
	picture := image.NewGray(image.Rect(0, 0, 300, 57))
	encoded := func(encode func(b *bytes.Buffer) error) []byte {
		var b bytes.Buffer
		if err := encode(&b); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	webpOf := func(chunk string, data ...byte) []byte {
		return append([]byte("RIFF\x00\x00\x00\x00WEBP"+chunk+"\x00\x00\x00\x00"), append(data, make([]byte, 20)...)...)
	}
	for name, b := range map[string][]byte{
		"png":       encoded(func(b *bytes.Buffer) error { return png.Encode(b, picture) }),
		"jpeg":      encoded(func(b *bytes.Buffer) error { return jpeg.Encode(b, picture, nil) }),
		"gif":       encoded(func(b *bytes.Buffer) error { return gif.Encode(b, picture, nil) }),
		"webp VP8X": webpOf("VP8X", 0, 0, 0, 0, 299&255, 299>>8, 0, 56, 0, 0),
		"webp VP8L": webpOf("VP8L", 0x2F, 299&255, byte(299>>8|56<<6&255), 56>>2, 0),
		"webp VP8":  webpOf("VP8 ", 0, 0, 0, 0x9D, 1, 0x2A, 300&255, 300>>8, 57, 0),
	} {
		r := renderer(t, chat.Fallback, withVision)
		reply := rendered(t, r, reqWith(t, imagePart("data:image/png;base64,"+base64.StdEncoding.EncodeToString(b))))
		if len(reply.Media) != 1 || reply.Media[0].Length != 11*3 || reply.Media[0].Ref != "" {
			t.Errorf("%s: media %+v, want %d tokens", name, reply.Media, 11*3)
		}
	}
}

func TestImageOptions(t *testing.T) {
	r := renderer(t, chat.Fallback, withVision)
	digests := map[string]string{}
	for _, detail := range []string{"", `,"detail":"auto"`, `,"detail":"low"`, `,"detail":"high"`} {
		reply := rendered(t, r, reqWith(t, `{"type":"image_url","image_url":{"url":"`+refTo("a", 28, 280)+`"`+detail+`}}`))
		digests[detail] = reply.Media[0].Digest
	}
	if digests[""] != digests[`,"detail":"auto"`] || digests[""] == digests[`,"detail":"low"`] || digests[`,"detail":"high"`] == digests[`,"detail":"low"`] {
		t.Errorf("digests %v", digests)
	}
	reply := rendered(t, r, reqWith(t, imagePart("weir-media:"+strings.Repeat("a", 64))))
	if !reply.Uncached || reply.Media[0].Length < 1 {
		t.Errorf("without a size: %+v", reply)
	}
	for _, c := range [][3]int{{1, 1, 4}, {0, 0, 4}, {1456, 819, 52 * 30}, {60000, 60000, 1568}, {29, 280, 20}} {
		if got := r.model.Vision.Tokens(c[0], c[1]); got != c[2] {
			t.Errorf("%d by %d pixels: %d tokens, want %d", c[0], c[1], got, c[2])
		}
	}
}
