// Package tokenizer renders chat messages to text and text to tokens. It is
// stateless and needs a model's vocabulary only, so a busy or dead executor never
// blocks admission.
//
// Read render.go (one request), then answer.go (an answer that comes back), media.go
// (images), tools.go (tools, tool_choice, what an answer is constrained to).
package tokenizer
