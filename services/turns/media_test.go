package turns

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
)

func picture(w, h int, seed byte) image.Image {
	m := image.NewPaletted(image.Rect(0, 0, w, h), color.Palette{color.Black, color.White, color.RGBA{R: 200, A: 255}})
	for i := range m.Pix {
		m.Pix[i] = byte(i*7+int(seed)) % 3
	}
	return m
}

func pngOf(t testing.TB, w, h int, seed byte) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, picture(w, h, seed)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func dataURL(kind string, b []byte) string {
	return "data:" + kind + ";base64," + base64.StdEncoding.EncodeToString(b)
}

func imageMessage(urls ...string) json.RawMessage {
	parts := []string{`{"type":"text","text":"look <here>"}`}
	for _, u := range urls {
		parts = append(parts, fmt.Sprintf(`{"image_url": {"detail":"high", "url":%q},"type":"image_url","cache_control":{"type":"ephemeral"}}`, u))
	}
	return json.RawMessage(`{ "role" : "user", "content" : [` + strings.Join(parts, " , ") + `], "name":"a&b" }`)
}

// TestIdentify: every type is recognised with its size, whatever it is called.
func TestIdentify(t *testing.T) {
	var j, g bytes.Buffer
	if err := errors.Join(jpeg.Encode(&j, picture(31, 17, 0), nil), gif.Encode(&g, picture(31, 17, 0), nil)); err != nil {
		t.Fatal(err)
	}
	riff := func(chunk string) []byte { return []byte("RIFF\x24\x00\x00\x00WEBP" + chunk) }
	for want, b := range map[string][]byte{
		"image/png":    pngOf(t, 31, 17, 0),
		"image/jpeg":   j.Bytes(),
		"image/gif":    g.Bytes(),
		"image/webp":   riff("VP8 \x18\x00\x00\x00\x00\x00\x00\x9d\x01\x2a\x1f\x00\x11\x00" + strings.Repeat("\x00", 10)),
		"image/webp 2": riff("VP8L\x18\x00\x00\x00\x2f\x1e\x00\x04\x00" + strings.Repeat("\x00", 16)),
		"image/webp 3": riff("VP8X\x0a\x00\x00\x00\x00\x00\x00\x00\x1e\x00\x00\x10\x00\x00"),
	} {
		kind, w, h, err := identify(b)
		if err != nil || kind != strings.Fields(want)[0] || w != 31 || h != 17 {
			t.Errorf("%s: %s of %d x %d, %v", want, kind, w, h, err)
		}
	}
}

// TestMediaReplaced: images are stored once and referred to; the rest of a message
// stays as it is, and the caller's turn is not touched.
func TestMediaReplaced(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, k *fake) {
		a, b := pngOf(t, 40, 30, 1), pngOf(t, 50, 20, 2)
		turn := &schemas.Turn{Weir: schemas.TurnMeta{Turn: "t1"}, Body: schemas.Body{Messages: []json.RawMessage{
			json.RawMessage(`{"role":"system","content":"about image_url parts"}`),
			imageMessage(dataURL("image/png", a), dataURL("image/jpeg", b), dataURL("image/png", a)),
		}}}
		before := bytes.Clone(turn.Messages[1])
		s, err := k.c.Publish(t.Context(), Request{Session: "s", Turn: turn})
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		if !bytes.Equal(turn.Messages[1], before) {
			t.Error("the caller's message was changed")
		}
		got := k.stored(1)
		ref := func(b []byte, w, h int) string {
			return fmt.Sprintf(`{"cache_control":{"type":"ephemeral"},"image_url":{"detail":"high","url":"weir-media:%s?type=image/png&w=%d&h=%d&bytes=%d"},"type":"image_url"}`,
				hexSum(b), w, h, len(b))
		}
		want := `{"role":"user","content":[{"type":"text","text":"look <here>"},` + ref(a, 40, 30) + "," + ref(b, 50, 20) + "," + ref(a, 40, 30) + `],"name":"a&b"}`
		if !sameJSON(got.Messages[1], want) {
			t.Errorf("stored message is\n%s\nwant\n%s", got.Messages[1], want)
		}
		if got.Weir.Digest != "" || string(got.Messages[0]) != string(turn.Messages[0]) {
			t.Errorf("stored turn is %+v", got)
		}
		objects, chunks := k.bucket()
		if objects != 2 || chunks > uint64(len(a)+len(b)+1024) {
			t.Errorf("the bucket has %d objects, %d bytes of chunks for images of %d and %d", objects, chunks, len(a), len(b))
		}

		// The same turn with references in the place of the images is the same turn.
		turn.Messages = got.Messages
		again, err := k.c.Publish(t.Context(), Request{Session: "s", Turn: turn})
		if err != nil {
			t.Fatal(err)
		}
		again.Close()
		if again.digest != s.digest {
			t.Errorf("the digest became %s, was %s", again.digest, s.digest)
		}
	})
}

