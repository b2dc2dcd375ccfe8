package model

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/gpuexec/goengine"
	"github.com/weir-dev/weir/gpuexec/llamacpp"
	"github.com/weir-dev/weir/gpuexec/nullengine"
)

// pickEngine turns the flag's value into an engine that is usable here.
func pickEngine(want, libDir string) (string, error) {
	switch want {
	case EngineLlama:
		if _, err := os.Stat(libDir); err != nil || libDir == "" {
			return "", fmt.Errorf("%w: the llama.cpp libraries are not at %q; run \"make engine\", set WEIR_LLAMA_LIB or --llama-lib to their folder, or use --engine go", ErrEngine, libDir)
		}
		return EngineLlama, nil
	case EngineGo:
		return want, nil
	case EngineAuto, "":
		if libDir != "" {
			if _, err := os.Stat(libDir); err == nil {
				return EngineLlama, nil
			}
		}
		return EngineGo, nil
	}
	return "", fmt.Errorf("%w: %q is not one of auto, llama, go, sim, null", ErrEngine, want)
}

// FindLibraries looks for the llama.cpp libraries: WEIR_LLAMA_LIB, then .engine
// in the working folder and beside the binary. "" means that there are none.
func FindLibraries() string {
	if d := os.Getenv("WEIR_LLAMA_LIB"); d != "" {
		return d
	}
	roots := []string{"."}
	if exe, err := os.Executable(); err == nil {
		dir := filepath.Dir(exe)
		roots = append(roots, dir, filepath.Dir(dir))
	}
	for _, r := range roots {
		d := llamacpp.DefaultDir(r)
		if _, err := os.Stat(d); err == nil {
			if abs, err := filepath.Abs(d); err == nil {
				return abs
			}
		}
	}
	return ""
}

// EngineOptions size an engine.
type EngineOptions struct {
	Slots     int
	Context   int // tokens per sequence
	Threads   int
	GPULayers int
	Log       io.Writer // error lines of the library
}

// NewEngine loads the model's weights into its engine.
func (m *Model) NewEngine(o EngineOptions) (gpuexec.StepEngine, error) {
	switch m.Engine {
	case EngineNull, EngineSim:
		if m.Vision != nil {
			return nullengine.NewVision(nullengine.Options{Slots: o.Slots, Context: o.Context})
		}
		return nullengine.New(nullengine.Options{Slots: o.Slots, Context: o.Context})
	case EngineGo:
		f, release, err := mapGGUF(m.Path)
		if err != nil {
			return nil, err
		}
		e, err := goengine.New(f, goengine.Options{Slots: o.Slots, Context: o.Context})
		if err != nil {
			_ = release() // the reason for giving up is err
			return nil, fmt.Errorf("model %s on the go engine: %w", m.Path, err)
		}
		return e, nil
	}
	lib, err := llamacpp.Load(m.LibDir, o.Log)
	if err != nil {
		return nil, err
	}
	return llamacpp.Open(lib, m.Path, llamacpp.Options{Slots: o.Slots, Context: o.Context, Threads: o.Threads, GPULayers: o.GPULayers})
}
