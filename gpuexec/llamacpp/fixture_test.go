package llamacpp_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/gpuexec/gguf"
	"github.com/weir-dev/weir/gpuexec/llamacpp"
)

// repoRoot is the folder that holds go.work.
func repoRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Skip("no go.work above the test's folder")
		}
		dir = up
	}
}

// library loads the shared libraries, or skips with the reason.
func library(t testing.TB) *llamacpp.Library {
	t.Helper()
	dir := os.Getenv("WEIR_LLAMA_LIB")
	if dir == "" {
		dir = llamacpp.DefaultDir(repoRoot(t))
		if _, err := os.Stat(dir); err != nil {
			t.Skipf("no llama.cpp libraries: WEIR_LLAMA_LIB is not set and there is no %s", dir)
		}
	}
	l, err := llamacpp.Load(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// preset writes a named random model into the test's folder.
func preset(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name+".gguf")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := gguf.WritePreset(f, name); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// stories converts the trained test model, or skips when it is absent.
func stories(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(repoRoot(t), "..", "shared", "models")
	weights, err := os.ReadFile(filepath.Join(dir, "stories260K.bin"))
	if err != nil {
		t.Skipf("no trained test model: %v", err)
	}
	tokens, err := os.ReadFile(filepath.Join(dir, "tok512.bin"))
	if err != nil {
		t.Skipf("no trained test model: %v", err)
	}
	var b bytes.Buffer
	if err := gguf.ConvertLlama2c(&b, weights, tokens, "stories260K"); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "stories.gguf")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// openEngine opens an engine that the test closes.
func openEngine(t testing.TB, path string, o llamacpp.Options) *llamacpp.Engine {
	t.Helper()
	e, err := llamacpp.Open(library(t), path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// prompt makes n tokens that are spread over the vocabulary; other seeds give
// other prompts.
func prompt(n, seed int) []int32 {
	x := uint32(seed)*2654435761 + 1
	out := make([]int32, n)
	for i := range out {
		x = x*1664525 + 1013904223
		out[i] = 3 + int32(x>>16)%400
	}
	return out
}

// prefill computes tokens[from:] in block-aligned steps and returns the logits of
// the last row, copied.
func prefill(t testing.TB, e gpuexec.StepEngine, seq gpuexec.SeqID, tokens []int32, from int) []float32 {
	t.Helper()
	var logits []float32
	for at := from; at < len(tokens); {
		n := min(gpuexec.BlockTokens-at%gpuexec.BlockTokens, len(tokens)-at)
		rows := make([]gpuexec.Row, n)
		for i := range rows {
			rows[i] = gpuexec.Row{Seq: seq, Token: tokens[at+i], Pos: int32(at + i), Logits: at+i == len(tokens)-1}
		}
		if err := e.Step(gpuexec.PhasePrefill, rows); err != nil {
			t.Fatal(err)
		}
		at += n
		if at == len(tokens) {
			logits = append(logits, e.Logits(n-1)...)
		}
	}
	return logits
}

// decode feeds tokens one step at a time and returns the logits after the last.
func decode(t testing.TB, e gpuexec.StepEngine, seq gpuexec.SeqID, tokens ...int32) []float32 {
	t.Helper()
	for _, tok := range tokens {
		row := gpuexec.Row{Seq: seq, Token: tok, Pos: int32(e.Len(seq)), Logits: true}
		if err := e.Step(gpuexec.PhaseDecode, []gpuexec.Row{row}); err != nil {
			t.Fatal(err)
		}
	}
	return append([]float32(nil), e.Logits(0)...)
}

// greedy decodes n tokens, starting from logits.
func greedy(t testing.TB, e gpuexec.StepEngine, seq gpuexec.SeqID, logits []float32, n int) []int32 {
	t.Helper()
	var out []int32
	for range n {
		out = append(out, argmax(logits))
		logits = decode(t, e, seq, out[len(out)-1])
	}
	return out
}

func argmax(l []float32) int32 {
	best := 0
	for i, v := range l {
		if v > l[best] {
			best = i
		}
	}
	return int32(best)
}

// blocks exports all whole blocks of seq.
func blocks(t testing.TB, e gpuexec.StepEngine, seq gpuexec.SeqID) [][]byte {
	t.Helper()
	out := make([][]byte, e.Len(seq)/gpuexec.BlockTokens)
	for i := range out {
		out[i] = make([]byte, e.Limits().BlockBytes)
	}
	if err := e.Export(seq, 0, out); err != nil {
		t.Fatal(err)
	}
	return out
}
