package llamacpp

import "errors"

// Errors of loading. Errors of computing are those of package gpuexec.
var (
	// ErrNoLibrary: the llama.cpp shared libraries are absent or cannot be opened.
	ErrNoLibrary = errors.New("llama.cpp libraries not usable")
	// ErrABI: the libraries are of a version whose structs differ from this binding's.
	ErrABI = errors.New("llama.cpp libraries have another binary interface")
	// ErrModel: the model file is missing, damaged, or of a kind the library does not know.
	ErrModel = errors.New("model cannot be loaded")
	// ErrGrammar: the grammar does not compile, forbids the token, or became too slow.
	ErrGrammar = errors.New("grammar")
	// ErrBroken: an engine call failed in a way that leaves the KV state unknown.
	// Every further Step fails; the executor should restart.
	ErrBroken = errors.New("engine state unknown after a failed call")
)
