// Package chat turns messages into a prompt and tokens back into text.
//
// A model's GGUF file carries a Jinja template. Template renders it with gonja
// (github.com/nikolalohinski/gonja/v2); what gonja lacks for the templates in
// use is supplied here: rewrite.go for the grammar (conditional expressions,
// parentheses, adjacent strings), values.go for objects that keep the order of
// their keys, methods.go and filters.go for Python's string methods and
// tojson as Hugging Face transformers defines it
// (https://huggingface.co/docs/transformers/chat_templating).
// A template comes from a user's file: it reads no files, its output, loops and
// recursion are bounded (budget.go), and a panic inside gonja becomes an error.
//
// Text assembles streamed token pieces into text that is safe to send.
// Parser takes that text apart into reasoning, content and tool calls, as a Spec
// says; families.go lists what the families of models write.
// Canonical names a message so that a client's re-sent copy is recognised.
//
// Read template.go first, then text.go, parser.go, families.go, then rewrite.go.
package chat
