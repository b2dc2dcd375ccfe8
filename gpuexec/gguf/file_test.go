package gguf_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-dev/weir/gpuexec/gguf"
)

// raw builds a file byte by byte, so that tests can write what Write refuses.
type raw struct{ b []byte }

func (r *raw) u32(v uint32) *raw { r.b = binary.LittleEndian.AppendUint32(r.b, v); return r }
func (r *raw) u64(v uint64) *raw { r.b = binary.LittleEndian.AppendUint64(r.b, v); return r }
func (r *raw) str(s string) *raw { r.u64(uint64(len(s))); r.b = append(r.b, s...); return r }
func (r *raw) raw(b ...byte) *raw {
	r.b = append(r.b, b...)
	return r
}

func start(tensors, keys uint64) *raw {
	r := &raw{b: []byte("GGUF")}
	return r.u32(3).u64(tensors).u64(keys)
}

// oneTensor is a file with one F32 tensor of 8 elements.
func oneTensor() []byte {
	r := start(1, 0).str("t").u32(1).u64(8).u32(0).u64(0)
	for len(r.b)%32 != 0 {
		r.raw(0)
	}
	return append(r.b, make([]byte, 32)...)
}

func TestParseRefuses(t *testing.T) {
	const huge = math.MaxUint64
	dims := func(n ...uint64) []byte {
		r := start(1, 0).str("t").u32(uint32(len(n)))
		for _, d := range n {
			r.u64(d)
		}
		return append(r.u32(0).u64(0).b, make([]byte, 64)...)
	}
	cases := []struct {
		name string
		file []byte
		want error
		text string // a part of the message
	}{
		{"empty", nil, gguf.ErrTruncated, "4 bytes wanted"},
		{"magic", []byte("GGML----"), gguf.ErrFormat, "not a GGUF file"},
		{"old version", (&raw{b: []byte("GGUF")}).u32(2).u64(0).u64(0).b, gguf.ErrUnsupported, "version 2"},
		{"big endian", (&raw{b: []byte("GGUF")}).raw(0, 0, 0, 3).u64(0).u64(0).b, gguf.ErrUnsupported, "big-endian"},
		{"no counts", []byte("GGUF\x03\x00\x00\x00\x01"), gguf.ErrTruncated, ""},
		{"tensor count", start(huge, 0).b, gguf.ErrFormat, "announced"},
		{"key count", start(0, huge).b, gguf.ErrFormat, "announced"},
		{"missing key", start(0, 1).b, gguf.ErrTruncated, "metadata entry 0 of 1"},
		{"key length", start(0, 1).u64(huge).b, gguf.ErrTruncated, ""},
		{"empty key", start(0, 1).str("").u32(4).u32(0).b, gguf.ErrFormat, "name"},
		{"value type", start(0, 1).str("k").u32(13).b, gguf.ErrUnsupported, "value type 13"},
		{"bool", start(0, 1).str("k").u32(7).raw(2).b, gguf.ErrFormat, "bool"},
		{"string length", start(0, 1).str("k").u32(8).u64(huge).b, gguf.ErrTruncated, `key "k"`},
		{"array length", start(0, 1).str("k").u32(9).u32(4).u64(huge).b, gguf.ErrTruncated, "array of"},
		{"array of strings", start(0, 1).str("k").u32(9).u32(8).u64(1 << 40).b, gguf.ErrTruncated, "array of"},
		{"array type", start(0, 1).str("k").u32(9).u32(99).u64(1).b, gguf.ErrUnsupported, "array of type 99"},
		{"array of bad bools", start(0, 1).str("k").u32(9).u32(7).u64(2).raw(0, 9).b, gguf.ErrFormat, "bool"},
		{"nesting", nested(40), gguf.ErrUnsupported, "nested"},
		{"key twice", start(0, 2).str("k").u32(0).raw(1).str("k").u32(0).raw(1).b, gguf.ErrFormat, "twice"},
		{"alignment", start(0, 1).str("general.alignment").u32(4).u32(33).b, gguf.ErrFormat, "power of two"},
		{"alignment zero", start(0, 1).str("general.alignment").u32(4).u32(0).b, gguf.ErrFormat, "power of two"},
		{"alignment type", start(0, 1).str("general.alignment").u32(8).str("32").b, gguf.ErrFormat, "power of two"},
		{"no dimensions", dims(), gguf.ErrFormat, "0 dimensions"},
		{"five dimensions", dims(1, 1, 1, 1, 1), gguf.ErrFormat, "5 dimensions"},
		{"dimension zero", dims(0), gguf.ErrFormat, "dimension of 0"},
		{"dimensions overflow", dims(1<<40, 1<<40), gguf.ErrFormat, "dimension of"},
		{"tensor too large", dims(1 << 40), gguf.ErrTruncated, "needs"},
		{"tensor twice", start(2, 0).str("t").u32(1).u64(1).u32(0).u64(0).str("t").u32(1).u64(1).u32(0).u64(0).b, gguf.ErrFormat, "twice"},
		{"ragged Q8_0", start(1, 0).str("t").u32(1).u64(33).u32(8).u64(0).b, gguf.ErrFormat, "multiple of 32"},
		{"crooked offset", start(1, 0).str("t").u32(1).u64(1).u32(0).u64(5).raw(make([]byte, 64)...).b, gguf.ErrFormat, "multiple of 32"},
		{"offset outside", start(1, 0).str("t").u32(1).u64(1).u32(0).u64(1 << 40).raw(make([]byte, 64)...).b, gguf.ErrTruncated, "starts at"},
		{"last byte missing", oneTensor()[:len(oneTensor())-1], gguf.ErrTruncated, "needs 32 bytes"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := gguf.Parse(c.file)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("error %v, want %v with %q", err, c.want, c.text)
			}
		})
	}
	if _, err := gguf.Parse(oneTensor()); err != nil {
		t.Errorf("the good file: %v", err)
	}
}

