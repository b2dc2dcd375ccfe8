// Package grammar makes and checks GBNF, the grammar notation of llama.cpp
// (https://github.com/ggml-org/llama.cpp/blob/master/grammars/README.md), before
// a library sees it: the library may abort the process on what it dislikes.
//
// FromSchema turns a stated subset of JSON Schema into GBNF, ToolCalls the calls that
// an answer must consist of. Check rejects grammars that are wrong, endless or absurdly large. Matcher follows a grammar
// in pure Go, so that tests can tell whether an answer conforms.
//
// Read parse.go first (the notation), then schema.go (the subset), calls.go and
// matcher.go.
package grammar
