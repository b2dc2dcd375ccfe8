package llamacpp_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/gpuexec/gguf"
	"github.com/weir-dev/weir/gpuexec/llamacpp"
)

func openVocab(t *testing.T, path string) *llamacpp.VocabModel {
	t.Helper()
	v, err := llamacpp.OpenVocab(library(t), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	})
	return v
}

// text joins the pieces of tokens.
func text(v gpuexec.Vocab, tokens []int32, special bool) string {
	var b strings.Builder
	for _, t := range tokens {
		b.Write(v.Piece(t, special))
	}
	return b.String()
}

func TestVocab(t *testing.T) {
	path := preset(t, "tiny")
	v := openVocab(t, path)
	whole := openEngine(t, path, llamacpp.Options{Context: 64}).Vocab()
	if v.Size() != 512 || v.BOS() != 1 || v.Name() != whole.Name() || v.Size() != whole.Size() {
		t.Errorf("size %d, BOS %d, names %q and %q", v.Size(), v.BOS(), v.Name(), whole.Name())
	}
	for _, s := range []string{"", " ", "Once upon a time", "naïve 猫 \U0001F600", "a\x00b", "\n\n\t", "<|im_start|>"} {
		tokens, err := v.Tokenize(s, false, false)
		if err != nil {
			t.Errorf("%q: %v", s, err)
			continue
		}
		if got := text(v, tokens, true); got != s {
			t.Errorf("%q comes back as %q", s, got)
		}
		other, err := whole.Tokenize(s, false, false)
		if err != nil || !slices.Equal(tokens, other) {
			t.Errorf("%q: the engine's vocabulary gives %v (%v), the vocabulary alone %v", s, other, err, tokens)
		}
	}
	plain, err1 := v.Tokenize(gguf.EndOfTurn, false, false)
	special, err2 := v.Tokenize(gguf.EndOfTurn, true, true)
	if err1 != nil || err2 != nil || len(plain) < 2 || len(special) != 2 || special[0] != v.BOS() {
		t.Fatalf("control token as text %v (%v), parsed %v (%v)", plain, err1, special, err2)
	}
	end := special[1]
	if !v.EOG(end) || v.EOG(v.BOS()) || v.EOG(-1) || v.EOG(1<<30) {
		t.Error("end of generation is not told right")
	}
	if got := string(v.Piece(end, true)); got != gguf.EndOfTurn {
		t.Errorf("piece of the end token %q", got)
	}
	if got := v.Piece(end, false); len(got) != 0 {
		t.Errorf("piece of the end token without special %q", got)
	}
	if v.Piece(-1, true) != nil || v.Piece(512, true) != nil {
		t.Error("ids outside the vocabulary have pieces")
	}
	if !strings.Contains(v.ChatTemplate(), "add_generation_prompt") {
		t.Errorf("chat template %q", v.ChatTemplate())
	}
	if v.Meta("general.architecture") != "llama" || v.Meta("no.such.key") != "" {
		t.Error("metadata is not read")
	}
	if _, err := v.Tokenize("a\xffb", false, false); !errors.Is(err, gpuexec.ErrUnsupported) {
		t.Errorf("text that is not UTF-8: %v", err)
	}
}

// TestLongText tokenizes 2 MB while another goroutine uses the same vocabulary.
func TestLongText(t *testing.T) {
	v := openVocab(t, preset(t, "tiny"))
	var wg sync.WaitGroup
	for _, size := range []int{1 << 21, 1 << 16} {
		long := strings.Repeat("The quick brown fox jumps. 猫\n", size/30)
		wg.Go(func() {
			tokens, err := v.Tokenize(long, true, true)
			if err != nil {
				t.Error(err)
				return
			}
			if got := text(v, tokens[1:], false); got != long {
				t.Errorf("%d bytes come back as %d", len(long), len(got))
			}
		})
	}
	wg.Wait()
	if _, err := v.Tokenize(strings.Repeat("a", 65<<20), false, false); !errors.Is(err, gpuexec.ErrUnsupported) {
		t.Errorf("65 MB of text: %v", err)
	}
}