func nested(depth int) []byte {
	r := start(0, 1).str("k").u32(9)
	for range depth {
		r.u32(9).u64(1)
	}
	return r.u32(4).u64(0).b
}

// TestEveryPrefix: a file cut anywhere is refused, never misread.
func TestEveryPrefix(t *testing.T) {
	var b bytes.Buffer
	s := gguf.Shape{Name: "x", Dim: 32, Layers: 1, Heads: 1, KVHeads: 1, HeadDim: 32, FFN: 32, Context: 64, RopeBase: 1e4, Type: gguf.Q8_0}
	v := gguf.Vocabulary{Tokens: []string{"a", "b"}, Scores: []float32{0, 1}, Types: []int32{1, 1}}
	if err := gguf.WriteRandom(&b, s, v); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Parse(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	last := f.Tensors[len(f.Tensors)-1]
	end := bytes.Index(b.Bytes(), last.Data) + len(last.Data)
	for n := 0; n < end; n += 7 {
		if _, err := gguf.Parse(b.Bytes()[:n]); err == nil {
			t.Fatalf("%d of %d bytes were accepted", n, b.Len())
		}
	}
}

func TestValues(t *testing.T) {
	r := start(0, 16)
	r.str("u8").u32(0).raw(200).str("i8").u32(1).raw(0x80)
	r.str("u16").u32(2).raw(1, 2).str("i16").u32(3).raw(0, 0x80)
	r.str("u32").u32(4).u32(7).str("i32").u32(5).u32(math.MaxUint32)
	r.str("f32").u32(6).u32(math.Float32bits(1.5)).str("bool").u32(7).raw(1)
	r.str("s").u32(8).str("text").str("u64").u32(10).u64(1 << 60)
	r.str("i64").u32(11).u64(math.MaxUint64).str("f64").u32(12).u64(math.Float64bits(-2))
	r.str("as").u32(9).u32(8).u64(2).str("x").str("").str("au").u32(9).u32(2).u64(2).raw(1, 0, 2, 0)
	r.str("aa").u32(9).u32(9).u64(1).u32(5).u64(1).u32(3).str("ab").u32(9).u32(7).u64(1).raw(1)
	f, err := gguf.Parse(r.b)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"u8": uint8(200), "i8": int8(-128), "u16": uint16(0x201), "i16": int16(-32768), "u32": uint32(7), "i32": int32(-1),
		"f32": float32(1.5), "bool": true, "s": "text", "u64": uint64(1 << 60), "i64": int64(-1), "f64": -2.0,
		"as": []string{"x", ""}, "au": []uint16{1, 2}, "aa": []any{[]int32{3}}, "ab": []bool{true},
	}
	if d := cmp.Diff(want, f.Meta); d != "" {
		t.Error(d)
	}
	for key, n := range map[string]uint64{"u8": 200, "u16": 0x201, "u32": 7, "u64": 1 << 60} {
		if got, ok, err := f.Uint(key); got != n || !ok || err != nil {
			t.Errorf("Uint(%s) = %d, %v, %v", key, got, ok, err)
		}
	}
	if _, ok, err := f.Uint("none"); ok || err != nil {
		t.Errorf("absent key: %v, %v", ok, err)
	}
	for _, key := range []string{"i32", "i8", "s"} {
		if _, _, err := f.Uint(key); !errors.Is(err, gguf.ErrFormat) {
			t.Errorf("Uint(%s): error %v", key, err)
		}
	}
	if _, _, err := gguf.Get[string](f, "u8"); !errors.Is(err, gguf.ErrFormat) {
		t.Errorf("Get of another type: %v", err)
	}
}

// FuzzParse: no input panics, and what parses stays inside the file.
func FuzzParse(f *testing.F) {
	f.Add(oneTensor())
	f.Add(start(0, 1).str("k").u32(9).u32(8).u64(2).str("x").str("").b)
	f.Add(nested(3))
	var b bytes.Buffer
	s := gguf.Shape{Name: "x", Dim: 32, Layers: 1, Heads: 1, KVHeads: 1, HeadDim: 32, FFN: 32, Context: 64, RopeBase: 1e4, Type: gguf.Q8_0}
	if err := gguf.WriteRandom(&b, s, gguf.Vocabulary{Tokens: []string{"a"}, Scores: []float32{0}, Types: []int32{1}}); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := gguf.Parse(b)
		if err != nil {
			if !errors.Is(err, gguf.ErrFormat) && !errors.Is(err, gguf.ErrTruncated) && !errors.Is(err, gguf.ErrUnsupported) {
				t.Errorf("error without a sentinel: %v", err)
			}
			return
		}
		for i := range file.Tensors {
			x, err := file.Tensors[i].Float32()
			if err == nil && len(x) > len(b) {
				t.Errorf("%d elements out of %d bytes", len(x), len(b))
			}
		}
	})
}
