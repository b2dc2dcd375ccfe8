package nullengine_test

import (
	"bytes"
	"testing"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/gpuexec/nullengine"
	"github.com/weir-dev/weir/schemas"
)

// see computes a prompt of 128 tokens with an image at 60..99 and returns its two
// blocks and the token after 'x' at position 128.
func see(t *testing.T, digest string, imported [][]byte) (blocks [][]byte, next int32) {
	e, err := nullengine.NewVision(nullengine.Options{Slots: 2, Context: 256})
	if err != nil {
		t.Fatal(err)
	}
	at := len(imported) * gpuexec.BlockTokens
	if at > 0 {
		if err := e.Import(1, imported); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.SetMedia(1, []schemas.MediaSpan{{Digest: digest, Offset: 60, Length: 40}}); err != nil {
		t.Fatal(err)
	}
	for ; at < 128; at += gpuexec.BlockTokens {
		var rows []gpuexec.Row
		for p := at; p < at+gpuexec.BlockTokens; p++ {
			token := int32('a')
			if p >= 60 && p < 100 {
				token = nullengine.TokenImage
			}
			rows = append(rows, gpuexec.Row{Seq: 1, Token: token, Pos: int32(p)})
		}
		if err := e.Step(gpuexec.PhasePrefill, rows); err != nil {
			t.Fatal(err)
		}
	}
	blocks = [][]byte{make([]byte, e.Limits().BlockBytes), make([]byte, e.Limits().BlockBytes)}
	if err := e.Export(1, 0, blocks); err != nil {
		t.Fatal(err)
	}
	if err := e.Step(gpuexec.PhaseDecode, []gpuexec.Row{{Seq: 1, Token: 'x', Pos: 128, Logits: true}}); err != nil {
		t.Fatal(err)
	}
	logits := e.Logits(0)
	for i, v := range logits {
		if v == 1 {
			next = int32(i)
		}
	}
	return blocks, next
}

// TestVision: what an image is decides the bytes of the blocks that it touches, and
// what follows it; blocks of one image continue to the same answer.
func TestVision(t *testing.T) {
	blocks, next := see(t, "one", nil)
	again, same := see(t, "one", blocks[:1])
	if next != same || !bytes.Equal(blocks[0], again[0]) || !bytes.Equal(blocks[1], again[1]) {
		t.Error("an imported block does not continue as a computed one")
	}
	other, differs := see(t, "two", nil)
	if next == differs || bytes.Equal(blocks[0], other[0]) || bytes.Equal(blocks[1], other[1]) {
		t.Error("another image gives the same blocks or the same answer")
	}
	if _, wrong := see(t, "two", blocks[:1]); wrong == differs || wrong == next {
		t.Error("a block of another image does not show in the answer")
	}
	plain, err := nullengine.New(nullengine.Options{Slots: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := plain.Import(0, blocks); err == nil || plain.Len(0) != 0 {
		t.Errorf("an engine without images read image cells: %v", err)
	}
	if _, ok := any(plain).(gpuexec.MediaTaker); ok {
		t.Error("the engine without images takes media")
	}
}
