package tokenizer

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/weir-dev/weir/schemas"
)

func TestPack(t *testing.T) {
	text := func(n int) *schemas.RenderRequest {
		return &schemas.RenderRequest{Header: schemas.H(), Text: strings.Repeat("가나다 words ", n)}
	}
	for _, n := range []int{1, 10_000, 200_000} {
		b, err := Pack(text(n))
		if err != nil {
			t.Fatal(err)
		}
		if len(b) > schemas.MaxMessage {
			t.Fatalf("%d bytes", len(b))
		}
		var got schemas.RenderRequest
		if err := Unpack(b, &got); err != nil || got.Text != text(n).Text {
			t.Errorf("%d: %v, %d bytes of text", n, err, len(got.Text))
		}
	}
	noise := make([]byte, 3<<20)
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range noise {
		noise[i] = byte(' ' + rnd.IntN(90))
	}
	if _, err := Pack(&schemas.RenderRequest{Header: schemas.H(), Text: string(noise)}); !errors.Is(err, schemas.ErrTooLarge) {
		t.Errorf("text that cannot be compressed: %v", err)
	}
}

func TestUnpackRefuses(t *testing.T) {
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	bomb := enc.EncodeAll(make([]byte, maxUnpacked+1), nil)
	unknown, err := json.Marshal(map[string]any{"v": 1, "unheard": true})
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{
		"a bomb": bomb, "an unknown field": enc.EncodeAll(unknown, nil), "half a frame": bomb[:len(bomb)/2], "no JSON": []byte("{"),
	} {
		var q schemas.RenderRequest
		if err := Unpack(b, &q); !errors.Is(err, schemas.ErrMessage) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
