package nullengine_test

import (
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/gpuexec/nullengine"
)

func engine(t testing.TB, o nullengine.Options) *nullengine.Engine {
	e, err := nullengine.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// prompt prefills n tokens of a sequence in aligned steps.
func prompt(t testing.TB, e *nullengine.Engine, seq gpuexec.SeqID, n int) {
	for at := 0; at < n; {
		var rows []gpuexec.Row
		for len(rows) < gpuexec.BlockTokens && at < n {
			rows = append(rows, gpuexec.Row{Seq: seq, Token: int32(at % 256), Pos: int32(at), Logits: at == n-1})
			at++
		}
		if err := e.Step(gpuexec.PhasePrefill, rows); err != nil {
			t.Fatal(err)
		}
	}
}

// TestHandOver: a sequence whose blocks moved to another engine continues alike.
func TestHandOver(t *testing.T) {
	a, b := engine(t, nullengine.Options{}), engine(t, nullengine.Options{Slots: 2, Context: 256})
	prompt(t, a, 7, 130)
	blocks := [][]byte{make([]byte, a.Limits().BlockBytes), make([]byte, a.Limits().BlockBytes)}
	if err := a.Export(7, 0, blocks); err != nil {
		t.Fatal(err)
	}
	if err := b.Import(1, blocks); err != nil {
		t.Fatal(err)
	}
	if got := b.Len(1); got != 128 {
		t.Fatalf("imported %d tokens, want 128", got)
	}
	for _, e := range []*nullengine.Engine{a, b} {
		seq := gpuexec.SeqID(7)
		if e == b {
			seq = 1
			if err := b.Step(gpuexec.PhasePrefill, []gpuexec.Row{{Seq: 1, Token: 128, Pos: 128}, {Seq: 1, Token: 129, Pos: 129, Logits: true}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := e.Step(gpuexec.PhaseDecode, []gpuexec.Row{{Seq: seq, Token: 'x', Pos: 130, Logits: true}}); err != nil {
			t.Fatal(err)
		}
		logits := e.Logits(0)
		best := nullengine.Next('x', 130)
		if logits[best] != 1 || len(logits) != e.Limits().Vocab {
			t.Errorf("logit of the next token is %v of %d", logits[best], len(logits))
		}
	}
}

func TestRefusals(t *testing.T) {
	row := func(seq gpuexec.SeqID, token, pos int32) gpuexec.Row {
		return gpuexec.Row{Seq: seq, Token: token, Pos: pos}
	}
	cases := []struct {
		name  string
		phase gpuexec.Phase
		rows  []gpuexec.Row
		want  error
	}{
		{"no rows", gpuexec.PhaseDecode, nil, gpuexec.ErrBadBatch},
		{"phase", 7, []gpuexec.Row{row(0, 1, 0)}, gpuexec.ErrBadBatch},
		{"no such slot", gpuexec.PhaseDecode, []gpuexec.Row{row(9, 1, 0)}, gpuexec.ErrBadBatch},
		{"negative slot", gpuexec.PhaseDecode, []gpuexec.Row{row(-1, 1, 0)}, gpuexec.ErrBadBatch},
		{"token", gpuexec.PhaseDecode, []gpuexec.Row{row(0, 260, 0)}, gpuexec.ErrBadBatch},
		{"gap", gpuexec.PhaseDecode, []gpuexec.Row{row(0, 1, 3)}, gpuexec.ErrBadBatch},
		{"twice", gpuexec.PhaseDecode, []gpuexec.Row{row(0, 1, 0), row(0, 1, 1)}, gpuexec.ErrBadBatch},
		{"two prefills", gpuexec.PhasePrefill, []gpuexec.Row{row(0, 1, 0), row(1, 1, 0)}, gpuexec.ErrBadBatch},
		{"long prefill", gpuexec.PhasePrefill, make([]gpuexec.Row, 65), gpuexec.ErrBadBatch},
		{"full", gpuexec.PhaseDecode, []gpuexec.Row{row(1, 1, 4)}, gpuexec.ErrNoRoom},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			e := engine(t, nullengine.Options{Slots: 2, Context: 4})
			prompt(t, e, 1, 4)
			if err := e.Step(c.phase, c.rows); !errors.Is(err, c.want) {
				t.Errorf("error %v, want %v", err, c.want)
			}
			if e.Len(0) != 0 || e.Len(1) != 4 {
				t.Errorf("a refused step changed the sequences: %d, %d", e.Len(0), e.Len(1))
			}
		})
	}
	e := engine(t, nullengine.Options{Slots: 2, Context: 64})
	bad := make([]byte, e.Limits().BlockBytes)
	bad[3] = 1
	for name, err := range map[string]error{
		"export past the end": e.Export(0, 0, [][]byte{make([]byte, 256)}),
		"short block":         e.Import(0, [][]byte{make([]byte, 255)}),
		"foreign token":       e.Import(0, [][]byte{bad}),
	} {
		if !errors.Is(err, gpuexec.ErrBadBlock) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if e.Len(0) != 0 || e.Len(-1) != 0 {
		t.Error("a failed import left tokens behind")
	}
	long := make([][]byte, 2)
	if err := e.Import(0, long); !errors.Is(err, gpuexec.ErrNoRoom) {
		t.Errorf("import beyond the context: %v", err)
	}
	prompt(t, e, 1, 3)
	if err := e.Import(1, nil); !errors.Is(err, gpuexec.ErrBadBatch) {
		t.Errorf("import into a filled sequence: %v", err)
	}
	e.Drop(1)
	e.Drop(-1)
	prompt(t, e, 1, 5)
	if e.Len(1) != 5 || e.Logits(5) != nil || e.Logits(0) != nil {
		t.Errorf("a dropped sequence holds %d tokens", e.Len(1))
	}
	if _, err := nullengine.New(nullengine.Options{Slots: -1}); !errors.Is(err, gpuexec.ErrUnsupported) {
		t.Errorf("negative slots: %v", err)
	}
	if i := e.Info(); i.Engine != "null" || len(i.Devices) != 0 || !i.Exact {
		t.Errorf("info %+v", i)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

func TestVocab(t *testing.T) {
	v := nullengine.Vocab{}
	got, err := v.Tokenize("<|im_start|>a<s\xff<|im_end|>", true, true)
	if err != nil {
		t.Fatal(err)
	}
	want := []int32{256, 257, 'a', '<', 's', 0xff, 258}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if v.BOS() != 256 || !v.EOG(258) || v.Size() != 260 || v.Piece(257, false) != nil || string(v.Piece(257, true)) != "<|im_start|>" || v.Piece(260, true) != nil {
		t.Error("control tokens are not as documented")
	}
}

// BenchmarkDecode reports the cost of one decode row with its logits.
func BenchmarkDecode(b *testing.B) {
	e := engine(b, nullengine.Options{Slots: 256})
	rows := make([]gpuexec.Row, 256)
	for pos := 0; b.Loop(); pos++ {
		for i := range rows {
			seq := gpuexec.SeqID(i)
			if e.Len(seq) >= 1024 {
				e.Drop(seq)
			}
			rows[i] = gpuexec.Row{Seq: seq, Token: 'a', Pos: int32(e.Len(seq)), Logits: true}
		}
		if err := e.Step(gpuexec.PhaseDecode, rows); err != nil {
			b.Fatal(err)
		}
		for i := range rows {
			e.Logits(i)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/256, "ns/row")
}

// TestNoAnswerEndsByChance: a sampler at temperature 1 finds control tokens at
// odds of less than one in 10^40, and the greedy choice is the expected byte.
func TestNoAnswerEndsByChance(t *testing.T) {
	e := engine(t, nullengine.Options{})
	prompt(t, e, 1, 64)
	if err := e.Step(gpuexec.PhaseDecode, []gpuexec.Row{{Seq: 1, Token: 'x', Pos: 64, Logits: true}}); err != nil {
		t.Fatal(err)
	}
	logits := e.Logits(0)
	var bytes, control float64
	for token, l := range logits {
		if token < 256 {
			bytes += math.Exp(float64(l))
		} else {
			control += math.Exp(float64(l))
		}
	}
	if odds := control / (bytes + control); odds > 1e-40 || control == 0 {
		t.Errorf("control tokens are drawn with probability %g; a grammar must still find them", odds)
	}
	if next := nullengine.Next('x', 64); logits[next] != 1 {
		t.Errorf("logit of the next token %d is %g, want 1", next, logits[next])
	}
}
