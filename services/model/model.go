package model

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/gpuexec/chat"
	"github.com/weir-dev/weir/gpuexec/gguf"
	"github.com/weir-dev/weir/gpuexec/llamacpp"
	"github.com/weir-dev/weir/gpuexec/nullengine"
	"github.com/weir-dev/weir/gpuexec/spm"
	"github.com/weir-dev/weir/schemas"
)

// Engine names.
const (
	EngineAuto  = "auto"
	EngineLlama = "llama"
	EngineGo    = "go"
	EngineNull  = "null"
	EngineSim   = "sim"
)

// ErrEngine: the engine asked for cannot be used here.
var ErrEngine = errors.New("engine not usable")

// Model is a model file and what is known of it without loading weights.
type Model struct {
	Name     string  // pool and public name, one subject token
	Path     string  // "" for the engines null and sim
	Digest   string  // SHA-256 of the file
	Engine   string  // llama, go, null or sim
	LibDir   string  // llama.cpp libraries
	Trained  int     // context length that the file names, 0 when unknown
	Template string  // Jinja source
	Default  bool    // the generated model, which writes gibberish
	Vision   *Vision // how images stand in a prompt; nil for a model that takes text only

	Vocab     gpuexec.Vocab
	BOS, EOS  string // text of these tokens
	closeFunc func() error
}

// Options say which model to open.
type Options struct {
	Engine string // auto, llama, go, null, sim
	Path   string // GGUF file; "" means the default model below Dir
	Dir    string // where the default model is kept
	LibDir string // llama.cpp libraries; "" means the usual places
	Name   string // public name; "" means from the file
	Log    io.Writer
	// NullVision makes the null engine take images: for tests of what lies around it.
	NullVision bool
}

// Vision says how a model that takes images has them in its prompt: as a run of one
// placeholder token, one for each square of Patch by Patch pixels.
type Vision struct {
	Token int32  // the placeholder
	Text  string // its text
	Patch int    // pixels
}

// Bounds of the placeholder tokens of one image. Images above the bound would be
// scaled down.
const (
	minImageTokens = 4
	maxImageTokens = 1568
)

// Tokens is the number of placeholder tokens of an image of w by h pixels; the
// least number when the size is not known and w or h are 0.
func (v *Vision) Tokens(w, h int) int {
	patch := max(1, v.Patch)
	n := int64((w+patch-1)/patch) * int64((h+patch-1)/patch)
	return int(min(max(n, minImageTokens), maxImageTokens))
}

// Open describes a model and opens its vocabulary.
func Open(o Options) (*Model, error) {
	if o.Engine == EngineNull || o.Engine == EngineSim {
		return openNull(o), nil
	}
	m := &Model{Path: o.Path, Name: o.Name, LibDir: o.LibDir}
	if m.LibDir == "" {
		m.LibDir = FindLibraries()
	}
	var err error
	if m.Engine, err = pickEngine(o.Engine, m.LibDir); err != nil {
		return nil, err
	}
	if m.Path == "" {
		if m.Path, err = defaultModel(o.Dir); err != nil {
			return nil, err
		}
		m.Default = true
	}
	f, release, err := mapGGUF(m.Path)
	if err != nil {
		return nil, err
	}
	if m.Digest, err = digestFile(m.Path); err != nil {
		return nil, errors.Join(err, release())
	}
	if err := m.describe(f, o); err != nil {
		return nil, errors.Join(err, release())
	}
	m.closeFunc = release
	return m, nil
}

func openNull(o Options) *Model {
	m := &Model{Name: o.Name, Engine: EngineNull, Digest: "null-engine", Template: chat.Fallback, Vocab: nullengine.Vocab{}, Trained: 32768}
	if o.Engine == EngineSim { // the null engine does the work, in the time of a device
		m.Engine, m.Digest, m.Trained = EngineSim, "sim-engine", 0
	}
	if m.Name == "" {
		m.Name = m.Engine
	}
	m.EOS = "<|im_end|>"
	if o.NullVision {
		m.Vision = &Vision{Token: nullengine.TokenImage, Text: nullengine.ImageText, Patch: 112}
	}
	return m
}

