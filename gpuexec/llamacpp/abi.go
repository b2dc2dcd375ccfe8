package llamacpp

import (
	"fmt"
	"math"
	"reflect"
	"strings"
)

// modelParams has the layout of struct llama_model_params of llama.cpp v0.4.0 and
// v0.5.0 (80 bytes).
type modelParams struct {
	Devices, TensorBuftOverrides                                     uintptr
	NGPULayers, SplitMode, LoadMode, LazyMode, MainGPU               int32
	_                                                                int32
	TensorSplit, ProgressCallback, ProgressCallbackData, KVOverrides uintptr
	VocabOnly, CheckTensors, UseExtraBufts, NoHost, NoAlloc, LoadMTP uint8
	_                                                                [2]uint8
}

// contextParams has the layout of struct llama_context_params of llama.cpp v0.4.0
// and v0.5.0 (152 bytes). Tail is room that a library with a longer struct may
// write to without harm; such a library is refused by the check all the same,
// when the longer part moved a field or changed a default.
type contextParams struct {
	NCtx, NBatch, NUbatch, NSeqMax, NRsSeq, NOutputsMax, NOutputsMaxPerSeq     uint32
	NThreads, NThreadsBatch                                                    int32
	CtxType, RopeScalingType, PoolingType, AttentionType, FlashAttn            int32
	RopeFreqBase, RopeFreqScale, YarnExt, YarnAttn, YarnBetaFast, YarnBetaSlow float32
	YarnOrigCtx                                                                uint32
	DefragThold                                                                float32
	CbEval, CbEvalData                                                         uintptr
	TypeK, TypeV                                                               int32
	AbortCallback, AbortData                                                   uintptr
	Embeddings, OffloadKQV, NoPerf, OpOffload, SwaFull, KVUnified              uint8
	_                                                                          [2]uint8
	Samplers, NSamplers                                                        uintptr
	Tail                                                                       [4]uintptr
}

// batch has the layout of struct llama_batch (56 bytes).
type batch struct {
	NTokens int32
	_       int32
	Token   uintptr // *int32
	Embd    uintptr // *float32, unused
	Pos     uintptr // *int32
	NSeqID  uintptr // *int32
	SeqID   uintptr // **int32
	Logits  uintptr // *int8
}

// tokenData has the layout of struct llama_token_data (12 bytes).
type tokenData struct {
	ID       int32
	Logit, P float32
}

// tokenDataArray has the layout of struct llama_token_data_array (32 bytes).
type tokenDataArray struct {
	Data     uintptr // *tokenData
	Size     uintptr
	Selected int64
	Sorted   uint8
	_        [7]uint8
}

// modelDefaults and contextDefaults are what the library must answer when asked
// for its defaults. A field that moved, grew or changed its meaning shows as a
// difference, which is the only sign the C interface gives: it has no version.
func modelDefaults() modelParams {
	return modelParams{NGPULayers: -1, SplitMode: 1, LoadMode: -1, LazyMode: 1, UseExtraBufts: 1}
}

func contextDefaults() contextParams {
	return contextParams{
		NCtx: 512, NBatch: 2048, NUbatch: 512, NSeqMax: 1, NOutputsMaxPerSeq: 1,
		NThreads: 4, NThreadsBatch: 4,
		RopeScalingType: -1, PoolingType: -1, AttentionType: -1, FlashAttn: -1,
		YarnExt: -1, YarnAttn: -1, YarnBetaFast: -1, YarnBetaSlow: -1, DefragThold: -1,
		TypeK: ggmlF16, TypeV: ggmlF16,
		OffloadKQV: 1, NoPerf: 1, OpOffload: 1, SwaFull: 1,
	}
}

// checkABI compares the defaults that the library reported with those of the
// versions this binding was written for. The error names every field that
// differs, what was expected and what was found.
func checkABI(model modelParams, context contextParams) error {
	diffs := diffFields("llama_model_params", modelDefaults(), model)
	diffs = append(diffs, diffFields("llama_context_params", contextDefaults(), context)...)
	if len(diffs) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s; use llama.cpp v0.4.0 or v0.5.0 (npm package %s)",
		ErrABI, strings.Join(diffs, "; "), npmPackage())
}

// diffFields lists the fields of two structs of one type that differ. Tail and
// padding are left out: the library does not define their content.
func diffFields(name string, want, got any) []string {
	var diffs []string
	w, g := reflect.ValueOf(want), reflect.ValueOf(got)
	for i := range w.NumField() {
		f := w.Type().Field(i)
		if f.Name == "_" || f.Name == "Tail" {
			continue
		}
		a, b := fieldBits(w.Field(i)), fieldBits(g.Field(i))
		if a != b {
			diffs = append(diffs, fmt.Sprintf("%s.%s at byte %d: expected %v, found %v",
				name, f.Name, f.Offset, w.Field(i).Interface(), g.Field(i).Interface()))
		}
	}
	return diffs
}

// fieldBits gives a value's bits, so that a NaN that a moved field may show still
// compares as a difference and never as equal to a number.
func fieldBits(v reflect.Value) uint64 {
	switch v.Kind() {
	case reflect.Float32:
		return uint64(math.Float32bits(float32(v.Float())))
	case reflect.Int32:
		return uint64(v.Int())
	default:
		return v.Uint()
	}
}
