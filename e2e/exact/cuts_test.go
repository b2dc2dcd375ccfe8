package exact

import (
	"bytes"
	"io"
	"maps"
	"slices"
	"testing"

	"github.com/weir-dev/weir/e2e/stack"
	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/model"
)

// TestCuts: where the found prefix of a turn ends changes nothing that is promised. A
// second turn is computed again and again, each time with one block less of the first
// one in memory. On the Go engine the answer and all blocks are equal at every cut. On
// llama.cpp they are equal as long as the same generated blocks are found: one that is
// computed again by prefill has other low bits than decoding gave it, and may lead to
// another answer.
func TestCuts(t *testing.T) {
	for _, c := range []struct {
		engine, preset string
		allEqual       bool
	}{
		{model.EngineGo, "tiny", true},
		{model.EngineLlama, "small", false},
	} {
		t.Run(c.engine, func(t *testing.T) {
			if c.engine == model.EngineLlama && stack.Libraries() == "" {
				t.Skip("the llama.cpp libraries are not installed; `make engine` installs them")
			}
			r := referenceOn(t, c.engine, c.preset, 1024)
			prompt, before, first := secondTurn(t, r)
			most := len(before)
			if !c.allEqual {
				most = first / gpuexec.BlockTokens // none with generated tokens
			}
			want := computeFrom(t, r, prompt, before[:most])
			for at := most - 1; at >= 0; at-- {
				computeFrom(t, r, prompt, before[:at]).compare(t, want, at)
			}
		})
	}
}

// cutRun is an answer and all blocks of the turn.
type cutRun struct {
	tokens []int32
	blocks [][]byte
}

func (r *cutRun) compare(t *testing.T, want *cutRun, at int) {
	t.Helper()
	if !slices.Equal(r.tokens, want.tokens) {
		t.Errorf("with %d blocks found the answer is %v, want %v", at, r.tokens, want.tokens)
	}
	if !slices.EqualFunc(r.blocks, want.blocks, bytes.Equal) {
		t.Errorf("with %d blocks found some blocks have other bytes", at)
	}
}

// referenceOn opens a reference for a test.
func referenceOn(t *testing.T, engine, preset string, room int) *reference {
	t.Helper()
	path, err := stack.ModelFile(preset)
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Open(model.Options{Engine: engine, Path: path, LibDir: stack.Libraries(), Log: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	r, err := openReference(m, room)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.close(); err != nil {
			t.Error(err)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// secondTurn computes a turn and returns the next one's prompt, the blocks of the first
// turn in order, and how many tokens of them its prompt had.
func secondTurn(t *testing.T, r *reference) (prompt schemas.Tokens, before []sealed, first int) {
	t.Helper()
	const firstPrompt = 300
	vocab := r.model.Vocab.Size()
	head := Case{Sampling: Greedy, Prompt: firstPrompt}.prompt(vocab)
	mem := r.memory()
	one, err := r.turn(mem, head, nil, samplingOf(Greedy), 150)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range one.keys {
		before = append(before, mem.blocks[k])
	}
	if n := len(before); n != (firstPrompt+150-1)/gpuexec.BlockTokens || !before[n-3].Decoded {
		t.Fatalf("%d blocks, the last three of generated tokens: %v", n, before[n-3].Decoded)
	}
	return slices.Concat(head, one.tokens, Case{Sampling: Greedy, Prompt: 100}.prompt(vocab)), before, firstPrompt
}

// computeFrom computes a turn with these blocks in memory.
func computeFrom(t *testing.T, r *reference, prompt schemas.Tokens, found []sealed) *cutRun {
	t.Helper()
	mem := r.memory()
	for _, b := range found {
		mem.blocks[b.Key] = b
	}
	kept := maps.Clone(mem.blocks)
	turn, err := r.turn(mem, prompt, nil, samplingOf(Greedy), maxNew)
	if err != nil {
		t.Fatal(err)
	}
	if turn.cached != len(found)*gpuexec.BlockTokens {
		t.Errorf("%d tokens were found, want %d", turn.cached, len(found)*gpuexec.BlockTokens)
	}
	out := &cutRun{tokens: turn.tokens}
	for _, k := range turn.keys {
		if b, ok := kept[k]; ok && !bytes.Equal(b.data, mem.blocks[k].data) {
			t.Errorf("block %d was found and written anew", b.Index)
		}
		out.blocks = append(out.blocks, mem.blocks[k].data)
	}
	return out
}
