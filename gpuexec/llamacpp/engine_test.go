package llamacpp_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/gpuexec/llamacpp"
)

func TestHandOver(t *testing.T) {
	path := preset(t, "tiny")
	a := openEngine(t, path, llamacpp.Options{Slots: 3, Context: 512})
	b := openEngine(t, path, llamacpp.Options{Slots: 2, Context: 1024})
	t.Logf("%+v", a.Info())
	if a.Info().Version != b.Info().Version || a.Info().Numerics != b.Info().Numerics {
		t.Fatalf("engines of one model differ:\n%+v\n%+v", a.Info(), b.Info())
	}
	tokens := prompt(300, 1)
	want := greedy(t, a, 1, prefill(t, a, 1, tokens, 0), 20)
	whole := blocks(t, a, 1)
	if err := b.Import(0, whole[:4]); err != nil {
		t.Fatal(err)
	}
	if got := b.Len(0); got != 256 {
		t.Fatalf("imported 4 blocks, sequence has %d tokens", got)
	}
	got := greedy(t, b, 0, prefill(t, b, 0, tokens, 256), 20)
	if !slices.Equal(got, want) {
		t.Errorf("tokens after the hand-over %v, want %v", got, want)
	}
}

func TestStepRefuses(t *testing.T) {
	e := openEngine(t, preset(t, "tiny"), llamacpp.Options{Slots: 2, Context: 128})
	prefill(t, e, 0, prompt(100, 1), 0)
	row := func(seq, token, pos int) gpuexec.Row {
		return gpuexec.Row{Seq: gpuexec.SeqID(seq), Token: int32(token), Pos: int32(pos)}
	}
	run := func(seq, from, n int) []gpuexec.Row {
		var rows []gpuexec.Row
		for i := range n {
			rows = append(rows, row(seq, 5, from+i))
		}
		return rows
	}
	for _, c := range []struct {
		name  string
		phase gpuexec.Phase
		rows  []gpuexec.Row
		want  error
	}{
		{"no rows", gpuexec.PhaseDecode, nil, gpuexec.ErrBadBatch},
		{"unknown phase", 7, run(0, 100, 1), gpuexec.ErrBadBatch},
		{"more than a batch", gpuexec.PhaseDecode, run(0, 100, 3000), gpuexec.ErrBadBatch},
		{"more than a block", gpuexec.PhasePrefill, run(1, 0, 65), gpuexec.ErrBadBatch},
		{"crosses a block", gpuexec.PhasePrefill, run(0, 100, 29), gpuexec.ErrBadBatch},
		{"negative sequence", gpuexec.PhaseDecode, []gpuexec.Row{row(-1, 5, 0)}, gpuexec.ErrBadBatch},
		{"sequence too high", gpuexec.PhaseDecode, []gpuexec.Row{row(2, 5, 0)}, gpuexec.ErrBadBatch},
		{"negative token", gpuexec.PhaseDecode, []gpuexec.Row{row(0, -1, 100)}, gpuexec.ErrBadBatch},
		{"token outside the vocabulary", gpuexec.PhaseDecode, []gpuexec.Row{row(0, 512, 100)}, gpuexec.ErrBadBatch},
		{"gap", gpuexec.PhaseDecode, []gpuexec.Row{row(0, 5, 101)}, gpuexec.ErrBadBatch},
		{"position taken", gpuexec.PhaseDecode, []gpuexec.Row{row(0, 5, 99)}, gpuexec.ErrBadBatch},
		{"gap inside", gpuexec.PhasePrefill, []gpuexec.Row{row(1, 5, 0), row(1, 5, 2)}, gpuexec.ErrBadBatch},
		{"two sequences in a prefill", gpuexec.PhasePrefill, []gpuexec.Row{row(0, 5, 100), row(1, 5, 0)}, gpuexec.ErrBadBatch},
		{"two decode rows of a sequence", gpuexec.PhaseDecode, run(0, 100, 2), gpuexec.ErrBadBatch},
	} {
		if err := e.Step(c.phase, c.rows); !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", c.name, err, c.want)
		} else {
			t.Logf("%s: %v", c.name, err)
		}
		if e.Len(0) != 100 || e.Len(1) != 0 {
			t.Fatalf("%s: lengths changed to %d, %d", c.name, e.Len(0), e.Len(1))
		}
	}
	prefill(t, e, 0, prompt(128, 1), 100)
	if err := e.Step(gpuexec.PhaseDecode, run(0, 128, 1)); !errors.Is(err, gpuexec.ErrNoRoom) {
		t.Errorf("a full context gives %v", err)
	}
	e.Drop(0)
	if got := decode(t, e, 0, 5); len(got) != e.Limits().Vocab {
		t.Errorf("after the drop: %d logits", len(got))
	}
}