// TestMediaRefused: every image that cannot be used is named with its place.
func TestMediaRefused(t *testing.T) {
	good := pngOf(t, 8, 8, 0)
	ref := "weir-media:" + hexSum(good)
	for name, f := range map[string]struct{ url, want string }{
		"no comma":        {"data:image/png;base64", "no comma"},
		"not base64":      {"data:image/png,abc", "not encoded in base64"},
		"broken base64":   {"data:image/png;base64,!!!!", "broken"},
		"cut base64":      {dataURL("image/png", good)[:60], "image/png"},
		"empty":           {"data:image/png;base64,", "empty"},
		"text":            {dataURL("text/plain", []byte("hello")), "text/plain"},
		"no image":        {dataURL("image/png", []byte("hello hello hello hello hello hello")), "no image"},
		"svg":             {dataURL("image/svg+xml", []byte("<svg/>")), "no image"},
		"huge dimensions": {dataURL("image/png", hugePNG()), "100000 x 100000"},
		"bad reference":   {"weir-media:abc", "64 hex digits"},
		"no type":         {ref + "?w=1&h=1&bytes=1", "type"},
		"no width":        {ref + "?type=image/png&h=1&bytes=1", `w of stored media is ""`},
		"too many bytes":  {ref + "?type=image/png&w=1&h=1&bytes=99999999999", "bytes"},
		"not stored":      {ref + "?type=image/png&w=8&h=8&bytes=80", "send the image itself"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Options{}, func(t *testing.T, k *fake) {
				turn := &schemas.Turn{Body: schemas.Body{Messages: []json.RawMessage{imageMessage(), imageMessage(f.url)}}}
				_, err := k.c.Publish(t.Context(), Request{Session: "s", Turn: turn})
				var fe *FieldError
				if !errors.As(err, &fe) || fe.Param != "messages[1].content[1].image_url" || !strings.Contains(fe.Message, f.want) {
					t.Errorf("Publish says %v", err)
				}
				if err != nil && len(err.Error()) > 400 {
					t.Errorf("the error has %d bytes", len(err.Error()))
				}
			})
		})
	}
}

// TestMediaBareURL: some clients leave out the object around the URL.
func TestMediaBareURL(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, k *fake) {
		b := pngOf(t, 4, 5, 0)
		raw := fmt.Sprintf(`{"role":"user","content":[{"type":"image_url","image_url":%q}]}`, dataURL("image/png", b))
		turn := &schemas.Turn{Body: schemas.Body{Messages: []json.RawMessage{json.RawMessage(raw)}}}
		s, err := k.c.Publish(t.Context(), Request{Session: "s", Turn: turn})
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		want := fmt.Sprintf(`{"role":"user","content":[{"image_url":"weir-media:%s?type=image/png&w=4&h=5&bytes=%d","type":"image_url"}]}`, hexSum(b), len(b))
		if got := k.stored(1).Messages[0]; !sameJSON(got, want) {
			t.Errorf("stored message is %s", got)
		}
	})
}

func TestMediaTooMany(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, k *fake) {
		url := dataURL("image/png", pngOf(t, 2, 2, 0))
		urls := make([]string, MaxMediaParts+1)
		for i := range urls {
			urls[i] = url
		}
		turn := &schemas.Turn{Body: schemas.Body{Messages: []json.RawMessage{imageMessage(urls...)}}}
		var fe *FieldError
		if _, err := k.c.Publish(t.Context(), Request{Session: "s", Turn: turn}); !errors.As(err, &fe) {
			t.Errorf("Publish says %v", err)
		}
		turn.Messages[0] = imageMessage(urls[1:]...)
		s, err := k.c.Publish(t.Context(), Request{Session: "s", Turn: turn})
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
	})
}

