package tokenizer

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/weir-dev/weir/gpuexec/chat"
	"github.com/weir-dev/weir/gpuexec/gguf"
	"github.com/weir-dev/weir/gpuexec/spm"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/model"
)

// With a vocabulary of pieces too, the tokens behind an answer write exactly the
// text behind it.
func TestSpliceWithPieces(t *testing.T) {
	var file bytes.Buffer
	if err := gguf.WritePreset(&file, "tiny"); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Parse(file.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	vocab, err := spm.New(f, "tiny")
	if err != nil {
		t.Fatal(err)
	}
	r, err := New(&model.Model{Name: "tiny", Engine: model.EngineGo, Template: chat.Fallback, Vocab: vocab, BOS: "<s>", EOS: "<|im_end|>"}, 32768)
	if err != nil {
		t.Fatal(err)
	}
	text := func(toks []int32) string {
		var b strings.Builder
		for _, tok := range toks {
			b.Write(vocab.Piece(tok, true))
		}
		return b.String()
	}
	for _, end := range []string{"<|im_end|>", ""} {
		for _, generated := range []string{"the harbour ", " leading", "", "서울\n", "a\n\n"} {
			req := schemas.RenderRequest{Messages: list(t, `[{"role":"user","content":"tell me"}]`)}
			first := rendered(t, r, req)
			if got := text(first.Tokens); got != "<s>"+first.Text {
				t.Fatalf("the prompt's tokens write %q, want %q", got, "<s>"+first.Text)
			}
			content, err := json.Marshal(generated)
			if err != nil {
				t.Fatal(err)
			}
			req.Messages = append(req.Messages, json.RawMessage(`{"role":"assistant","content":`+string(content)+`}`), json.RawMessage(`{"role":"user","content":" more"}`))
			req.Known = []schemas.KnownText{{Bytes: len(first.Text), Digest: digest(first.Text)}}
			req.Answer = &schemas.AnswerText{At: 1, Known: 1, Text: generated, End: end}
			second := rendered(t, r, req)
			if second.Answered == 0 || second.Rewrite != "" {
				t.Fatalf("%q: not used, rewrite %q", generated, second.Rewrite)
			}
			if got, want := text(second.Tokens), second.Text[second.Answered:]; got != want {
				t.Errorf("%q: the tokens write %q, want %q", generated, got, want)
			}
		}
	}
}
