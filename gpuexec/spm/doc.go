// Package spm is the SentencePiece-style tokenizer of llama models
// (tokenizer.ggml.model = "llama") in pure Go, token for token what llama.cpp
// does, so that a pool may mix both engines.
//
// Read vocab.go first (loading and pieces), then tokenize.go (special tokens),
// then merge.go (the score-ordered bigram merges). Source of the rules: llama.cpp
// v0.4.0, src/llama-vocab.cpp.
package spm

import "errors"

// Errors of this package; every returned error wraps one of them.
var (
	// ErrVocab: the model's vocabulary is missing, contradicts itself or is of
	// another kind.
	ErrVocab = errors.New("spm: unusable vocabulary")
	// ErrText: a text cannot be written in this vocabulary.
	ErrText = errors.New("spm: text cannot be tokenized")
)
