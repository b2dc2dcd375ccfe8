package tierchaos

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-dev/weir/e2e/stack"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/model"
	"github.com/weir-dev/weir/services/turns"
)

// TestFullTierRefuses: while no block can be stored, turns are computed again and say
// what they would have said; when there is room again, blocks are stored and found.
func TestFullTierRefuses(t *testing.T) {
	path, err := stack.ModelFile("tiny")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	s := stack.Start(t, stack.Options{Args: []string{
		"--engine", "go", "--model", path, "--prefill", "1", "--decode", "1", "--direct-max", "-1",
		"--ctx", "1024", "--slots", "2", "--kv-mem", "16MiB",
	}})
	mem := memoryOf(t, s, path)
	c := s.NewClient(t)
	ask := func(session string) *schemas.Result {
		t.Helper()
		most, cold := int64(40), 0.0
		m, err := json.Marshal(map[string]string{"role": "user", "content": strings.Repeat("the harbour at night ", 60)})
		if err != nil {
			t.Fatal(err)
		}
		turn := &schemas.Turn{Weir: schemas.TurnMeta{IgnoreEOS: true}}
		turn.Messages, turn.MaxTokens, turn.Temperature = []json.RawMessage{m}, &most, &cold
		st, err := c.Publish(ctx, turns.Request{Session: session, Turn: turn})
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		r, err := turns.Collect(ctx, st, nil)
		if err != nil {
			t.Fatal(err)
		}
		if r.Failure != nil {
			t.Fatalf("%s: %s", r.Failure.Code, r.Failure.Message)
		}
		return r
	}
	first := ask("first")
	release, err := mem.Occupy(ctx)
	if err != nil {
		t.Fatal(err)
	}
	// An engine goes on from a sequence that it kept itself, and a block may have been
	// leased when the rest was pressed out; in the end a prompt is computed again.
	most := first.Usage.Prompt / 4
	cached := first.Usage.Prompt
	for i := 0; i < 12 && cached > most; i++ {
		r := ask(fmt.Sprint("full-", i))
		if cached = r.Usage.Cached; !slices.Equal(r.Tokens, first.Tokens) {
			t.Errorf("%q, want %q", r.Text, first.Text)
		}
		t.Logf("%d of %d prompt tokens cached", cached, r.Usage.Prompt)
	}
	if cached > most {
		t.Error("no turn was computed again: the test shows nothing")
	}
	release()
	ask("stored")
	if r := ask("found"); r.Usage.Cached <= most || !slices.Equal(r.Tokens, first.Tokens) {
		t.Errorf("with room again: %d of %d prompt tokens cached, %q", r.Usage.Cached, r.Usage.Prompt, r.Text)
	}
}

// memoryOf joins the pool of the stack's executors.
func memoryOf(t *testing.T, s *stack.Stack, path string) *stack.Memory {
	t.Helper()
	m, err := model.Open(model.Options{Engine: model.EngineGo, Path: path, Log: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	e, err := m.NewEngine(model.EngineOptions{Slots: 1, Context: 1024, Threads: 1, Log: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	info := e.Info()
	mem, err := s.Memory(t.Context(), m, schemas.KVFormat{
		Engine: info.Engine, Version: info.Version, Numerics: info.Numerics, Layout: 1,
	}, e.Limits().BlockBytes)
	if err != nil {
		t.Fatal(err)
	}
	return mem
}