func TestLogitsOnlyWhenAsked(t *testing.T) {
	e := openEngine(t, preset(t, "tiny"), llamacpp.Options{Slots: 2, Context: 128})
	rows := make([]gpuexec.Row, gpuexec.BlockTokens)
	for i := range rows {
		rows[i] = gpuexec.Row{Token: int32(i + 3), Pos: int32(i), Logits: true}
	}
	if err := e.Step(gpuexec.PhasePrefill, rows); err != nil {
		t.Fatalf("logits for every row of a step: %v", err)
	}
	if a, b := e.Logits(0), e.Logits(63); a == nil || b == nil || slices.Equal(a, b) {
		t.Error("rows 0 and 63 have no logits of their own")
	}
	rows[0].Seq, rows[1].Seq = 1, 1
	rows[0].Logits, rows[1].Logits = false, true
	if err := e.Step(gpuexec.PhasePrefill, rows[:2]); err != nil {
		t.Fatal(err)
	}
	for i, want := range map[int]bool{-1: false, 0: false, 1: true, 2: false, 1 << 20: false} {
		if got := e.Logits(i) != nil; got != want {
			t.Errorf("logits of row %d given: %v, want %v", i, got, want)
		}
	}
}

func TestBlocksRefused(t *testing.T) {
	e := openEngine(t, preset(t, "tiny"), llamacpp.Options{Slots: 2, Context: 256})
	prefill(t, e, 0, prompt(200, 1), 0)
	good := blocks(t, e, 0)
	short := [][]byte{good[0][:len(good[0])-1]}
	for name, c := range map[string]struct {
		err  error
		want error
	}{
		"export beyond the end":      {e.Export(0, 3, good[:1]), gpuexec.ErrBadBlock},
		"export from below zero":     {e.Export(0, -1, good[:1]), gpuexec.ErrBadBlock},
		"export from far away":       {e.Export(0, 1<<40, nil), gpuexec.ErrBadBlock},
		"export of no sequence":      {e.Export(9, 0, good[:1]), gpuexec.ErrBadBlock},
		"export to a short buffer":   {e.Export(0, 0, short), gpuexec.ErrBadBlock},
		"import to a used sequence":  {e.Import(0, good), gpuexec.ErrBadBlock},
		"import to no sequence":      {e.Import(-1, good), gpuexec.ErrBadBlock},
		"import of a short block":    {e.Import(1, short), gpuexec.ErrBadBlock},
		"import beyond the context":  {e.Import(1, slices.Concat(good, good[:2])), gpuexec.ErrNoRoom},
		"import of a nil block":      {e.Import(1, [][]byte{nil}), gpuexec.ErrBadBlock},
		"export of nothing succeeds": {e.Export(0, 3, nil), nil},
		"import of nothing succeeds": {e.Import(1, nil), nil},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: error %v, want %v", name, c.err, c.want)
		}
	}
	if e.Len(1) != 0 {
		t.Errorf("refused imports left %d tokens", e.Len(1))
	}
	if err := e.Import(1, good); err != nil || e.Len(1) != 192 {
		t.Errorf("a good import after refused ones: %v, %d tokens", err, e.Len(1))
	}
}
