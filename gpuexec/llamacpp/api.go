package llamacpp

import (
	"fmt"

	"github.com/ebitengine/purego"
)

// api holds the C functions in use, with their C types spelled in Go. Handles of
// the library are uintptr. Functions on the decode path are kept as addresses and
// called without reflection; see call.go.
type api struct {
	modelDefaults   func() modelParams
	contextDefaults func() contextParams
	backendInit     func()
	logSet          func(callback, data uintptr)
	llamaVersion    func() string
	systemInfo      func() string

	modelLoad         func(path string, p modelParams) uintptr
	modelFree         func(model uintptr)
	modelDesc         func(model uintptr, buf *byte, size uintptr) int32
	modelMeta         func(model uintptr, key string, buf *byte, size uintptr) int32
	modelChatTemplate func(model uintptr, name *byte) *byte
	modelContextTrain func(model uintptr) int32
	modelLayers       func(model uintptr) int32
	modelSWA          func(model uintptr) int32
	modelRopeType     func(model uintptr) int32
	modelRopeScale    func(model uintptr) float32
	modelHasEncoder   func(model uintptr) bool
	modelHasDecoder   func(model uintptr) bool
	modelIsRecurrent  func(model uintptr) bool
	modelIsHybrid     func(model uintptr) bool

	contextNew    func(model uintptr, p contextParams) uintptr
	contextFree   func(context uintptr)
	contextPerSeq func(context uintptr) uint32
	memory        func(context uintptr) uintptr
	seqRemove     func(memory uintptr, seq, from, to int32) bool
	seqPosMax     func(memory uintptr, seq int32) int32
	stateSize     func(context uintptr, seq int32, flags uint32) uintptr

	vocab          func(model uintptr) uintptr
	vocabTokens    func(vocab uintptr) int32
	vocabBOS       func(vocab uintptr) int32
	vocabAddBOS    func(vocab uintptr) bool
	vocabIsEOG     func(vocab uintptr, token int32) bool
	tokenize       func(vocab uintptr, text *byte, textLen int32, tokens *int32, n int32, addSpecial, parseSpecial bool) int32
	tokenToPiece   func(vocab uintptr, token int32, buf *byte, size, lstrip int32, special bool) int32
	samplerGrammar func(vocab uintptr, grammar, root string) uintptr
	samplerFree    func(sampler uintptr)

	decode, logits, stateGet, stateSet, samplerApply, samplerAccept uintptr

	loadBackends   func(dir string)
	devCount       func() uintptr
	devGet         func(i uintptr) uintptr
	devName        func(dev uintptr) string
	devDescription func(dev uintptr) string
	devType        func(dev uintptr) int32
	devMemory      func(dev uintptr, free, total *uintptr)
	ggmlVersion    func() string
	ggmlCommit     func() string
	ggmlLogSet     func(callback, data uintptr)
}

// symbol pairs a field of api with the name of the C function.
type symbol struct {
	target any
	name   string
}

// bind resolves every function. A missing one means another version of the
// library, which is reported by name before anything is called.
func (a *api) bind(base, ggml, llama uintptr) error {
	for _, set := range []struct {
		handle  uintptr
		symbols []symbol
	}{
		{base, a.baseSymbols()},
		{ggml, a.ggmlSymbols()},
		{llama, a.modelSymbols()},
		{llama, a.contextSymbols()},
		{llama, a.vocabSymbols()},
	} {
		for _, s := range set.symbols {
			addr, err := purego.Dlsym(set.handle, s.name)
			if err != nil {
				return fmt.Errorf("%w: function %s is missing: %w", ErrABI, s.name, err)
			}
			if p, ok := s.target.(*uintptr); ok {
				*p = addr
				continue
			}
			purego.RegisterFunc(s.target, addr)
		}
	}
	return nil
}

func (a *api) baseSymbols() []symbol {
	return []symbol{
		{&a.devName, "ggml_backend_dev_name"},
		{&a.devDescription, "ggml_backend_dev_description"},
		{&a.devType, "ggml_backend_dev_type"},
		{&a.devMemory, "ggml_backend_dev_memory"},
		{&a.ggmlVersion, "ggml_version"},
		{&a.ggmlCommit, "ggml_commit"},
		{&a.ggmlLogSet, "ggml_log_set"},
	}
}

func (a *api) ggmlSymbols() []symbol {
	return []symbol{
		{&a.loadBackends, "ggml_backend_load_all_from_path"},
		{&a.devCount, "ggml_backend_dev_count"},
		{&a.devGet, "ggml_backend_dev_get"},
	}
}

func (a *api) modelSymbols() []symbol {
	return []symbol{
		{&a.modelDefaults, "llama_model_default_params"},
		{&a.contextDefaults, "llama_context_default_params"},
		{&a.backendInit, "llama_backend_init"},
		{&a.logSet, "llama_log_set"},
		{&a.llamaVersion, "llama_version"},
		{&a.systemInfo, "llama_print_system_info"},
		{&a.modelLoad, "llama_model_load_from_file"},
		{&a.modelFree, "llama_model_free"},
		{&a.modelDesc, "llama_model_desc"},
		{&a.modelMeta, "llama_model_meta_val_str"},
		{&a.modelChatTemplate, "llama_model_chat_template"},
		{&a.modelContextTrain, "llama_model_n_ctx_train"},
		{&a.modelLayers, "llama_model_n_layer"},
		{&a.modelSWA, "llama_model_n_swa"},
		{&a.modelRopeType, "llama_model_rope_type"},
		{&a.modelRopeScale, "llama_model_rope_freq_scale_train"},
		{&a.modelHasEncoder, "llama_model_has_encoder"},
		{&a.modelHasDecoder, "llama_model_has_decoder"},
		{&a.modelIsRecurrent, "llama_model_is_recurrent"},
		{&a.modelIsHybrid, "llama_model_is_hybrid"},
	}
}

func (a *api) contextSymbols() []symbol {
	return []symbol{
		{&a.contextNew, "llama_init_from_model"},
		{&a.contextFree, "llama_free"},
		{&a.contextPerSeq, "llama_n_ctx_seq"},
		{&a.memory, "llama_get_memory"},
		{&a.seqRemove, "llama_memory_seq_rm"},
		{&a.seqPosMax, "llama_memory_seq_pos_max"},
		{&a.stateSize, "llama_state_seq_get_size_ext"},
		{&a.stateGet, "llama_state_seq_get_data_ext"},
		{&a.stateSet, "llama_state_seq_set_data_ext"},
		{&a.decode, "llama_decode"},
		{&a.logits, "llama_get_logits_ith"},
	}
}

func (a *api) vocabSymbols() []symbol {
	return []symbol{
		{&a.vocab, "llama_model_get_vocab"},
		{&a.vocabTokens, "llama_vocab_n_tokens"},
		{&a.vocabBOS, "llama_vocab_bos"},
		{&a.vocabAddBOS, "llama_vocab_get_add_bos"},
		{&a.vocabIsEOG, "llama_vocab_is_eog"},
		{&a.tokenize, "llama_tokenize"},
		{&a.tokenToPiece, "llama_token_to_piece"},
		{&a.samplerGrammar, "llama_sampler_init_grammar"},
		{&a.samplerFree, "llama_sampler_free"},
		{&a.samplerApply, "llama_sampler_apply"},
		{&a.samplerAccept, "llama_sampler_accept"},
	}
}
