// Package sampling turns logits into tokens, the same token on every machine.
//
// A turn may be continued by another process after a crash or a hand-over, and
// what a caller has seen must not change. So the random number of a token is a
// pure function of (seed, index of the token), all arithmetic is float64 in one
// fixed order with explicit rounding, and the only state is the count of the
// tokens so far, which Accept rebuilds.
//
// Order of the steps, as in vLLM and Hugging Face transformers:
//
//	logit bias → repetition penalty → frequency and presence penalty
//	→ temperature → top-k → top-p → min-p → draw
//
// The repetition penalty looks at the prompt and at the generated tokens,
// frequency and presence penalty at the generated ones only (OpenAI's
// definition: https://platform.openai.com/docs/api-reference/chat).
//
// Read params.go first, then sampler.go (one token from start to end) and
// cut.go (how top-k and top-p avoid sorting the vocabulary).
package sampling