// TestMediaLeftAlone: what is no image of a data: URL is for the renderer to judge.
func TestMediaLeftAlone(t *testing.T) {
	c := &Client{}
	for _, raw := range []string{
		`{"role":"user","content":"image_url"}`,
		`{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://example.com/a.png"}}]}`,
		`{"role":"user","content":[{"type":"image_url","image_url":7}]}`,
		`{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"data:","image_url":1}}]}`,
		`{"role":"user","content":{"image_url":{}}}`,
		`{"role":"user","content":[1,null,"image_url"]}`,
		`{"image_url":`,
		`[]`,
	} {
		turn := &schemas.Turn{Body: schemas.Body{Messages: []json.RawMessage{json.RawMessage(raw)}}}
		if err := c.putMedia(t.Context(), turn); err != nil || string(turn.Messages[0]) != raw {
			t.Errorf("%s became %s, %v", raw, turn.Messages[0], err)
		}
	}
}

func FuzzIdentify(f *testing.F) {
	f.Add(pngOf(f, 3, 4, 0))
	f.Add([]byte("RIFF\x24\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00\x1e\x00\x00\x10\x00\x00"))
	f.Add([]byte("\xff\xd8\xff\xc0\x00\x0b\x08\x00\x10\x00\x10\x01\x01\x11\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		kind, w, h, err := identify(b)
		if err == nil && (!knownTypes[kind] || w < 1 || h < 1 || w > MaxMediaSide || h > MaxMediaSide) {
			t.Errorf("%s of %d x %d", kind, w, h)
		}
	})
}

func FuzzParseMediaRef(f *testing.F) {
	f.Add(MediaRef{Digest: strings.Repeat("ab", 32), Type: typePNG, Width: 3, Height: 4, Bytes: 5}.String())
	f.Add("weir-media:?w=%zz")
	f.Fuzz(func(t *testing.T, s string) {
		m, err := ParseMediaRef(s)
		if err != nil {
			return
		}
		if again, err := ParseMediaRef(m.String()); err != nil || again != m {
			t.Errorf("%q is %+v, then %+v, %v", s, m, again, err)
		}
	})
}

// hugePNG says that it has 100,000 pixels a side.
func hugePNG() []byte {
	head := []byte("IHDR\x00\x01\x86\xa0\x00\x01\x86\xa0\x08\x02\x00\x00\x00")
	sum := crc32.ChecksumIEEE(head)
	b := append([]byte("\x89PNG\r\n\x1a\n\x00\x00\x00\x0d"), head...)
	return append(b, byte(sum>>24), byte(sum>>16), byte(sum>>8), byte(sum))
}

func sameJSON(a json.RawMessage, b string) bool {
	var x, y bytes.Buffer
	return json.Compact(&x, a) == nil && json.Compact(&y, []byte(b)) == nil && x.String() == strings.ReplaceAll(strings.ReplaceAll(strings.ReplaceAll(y.String(), "<", `\u003c`), ">", `\u003e`), "&", `\u0026`)
}

// stored reads a turn from AGENT.
func (k *fake) stored(seq uint64) *schemas.Turn {
	k.t.Helper()
	st, err := k.js.Stream(k.t.Context(), streams.Agent)
	if err != nil {
		k.t.Fatal(err)
	}
	m, err := st.GetMsg(k.t.Context(), seq)
	if err != nil {
		k.t.Fatal(err)
	}
	turn := new(schemas.Turn)
	if err := schemas.Decode(m.Data, turn); err != nil {
		k.t.Fatal(err)
	}
	return turn
}

// bucket counts the objects of the bucket and the bytes of their chunks.
func (k *fake) bucket() (objects int, bytes uint64) {
	k.t.Helper()
	b, err := k.js.ObjectStore(k.t.Context(), streams.PayloadBucket)
	if err != nil {
		k.t.Fatal(err)
	}
	list, err := b.List(k.t.Context())
	if err != nil && !errors.Is(err, jetstream.ErrNoObjectsFound) {
		k.t.Fatal(err)
	}
	for _, o := range list {
		bytes += o.Size
	}
	return len(list), bytes
}
