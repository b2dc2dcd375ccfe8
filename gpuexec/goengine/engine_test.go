package goengine_test

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/gpuexec/gguf"
	"github.com/weir-dev/weir/gpuexec/goengine"
)

// tiny is the parsed tiny preset, made once: parsing does not change it.
var tiny = sync.OnceValue(func() *gguf.File {
	var b bytes.Buffer
	if err := gguf.WritePreset(&b, "tiny"); err != nil {
		panic(err)
	}
	f, err := gguf.Parse(b.Bytes())
	if err != nil {
		panic(err)
	}
	return f
})

func engine(t testing.TB, f *gguf.File, o goengine.Options) *goengine.Engine {
	t.Helper()
	e, err := goengine.New(f, o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// prompt is n seeded tokens.
func prompt(seed uint64, n, vocab int) []int32 {
	g := rand.New(rand.NewPCG(seed, 1))
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(g.IntN(vocab))
	}
	return out
}

// prefill computes tokens[from:] in steps that end on multiples of step.
func prefill(t testing.TB, e *goengine.Engine, seq gpuexec.SeqID, tokens []int32, step int) {
	t.Helper()
	for at := e.Len(seq); at < len(tokens); {
		var rows []gpuexec.Row
		for end := min((at/step+1)*step, len(tokens)); at < end; at++ {
			rows = append(rows, gpuexec.Row{Seq: seq, Token: tokens[at], Pos: int32(at), Logits: at == len(tokens)-1})
		}
		if err := e.Step(gpuexec.PhasePrefill, rows); err != nil {
			t.Fatal(err)
		}
	}
}

// state is what two ways of computing a sequence are compared by: bits, not values.
type state struct {
	blocks [][]byte
	logits []uint32
}

func snapshot(t testing.TB, e *goengine.Engine, seq gpuexec.SeqID, row int) state {
	t.Helper()
	var s state
	for range e.Len(seq) / gpuexec.BlockTokens {
		s.blocks = append(s.blocks, make([]byte, e.Limits().BlockBytes))
	}
	if err := e.Export(seq, 0, s.blocks); err != nil {
		t.Fatal(err)
	}
	for _, v := range e.Logits(row) {
		s.logits = append(s.logits, math.Float32bits(v))
	}
	return s
}

func (s state) equal(t *testing.T, name string, o state) {
	t.Helper()
	if len(s.blocks) != len(o.blocks) || len(s.logits) == 0 {
		t.Fatalf("%s: %d blocks against %d, %d logits", name, len(s.blocks), len(o.blocks), len(s.logits))
	}
	for i := range s.blocks {
		if !bytes.Equal(s.blocks[i], o.blocks[i]) {
			t.Errorf("%s: KV block %d differs", name, i)
		}
	}
	different := 0
	for i := range s.logits {
		if s.logits[i] != o.logits[i] {
			different++
		}
	}
	if different > 0 {
		t.Errorf("%s: %d of %d logits differ", name, different, len(s.logits))
	}
}

// TestExact is the promise of Info().Exact: a token's KV and logits are the same
// bits whether it was prefilled in a step of 64, alone, decoded beside seven other
// sequences, after an import, or with the scalar kernels.
func TestExact(t *testing.T) {
	const n = 200
	f := tiny()
	e := engine(t, f, goengine.Options{Slots: 16, Context: 512})
	if !e.Info().Exact {
		t.Fatal("the engine does not claim exactness")
	}
	tokens := prompt(1, n, e.Limits().Vocab)
	prefill(t, e, 0, tokens, gpuexec.BlockTokens)
	want := snapshot(t, e, 0, (n-1)%gpuexec.BlockTokens)

	prefill(t, e, 1, tokens, 1)
	want.equal(t, "token by token", snapshot(t, e, 1, 0))

	prefill(t, e, 2, tokens, 7)
	want.equal(t, "in steps of 7", snapshot(t, e, 2, (n-1)%7))

	prefill(t, e, 3, tokens[:130], gpuexec.BlockTokens)
	for i := range 7 { // others, of other lengths and contents
		prefill(t, e, gpuexec.SeqID(4+i), prompt(uint64(i+10), 20*i+3, e.Limits().Vocab), gpuexec.BlockTokens)
	}
	for pos := 130; pos < n; pos++ {
		var rows []gpuexec.Row
		for i := range 8 {
			seq := gpuexec.SeqID(3 + (i+pos)%8)
			row := gpuexec.Row{Seq: seq, Token: int32((pos + i) % 50), Pos: int32(e.Len(seq))}
			if seq == 3 {
				row.Token, row.Logits = tokens[pos], true
			}
			rows = append(rows, row)
		}
		if err := e.Step(gpuexec.PhaseDecode, rows); err != nil {
			t.Fatal(err)
		}
	}
	at := 0
	for e.Logits(at) == nil {
		at++
	}
	want.equal(t, "decoded beside 7 others", snapshot(t, e, 3, at))

	for _, scalar := range []bool{false, true} {
		other := engine(t, f, goengine.Options{Slots: 2, Context: 256, Scalar: scalar})
		if err := other.Import(1, want.blocks[:2]); err != nil {
			t.Fatal(err)
		}
		prefill(t, other, 1, tokens, gpuexec.BlockTokens)
		want.equal(t, "imported, then "+other.Info().Devices[0].Description, snapshot(t, other, 1, (n-1)%gpuexec.BlockTokens))
		other.Drop(1)
		prefill(t, other, 1, tokens, gpuexec.BlockTokens)
		want.equal(t, "in reused blocks, "+other.Info().Devices[0].Description, snapshot(t, other, 1, (n-1)%gpuexec.BlockTokens))
	}
}

// TestRefusals: misuse is an error, and changes nothing.
func TestRefusals(t *testing.T) {
	row := func(seq gpuexec.SeqID, token, pos int32) gpuexec.Row {
		return gpuexec.Row{Seq: seq, Token: token, Pos: pos}
	}
	decode, fill := gpuexec.PhaseDecode, gpuexec.PhasePrefill
	cases := []struct {
		name  string
		phase gpuexec.Phase
		rows  []gpuexec.Row
		want  error
	}{
		{"no rows", decode, nil, gpuexec.ErrBadBatch},
		{"phase", 7, []gpuexec.Row{row(0, 1, 0)}, gpuexec.ErrBadBatch},
		{"too many rows", fill, make([]gpuexec.Row, 65), gpuexec.ErrBadBatch},
		{"no such slot", decode, []gpuexec.Row{row(2, 1, 0)}, gpuexec.ErrBadBatch},
		{"negative slot", decode, []gpuexec.Row{row(-1, 1, 0)}, gpuexec.ErrBadBatch},
		{"token", decode, []gpuexec.Row{row(0, 512, 0)}, gpuexec.ErrBadBatch},
		{"negative token", decode, []gpuexec.Row{row(0, -1, 0)}, gpuexec.ErrBadBatch},
		{"gap", decode, []gpuexec.Row{row(0, 1, 1)}, gpuexec.ErrBadBatch},
		{"gap in prefill", fill, []gpuexec.Row{row(0, 1, 0), row(0, 1, 2)}, gpuexec.ErrBadBatch},
		{"two decode rows", decode, []gpuexec.Row{row(0, 1, 0), row(0, 1, 1)}, gpuexec.ErrBadBatch},
		{"two prefills", fill, []gpuexec.Row{row(0, 1, 0), row(1, 1, 0)}, gpuexec.ErrBadBatch},
		{"context full", decode, []gpuexec.Row{row(1, 1, 70)}, gpuexec.ErrNoRoom},
		{"no block left", decode, []gpuexec.Row{row(0, 1, 0)}, gpuexec.ErrNoRoom},
	}
	e := engine(t, tiny(), goengine.Options{Slots: 2, Context: 70, Blocks: 2})
	tokens := prompt(1, 70, 512)
	prefill(t, e, 1, tokens, gpuexec.BlockTokens)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if err := e.Step(c.phase, c.rows); !errors.Is(err, c.want) {
				t.Errorf("error %v, want %v", err, c.want)
			}
			if e.Len(0) != 0 || e.Len(1) != 70 {
				t.Errorf("a refused step changed the sequences: %d, %d", e.Len(0), e.Len(1))
			}
		})
	}
	whole := make([]byte, e.Limits().BlockBytes)
	for name, c := range map[string]struct{ err, want error }{
		"export past the end":  {e.Export(1, 1, [][]byte{whole}), gpuexec.ErrBadBlock},
		"export negative":      {e.Export(1, -1, [][]byte{whole}), gpuexec.ErrBadBlock},
		"export into short":    {e.Export(1, 0, [][]byte{whole[1:]}), gpuexec.ErrBadBlock},
		"import short":         {e.Import(0, [][]byte{whole[1:]}), gpuexec.ErrNoRoom},
		"import into a filled": {e.Import(1, [][]byte{whole}), gpuexec.ErrBadBatch},
		"import nowhere":       {e.Import(9, nil), gpuexec.ErrBadBatch},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: error %v, want %v", name, c.err, c.want)
		}
	}
	e.Drop(1)
	e.Drop(1)
	e.Drop(7)
	if err := e.Import(0, [][]byte{whole[1:]}); !errors.Is(err, gpuexec.ErrBadBlock) || e.Len(0) != 0 {
		t.Errorf("short block: error %v, %d tokens", err, e.Len(0))
	}
	if e.Logits(-1) != nil || e.Logits(99) != nil || e.Len(-1) != 0 {
		t.Error("an index out of range yields something")
	}
}
