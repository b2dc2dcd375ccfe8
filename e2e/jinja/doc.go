// Package jinja compares the chat templates of gpuexec/chat with a second engine,
// the npm package @huggingface/jinja: templates of weir's own that use what the
// templates of open models use, made by hand and at random, over random messages.
//
// Read oracle.go, then generate.go.
package jinja
