// Package tokenize tests the tokenizer service over real NATS with prompts that do
// not fit one message as they are.
package tokenize
