package turns

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-dev/weir/schemas"
)

var frames = []string{
	`{"v":1,"a":1,"i":0,"t":[1,2,3],"x":"abc"}`,
	`{"v":1,"a":2,"i":17,"t":[4],"x":"é\n\"漢\u003c","xi":71}`,
	`{"v":1,"a":1,"i":5,"t":[]}`,
	`{"v":1,"a":1,"i":5,"t":[7],"xi":3}`,
	`{"v":1,"a":1,"i":5,"t":[7],"x":"a","xi":3,"p":"hermes+tools"}`,
	`{"v":1,"a":1,"i":5,"t":[7],"x":"a","p":"kimi"}`,
	`{"v":1,"a":1,"i":5,"t":[7],"x":"a","xi":3,"lp":[{"token":"a"}]}`,
	`{"v":1,"a":1,"i":0,"t":[],"reject":{"digest":"d","failure":{"code":"c","message":"m"}}}`,
	`{"v":2,"a":1,"i":0,"t":[1]}`, `{"v":1,"a":0,"i":0,"t":[1]}`, `{"v":1,"a":01,"i":0,"t":[1]}`, `{"v":1,"a":1,"i":-1,"t":[1]}`,
	`{"v":1,"a":1,"i":0,"t":[1],"x":"a` + "\n" + `"}`, `{"v":1,"a":1,"i":0,"t":[1],"x":"` + "\xff" + `"}`, `{"v":1,"a":1,"i":0,"t":[1]} `, `{"v":1,"a":1,"i":0,"t":[1]}x`,
	`{"v":1,"a":99999999999,"i":0,"t":[1]}`, `{"v":1,"a":1,"i":0,"t":[1],"x":null}`, `{}`, ``, `{"v":1,"a":1,"i":0,"t":[1],"xi":7x}`, `{"v":1,"a":1,"i":0,"t":[1],"p":1}`, `{"v":1,"a":1,"i":0,"t":[1,],"x":"a"}`, `{"v":1,"a":1,"i":0,"t":[1],"x":"\ud800"}`,
}

// sameAsCodec: whatever the quick path accepts, the codec reads alike.
func sameAsCodec(t *testing.T, b []byte) {
	t.Helper()
	var quick, slow schemas.Frame
	if !quickFrame(b, &quick) {
		return
	}
	if err := schemas.Decode(b, &slow); err != nil {
		t.Fatalf("the codec refuses %q: %v", b, err)
	}
	if len(quick.Tokens) == 0 && len(slow.Tokens) == 0 {
		quick.Tokens, slow.Tokens = nil, nil
	}
	if d := cmp.Diff(slow, quick); d != "" {
		t.Errorf("%q (-codec +quick):\n%s", b, d)
	}
}

func TestQuickFrameIsTheCodec(t *testing.T) {
	for _, s := range frames {
		sameAsCodec(t, []byte(s))
	}
	var f schemas.Frame
	for _, s := range frames[:6] {
		if !quickFrame([]byte(s), &f) {
			t.Errorf("%s is not read quickly", s)
		}
	}
	b, err := schemas.Encode(frameOf(3, 2, 9))
	if err != nil {
		t.Fatal(err)
	}
	if !quickFrame(b, &f) {
		t.Errorf("what the codec writes is not read quickly: %s", b)
	}
}

func FuzzQuickFrame(f *testing.F) {
	for _, s := range frames {
		f.Add([]byte(s))
	}
	f.Fuzz(sameAsCodec)
}

func BenchmarkDecodeFrame(b *testing.B) {
	msg, err := schemas.Encode(frameOf(1, 100, 104))
	if err != nil {
		b.Fatal(err)
	}
	b.Run("quick", func(b *testing.B) {
		for b.Loop() {
			if _, err := decodeFrame(msg); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("codec", func(b *testing.B) {
		for b.Loop() {
			if err := schemas.Decode(msg, new(schemas.Frame)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func FuzzDecodeBody(f *testing.F) {
	for _, s := range []string{`{"messages":[]}`, `{"model":1}`, `{"foo":2}`, `[`, `{"stop":[1]}`, `{"weir":{"turn":"a.b"}}`, `{"prompt":"x","weir":{"input_tokens":[1]}}`, `null`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		turn, err := DecodeBody(b)
		if err != nil {
			return
		}
		if _, err := json.Marshal(turn); err != nil {
			t.Errorf("%q is accepted and cannot be written: %v", b, err)
		}
	})
}
