package turncmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
)

// turnOf makes the turn that the flags describe.
func (f *flags) turnOf(cmd *cobra.Command, text string) (*schemas.Turn, error) {
	t := new(schemas.Turn)
	if err := f.input(cmd, t, text); err != nil {
		return nil, err
	}
	w := &t.Weir
	for _, s := range [...]struct {
		to   *string
		from string
	}{{&w.Turn, f.turn}, {&w.Branch, f.branch}, {&w.Parent, f.parent}, {&w.Known, f.known}, {&t.Model, f.model}} {
		if s.from != "" {
			*s.to = s.from
		}
	}
	if f.force != "" {
		toks, err := readTokens(cmd, f.force)
		if err != nil {
			return nil, err
		}
		w.ForceOutput = toks
	}
	if f.ignoreEOS {
		w.IgnoreEOS = true
	}
	if f.priority != 0 {
		w.Priority = f.priority
	}
	if f.deadline > 0 {
		w.DeadlineNS = time.Now().Add(f.deadline).UnixNano()
	}
	set := func(name string) bool { return cmd.Flags().Changed(name) }
	if set("max-tokens") {
		t.MaxTokens = &f.maxTokens
	}
	if set("temperature") {
		t.Temperature = &f.temperature
	}
	if set("top-p") {
		t.TopP = &f.topP
	}
	if set("top-k") {
		t.TopK = &f.topK
	}
	if set("seed") {
		t.Seed = &f.seed
	}
	if len(f.stop) > 0 {
		t.Stop = f.stop
	}
	if err := t.Check(); err != nil {
		return nil, &ExitError{Code: 2, Err: err}
	}
	return t, nil
}

// input fills in the prompt, in the form in which it was given.
func (f *flags) input(cmd *cobra.Command, t *schemas.Turn, text string) error {
	switch {
	case f.body != "":
		b, err := readAll(cmd, f.body)
		if err != nil {
			return err
		}
		read, err := turns.DecodeBody(b)
		if err != nil {
			return usage("--body %s: %w", f.body, err)
		}
		*t = *read
		t.Stream, t.StreamOptions = nil, nil
		return nil
	case f.tokens != "":
		toks, err := readTokens(cmd, f.tokens)
		if err != nil {
			return err
		}
		if len(toks) == 0 {
			return usage("--tokens %s has no tokens", f.tokens)
		}
		t.Weir.InputTokens = toks
		return nil
	case f.file != "" || text == "-":
		from := f.file
		if from == "" {
			from = "-"
		}
		b, err := readAll(cmd, from)
		if err != nil {
			return err
		}
		text = string(b)
	}
	if !utf8.ValidString(text) {
		return usage("the text is not valid UTF-8")
	}
	if f.raw {
		p, err := json.Marshal(text)
		t.Prompt = p
		return err
	}
	if f.system != "" {
		if err := add(t, "system", f.system); err != nil {
			return err
		}
	}
	return add(t, "user", text)
}

func add(t *schemas.Turn, role, content string) error {
	m, err := json.Marshal(struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}{role, content})
	if err != nil {
		return fmt.Errorf("the %s message: %w", role, err)
	}
	t.Messages = append(t.Messages, m)
	return nil
}

// readAll reads a file, or standard input for "-", up to the size of a body.
func readAll(cmd *cobra.Command, name string) ([]byte, error) {
	r := cmd.InOrStdin()
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, &ExitError{Code: 2, Err: err}
		}
		defer func() { _ = file.Close() }()
		r = file
	}
	b, err := io.ReadAll(io.LimitReader(r, schemas.MaxBody+1))
	switch {
	case err != nil:
		return nil, &ExitError{Code: 1, Err: fmt.Errorf("reading %s: %w", name, err)}
	case len(b) > schemas.MaxBody:
		return nil, usage("%s has more than %d bytes", name, schemas.MaxBody)
	}
	return b, nil
}

func readTokens(cmd *cobra.Command, name string) (schemas.Tokens, error) {
	b, err := readAll(cmd, name)
	if err != nil {
		return nil, err
	}
	var t schemas.Tokens
	if err := json.Unmarshal(b, &t); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return nil, usage("%s is not a JSON array of token ids: %w at byte %d", name, err, syntax.Offset)
		}
		return nil, usage("%s is not a JSON array of token ids: %w", name, err)
	}
	return t, nil
}