// describe reads names, template and vocabulary from the file.
func (m *Model) describe(f *gguf.File, o Options) error {
	arch, _, err := gguf.Get[string](f, "general.architecture")
	if err != nil {
		return fmt.Errorf("model %s: %w", m.Path, err)
	}
	if n, ok, err := f.Uint(arch + ".context_length"); err == nil && ok {
		m.Trained = int(n)
	}
	if m.Name == "" {
		name, _, err := gguf.Get[string](f, "general.name")
		if err != nil || name == "" {
			name = strings.TrimSuffix(filepath.Base(m.Path), ".gguf")
		}
		m.Name = cleanName(name)
	}
	if m.Template, _, err = gguf.Get[string](f, "tokenizer.chat_template"); err != nil {
		return fmt.Errorf("model %s: %w", m.Path, err)
	}
	if m.Template == "" {
		m.Template = chat.Fallback
	}
	if _, err := chat.Compile(m.Template); err != nil {
		return fmt.Errorf("model %s: its chat template cannot be used: %w", m.Path, err)
	}
	kind, _, err := gguf.Get[string](f, "tokenizer.ggml.model")
	if err != nil {
		return fmt.Errorf("model %s: %w", m.Path, err)
	}
	if kind == "llama" {
		v, err := spm.New(f, m.Digest)
		if err != nil {
			return fmt.Errorf("model %s: %w", m.Path, err)
		}
		m.Vocab = v
	} else if err := m.libraryVocab(kind, o); err != nil {
		return err
	}
	if b := m.Vocab.BOS(); b >= 0 {
		m.BOS = string(m.Vocab.Piece(b, true))
	}
	if id, ok, err := f.Uint("tokenizer.ggml.eos_token_id"); err == nil && ok && int(id) < m.Vocab.Size() {
		m.EOS = string(m.Vocab.Piece(int32(id), true))
	}
	return nil
}

// libraryVocab opens the vocabulary through llama.cpp: for tokenizers that weir
// has no code of its own for.
func (m *Model) libraryVocab(kind string, o Options) error {
	lib, err := llamacpp.Load(m.LibDir, o.Log)
	if err != nil {
		return fmt.Errorf("model %s has a %q tokenizer, which needs the llama.cpp libraries: %w", m.Path, kind, err)
	}
	v, err := llamacpp.OpenVocab(lib, m.Path)
	if err != nil {
		return err
	}
	m.Vocab = v
	return nil
}

// Close releases the file.
func (m *Model) Close() error {
	if m.closeFunc == nil {
		return nil
	}
	return m.closeFunc()
}

// TemplateDigest names the template in block keys.
func (m *Model) TemplateDigest() string {
	sum := sha256.Sum256([]byte(m.Template))
	return hex.EncodeToString(sum[:16])
}

// cleanName turns a model's name into one subject token that people recognise.
func cleanName(s string) string {
	b := []byte(strings.ReplaceAll(strings.TrimSpace(s), " ", "-"))
	for i, c := range b {
		if !schemas.ValidID(string(c)) {
			b[i] = '-'
		}
	}
	if len(b) == 0 {
		return "model"
	}
	return string(b[:min(len(b), schemas.MaxIDLen)])
}

// defaultModel makes the default model at its first use. It is seeded, so every
// machine makes the same bytes.
func defaultModel(dir string) (string, error) {
	const name = "small"
	path := filepath.Join(dir, "models", "weir-"+name+"-v2.gguf")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return "", fmt.Errorf("making the default model: %w", err)
	}
	if err := WritePreset(path, name); err != nil {
		return "", fmt.Errorf("making the default model: %w", err)
	}
	return path, nil
}

// WritePreset writes a seeded random model; the file appears only when it is whole.
func WritePreset(path, preset string) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".model-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
	}()
	w := bufio.NewWriterSize(f, 1<<20)
	if err := gguf.WritePreset(w, preset); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	name := f.Name()
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(name, path)
}

func digestFile(path string) (digest string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	h := sha256.New()
	if _, err := io.Copy(h, bufio.NewReaderSize(f, 1<<20)); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
