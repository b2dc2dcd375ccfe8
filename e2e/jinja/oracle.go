package jinja

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/weir-dev/weir/e2e/node"
	"github.com/weir-dev/weir/e2e/stack"
	"github.com/weir-dev/weir/gpuexec/chat"
)

// Now is the time that templates are told.
var now = time.Date(2026, 12, 1, 9, 5, 3, 0, time.UTC)

// Tokens that templates are told.
const (
	bos = "<s>"
	eos = "</s>"
)

// Case is one rendering.
type Case struct {
	Template string
	Messages []json.RawMessage
	Tools    []json.RawMessage
	Kwargs   map[string]any
	Generate bool // add_generation_prompt
}

// Result is the text, or why there is none.
type Result struct {
	Text  string `json:"text"`
	Error string `json:"error"`
}

// Ours renders with gpuexec/chat.
func (c *Case) Ours() Result {
	t, err := chat.Compile(c.Template)
	if err != nil {
		return Result{Error: err.Error()}
	}
	kwargs, err := json.Marshal(c.Kwargs)
	if err != nil {
		return Result{Error: err.Error()}
	}
	text, err := t.Render(chat.Input{
		Messages: c.Messages, Tools: c.Tools, Kwargs: kwargs, AddGenerationPrompt: c.Generate, BOS: bos, EOS: eos, Now: now,
	})
	if err != nil {
		return Result{Error: err.Error()}
	}
	return Result{Text: text}
}

// data is what the other engine is given: the names that transformers defines.
func (c *Case) data() map[string]any {
	d := map[string]any{
		"messages": c.Messages, "tools": nil, "documents": nil, "add_generation_prompt": c.Generate, "bos_token": bos, "eos_token": eos,
	}
	if len(c.Tools) > 0 {
		d["tools"] = c.Tools
	}
	for k, v := range c.Kwargs {
		d[k] = v
	}
	return d
}

// Node renders all cases with @huggingface/jinja. The error wraps node.ErrAbsent
// where that cannot be had.
func Node(ctx context.Context, cases []Case, tmp string) ([]Result, error) {
	dir, err := node.Install(ctx, "e2e/jinja/npm")
	if err != nil {
		return nil, err
	}
	return run(cases, tmp, func(file string) ([]byte, error) { return node.Run(ctx, dir, "oracle.mjs", file) })
}

// Python renders all cases with Jinja2, where python3 has it: the engine that
// transformers uses, so it is right where the others differ. The error wraps
// node.ErrAbsent where that cannot be had.
func Python(ctx context.Context, cases []Case, tmp string) ([]Result, error) {
	root, err := stack.Root()
	if err != nil {
		return nil, err
	}
	if err := exec.CommandContext(ctx, "python3", "-c", "import jinja2").Run(); err != nil {
		return nil, fmt.Errorf("%w: python3 with jinja2: %w", node.ErrAbsent, err)
	}
	return run(cases, tmp, func(file string) ([]byte, error) {
		return exec.CommandContext(ctx, "python3", filepath.Join(root, "e2e", "jinja", "npm", "oracle.py"), file).Output()
	})
}

// run hands the cases to an engine in a file and reads a result per line.
func run(cases []Case, tmp string, engine func(file string) ([]byte, error)) ([]Result, error) {
	type entry struct {
		Template string         `json:"template"`
		Data     map[string]any `json:"data"`
	}
	list := make([]entry, len(cases))
	for i := range cases {
		list[i] = entry{cases[i].Template, cases[i].data()}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(map[string]any{"now": now.UnixMilli(), "cases": list}); err != nil {
		return nil, err
	}
	file := filepath.Join(tmp, "cases.json")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		return nil, err
	}
	out, err := engine(file)
	if err != nil {
		return nil, err
	}
	var results []Result
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var r Result
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, err
		}
		results = append(results, r)
	}
	if len(results) != len(cases) {
		return nil, errors.Join(lines.Err(), fmt.Errorf("%d results for %d cases", len(results), len(cases)))
	}
	return results, nil
}
