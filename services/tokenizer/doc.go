// Package tokenizer renders chat messages to text and text to tokens. It is
// stateless and needs a model's vocabulary only, so a busy or dead executor never
// blocks admission.
package tokenizer
