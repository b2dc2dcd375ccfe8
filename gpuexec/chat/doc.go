// Package chat turns messages into a prompt and tokens back into text.
//
// A model's GGUF file carries a Jinja template. Template renders it with gonja
// (github.com/nikolalohinski/gonja/v2); what gonja lacks for the templates in
// use is supplied here: rewrite.go and operators.go for the grammar (conditional
// expressions, parentheses, adjacent strings, subscripts, methods, comparisons in a
// row), calltag.go for call blocks, values.go for objects that keep the order of
// their keys, methods.go and filters.go for Python's string methods and
// tojson as Hugging Face transformers defines it
// (https://huggingface.co/docs/transformers/chat_templating).
// A template comes from a user's file: it reads no files, its output, loops and
// recursion and the text that it reads are bounded (budget.go), and a panic inside
// gonja becomes an error.
//
// Renderings equal those of Jinja2 but for this: none prints nothing instead of
// "None"; a number and a truth value are never equal; an undefined value equals none.
// Not supported: recursive loops, integers beyond 64 bits, ** of integers and // and
// % of negative numbers (they follow Go), % for formatting, filters that pad (center,
// ljust, …), tags that read other templates. e2e/jinja compares the rest.
//
// Text assembles streamed token pieces into text that is safe to send.
// Parser takes that text apart into reasoning, content and tool calls, as a Spec
// says; families.go lists what the families of models write.
//
// Read template.go first, then text.go, parser.go, families.go, then rewrite.go.
package chat
