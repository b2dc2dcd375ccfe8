package llamacpp

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"
)

// TestSizes: the C compiler's sizes, read from the library's own code.
func TestSizes(t *testing.T) {
	for name, c := range map[string][2]uintptr{
		"llama_model_params":     {unsafe.Sizeof(modelParams{}), 80},
		"llama_context_params":   {unsafe.Offsetof(contextParams{}.Tail), 152},
		"llama_batch":            {unsafe.Sizeof(batch{}), 56},
		"llama_token_data":       {unsafe.Sizeof(tokenData{}), 12},
		"llama_token_data_array": {unsafe.Sizeof(tokenDataArray{}), 32},
		"offset of defrag_thold": {unsafe.Offsetof(contextParams{}.DefragThold), 84},
		"offset of type_k":       {unsafe.Offsetof(contextParams{}.TypeK), 104},
		"offset of kv_unified":   {unsafe.Offsetof(contextParams{}.KVUnified), 133},
		"offset of samplers":     {unsafe.Offsetof(contextParams{}.Samplers), 136},
		"offset of vocab_only":   {unsafe.Offsetof(modelParams{}.VocabOnly), 72},
	} {
		if c[0] != c[1] {
			t.Errorf("%s: %d, want %d", name, c[0], c[1])
		}
	}
}

func TestCheckABI(t *testing.T) {
	if err := checkABI(modelDefaults(), contextDefaults()); err != nil {
		t.Fatal(err)
	}
	m, c := modelDefaults(), contextDefaults()
	c.Tail[0] = 7 // not ours
	if err := checkABI(m, c); err != nil {
		t.Errorf("the tail is compared: %v", err)
	}
	m.NoAlloc, c.NUbatch, c.YarnBetaFast = 1, 256, 32
	err := checkABI(m, c)
	if !errors.Is(err, ErrABI) {
		t.Fatalf("error %v, want ErrABI", err)
	}
	for _, want := range []string{
		"llama_model_params.NoAlloc at byte 76: expected 0, found 1",
		"llama_context_params.NUbatch at byte 8: expected 512, found 256",
		"llama_context_params.YarnBetaFast at byte 72: expected -1, found 32",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nlacks: %s", err, want)
		}
	}
}

func TestMissingLibraries(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "with [odd] * name")
	if err := os.MkdirAll(filepath.Join(dir, "libllama"+librarySuffix()), 0o700); err != nil {
		t.Fatal(err)
	}
	touch := func(name string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("not a library"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	touch("libggml-base" + librarySuffix())
	touch("libggml-cpu-haswell" + librarySuffix())
	_, err := findLibraries(dir)
	if !errors.Is(err, ErrNoLibrary) || !strings.Contains(err.Error(), "no libggml[.version]") ||
		!strings.Contains(err.Error(), "libllama[.version]") || !strings.Contains(err.Error(), dir) ||
		!strings.Contains(err.Error(), npmPackage()) || strings.Contains(err.Error(), "libggml-base") {
		t.Errorf("missing libraries: %v", err)
	}
	touch("libggml.v0.4.0" + librarySuffix())
	touch("libllama.v0.4.0" + librarySuffix())
	paths, err := findLibraries(dir)
	if err != nil || len(paths) != 3 || filepath.Base(paths[1]) != "libggml.v0.4.0"+librarySuffix() {
		t.Errorf("found %v, %v", paths, err)
	}
	if _, err := open(dir, paths, nil); !errors.Is(err, ErrNoLibrary) {
		t.Errorf("files that are no libraries: %v", err)
	}
	for _, dir := range []string{"", filepath.Join(dir, "absent")} {
		if _, err := Load(dir, nil); !errors.Is(err, ErrNoLibrary) {
			t.Errorf("folder %q: %v", dir, err)
		}
	}
}

func TestLoadOnce(t *testing.T) {
	e := tinyEngine(t)
	again, err := Load(e.lib.Dir(), nil)
	if err != nil || again != e.lib {
		t.Errorf("loading again: %p, want %p, %v", again, e.lib, err)
	}
	if _, err := Load(t.TempDir(), nil); !errors.Is(err, ErrNoLibrary) {
		t.Errorf("another folder in one process: %v", err)
	}
	if !strings.HasPrefix(e.lib.Version(), "llama ") || len(e.lib.Devices()) == 0 {
		t.Errorf("version %q, devices %v", e.lib.Version(), e.lib.Devices())
	}
}

func TestLogSink(t *testing.T) {
	var b bytes.Buffer
	s := newLogSink(&b)
	c := func(text string) *byte { return unsafe.StringData(text + "\x00") }
	s.receive(2, c("loading\n"), 0)
	s.receive(logContinue, c("... still loading\n"), 0)
	if b.Len() != 0 || s.reason() != "the library gave no reason" {
		t.Errorf("information is kept: %q, %q", b.String(), s.reason())
	}
	s.receive(logError, c("bad tensor"), 0)
	s.receive(logContinue, c(" blk.7\n"), 0)
	if b.String() != "bad tensor blk.7\n" {
		t.Errorf("log %q", b.String())
	}
	s.receive(logError, nil, 0)
	s.receive(logError, c(strings.Repeat("x", 3*maxLogLine)), 0)
	for range 100 {
		s.receive(logContinue, c(strings.Repeat("y", maxLogLine)), 0)
		s.receive(logError, c("again"), 0)
	}
	if got := s.reason(); !strings.HasPrefix(got, "bad tensor blk.7; xxx") || len(got) > maxReasonLines*(maxLogLine+2) {
		t.Errorf("a reason of %d bytes: %.40q", len(got), got)
	}
	s.clear()
	if s.reason() != "the library gave no reason" {
		t.Errorf("after clear: %q", s.reason())
	}
}
