package gguf

// Token types of tokenizer.ggml.token_type, as llama.cpp numbers them.
const (
	TokenNormal      int32 = 1
	TokenUnknown     int32 = 2
	TokenControl     int32 = 3
	TokenUserDefined int32 = 4
	TokenUnused      int32 = 5
	TokenByte        int32 = 6
)

// Shape is the shape of a llama-architecture model. All counts are of elements.
type Shape struct {
	Name     string
	Dim      int // embedding length
	Layers   int
	Heads    int
	KVHeads  int
	HeadDim  int
	FFN      int // feed-forward length
	Context  int // tokens that the model claims to handle
	RopeBase float32
	Type     TensorType // of the matrices; norms are F32
}

// Vocabulary is a SentencePiece-style ("llama") vocabulary: parallel slices by
// token id, and the ids of special tokens (-1 for none).
type Vocabulary struct {
	Tokens []string
	Scores []float32
	Types  []int32

	BOS, EOS, Unknown int32
	// SpacePrefix: a space is put in front of a text that starts a sequence or
	// follows a special token.
	SpacePrefix bool
	// Template is the Jinja chat template; empty for none.
	Template string
}

func (v *Vocabulary) add(text string, score float32, typ int32) {
	v.Tokens, v.Scores, v.Types = append(v.Tokens, text), append(v.Scores, score), append(v.Types, typ)
}

// metadata is the set of keys that llama.cpp v0.4.0 wants for this architecture.
func metadata(s Shape, v Vocabulary) []Pair {
	meta := []Pair{
		{"general.architecture", "llama"},
		{"general.name", s.Name},
		{"llama.context_length", uint32(s.Context)},
		{"llama.embedding_length", uint32(s.Dim)},
		{"llama.block_count", uint32(s.Layers)},
		{"llama.feed_forward_length", uint32(s.FFN)},
		{"llama.attention.head_count", uint32(s.Heads)},
		{"llama.attention.head_count_kv", uint32(s.KVHeads)},
		{"llama.attention.layer_norm_rms_epsilon", float32(1e-5)},
		{"llama.rope.dimension_count", uint32(s.HeadDim)},
		{"llama.rope.freq_base", s.RopeBase},
		{"llama.vocab_size", uint32(len(v.Tokens))},
		{"tokenizer.ggml.model", "llama"},
		{"tokenizer.ggml.tokens", v.Tokens},
		{"tokenizer.ggml.scores", v.Scores},
		{"tokenizer.ggml.token_type", v.Types},
		{"tokenizer.ggml.bos_token_id", uint32(v.BOS)},
		{"tokenizer.ggml.eos_token_id", uint32(v.EOS)},
		{"tokenizer.ggml.unknown_token_id", uint32(v.Unknown)},
		{"tokenizer.ggml.add_bos_token", true},
		{"tokenizer.ggml.add_eos_token", false},
		{"tokenizer.ggml.add_space_prefix", v.SpacePrefix},
	}
	if s.HeadDim*s.Heads != s.Dim { // otherwise this is the reader's default
		meta = append(meta, Pair{"llama.attention.key_length", uint32(s.HeadDim)}, Pair{"llama.attention.value_length", uint32(s.HeadDim)})
	}
	if v.Template != "" {
		meta = append(meta, Pair{"tokenizer.chat_template", v.Template})
	}
	return meta
}
