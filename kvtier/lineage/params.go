package lineage

import (
	"encoding/json"
	"fmt"
	"sort"
	"strconv"

	"github.com/weir-dev/weir/schemas"
)

func invalid(param, format string, args ...any) *schemas.Failure {
	return &schemas.Failure{Code: schemas.CodeInvalid, Param: param, Message: fmt.Sprintf(format, args...)}
}

// checkBody reports what weir or the model cannot honour, by OpenAI's name of the
// field. What can be told without rendering is told here, so that a request that
// cannot succeed costs no more than reading it.
func checkBody(m *schemas.Turn, model *Model) *schemas.Failure {
	inputs := 0
	for _, have := range [...]bool{len(m.Messages) > 0, len(m.Prompt) > 0, len(m.Weir.InputTokens) > 0} {
		if have {
			inputs++
		}
	}
	switch {
	case inputs == 0:
		return invalid("messages", "messages must not be empty")
	case inputs > 1:
		return invalid("messages", "exactly one of messages, prompt and weir.input_tokens may be given")
	case m.N != nil && *m.N != 1:
		return invalid("n", "n is %d, weir answers with one choice per turn", *m.N)
	case m.BestOf != nil && *m.BestOf != 1:
		return invalid("best_of", "best_of is %d, weir answers with one choice per turn", *m.BestOf)
	case m.Echo != nil && *m.Echo:
		return invalid("echo", "echo is not supported")
	case m.Suffix != nil && *m.Suffix != "":
		return invalid("suffix", "suffix is not supported")
	case len(m.Audio) > 0 && string(m.Audio) != "null":
		return invalid("audio", "audio output is not supported")
	case len(m.Functions) > 0 && string(m.Functions) != "null":
		return invalid("functions", "functions is deprecated and not supported, use tools")
	case len(m.Messages) > model.Context:
		// Every message renders to a token or more.
		return &schemas.Failure{
			Code: schemas.CodeTooLong, Param: "messages",
			Message: fmt.Sprintf("this model's context is %d tokens, %d messages cannot fit", model.Context, len(m.Messages)),
		}
	}
	if f := checkBias(m, model); f != nil {
		return f
	}
	if f := checkTools(m); f != nil {
		return f
	}
	if at, id := outside(m.Weir.ForceOutput, model); at >= 0 {
		return invalid("weir.force_output", "weir.force_output[%d] is %d, the model has tokens 0 to %d", at, id, model.Size-1)
	}
	if len(m.Modalities) > 0 && string(m.Modalities) != "null" {
		var mods []string
		if json.Unmarshal(m.Modalities, &mods) != nil || len(mods) != 1 || mods[0] != "text" {
			return invalid("modalities", `modalities may only be ["text"]`)
		}
	}
	if _, err := logprobs(m); err != nil {
		return invalid("logprobs", "%s", err.Error())
	}
	return nil
}

// maxBias bounds the entries of logit_bias; they cost time at every token.
const maxBias = 1024

func checkBias(m *schemas.Turn, model *Model) *schemas.Failure {
	if len(m.LogitBias) > maxBias {
		return invalid("logit_bias", "logit_bias has %d entries, at most %d", len(m.LogitBias), maxBias)
	}
	ids := make([]string, 0, len(m.LogitBias))
	for id := range m.LogitBias {
		ids = append(ids, id)
	}
	sort.Strings(ids) // the same request gets the same answer
	for _, id := range ids {
		if n, err := strconv.Atoi(id); err != nil || n < 0 || n >= model.Size {
			return invalid("logit_bias", "logit_bias names token %.20q, the model has tokens 0 to %d", id, model.Size-1)
		}
		if v := m.LogitBias[id]; v < -100 || v > 100 {
			return invalid("logit_bias", "logit_bias of token %s is %v, allowed are -100 to 100", id, v)
		}
	}
	return nil
}

// outside finds a token that the model does not have; at is -1 when there is none.
func outside(toks schemas.Tokens, model *Model) (at int, id int32) {
	for i, id := range toks {
		if id < 0 || int(id) >= model.Size {
			return i, id
		}
	}
	return -1, 0
}

// logprobs is 0 when none are wanted, else 1 plus the number of alternatives.
// Chat Completions has a bool and top_logprobs, Completions a number.
func logprobs(m *schemas.Turn) (int, error) {
	if len(m.Logprobs) == 0 || string(m.Logprobs) == "null" {
		if m.TopLogprobs != nil && *m.TopLogprobs > 0 {
			return 0, fmt.Errorf("top_logprobs needs logprobs to be true")
		}
		return 0, nil
	}
	var on bool
	if json.Unmarshal(m.Logprobs, &on) == nil {
		if !on {
			return 0, nil
		}
		n := 0
		if m.TopLogprobs != nil {
			n = int(*m.TopLogprobs)
		}
		return n + 1, nil
	}
	var n int
	if err := json.Unmarshal(m.Logprobs, &n); err != nil || n < 0 || n > 20 {
		return 0, fmt.Errorf("logprobs must be true, false, or a number from 0 to 20")
	}
	return n + 1, nil
}

// promptTokens reads a prompt that is an array of token ids.
func promptTokens(raw json.RawMessage) (schemas.Tokens, bool) {
	if len(raw) == 0 || raw[0] != '[' {
		return nil, false
	}
	var t schemas.Tokens
	if t.UnmarshalJSON(raw) != nil || len(t) == 0 {
		return nil, false
	}
	return t, true
}

// sampling reads the parameters as OpenAI names them, with OpenAI's defaults.
func sampling(m *schemas.Turn, job string, seq uint64) schemas.Sampling {
	s := schemas.Sampling{Temperature: 1, Bias: m.LogitBias}
	if m.Temperature != nil {
		s.Temperature = *m.Temperature
	}
	if m.TopP != nil {
		s.TopP = *m.TopP
		if *m.TopP == 0 {
			s.TopK = 1 // no mass is left but the best token's
		}
	}
	if m.TopK != nil && *m.TopK > 0 {
		s.TopK = int(*m.TopK)
	}
	for _, f := range [...]struct {
		to   *float64
		from *float64
	}{
		{&s.MinP, m.MinP},
		{&s.FrequencyPenalty, m.FrequencyPenalty},
		{&s.PresencePenalty, m.PresencePenalty},
		{&s.RepetitionPenalty, m.RepetitionPenalty},
	} {
		if f.from != nil {
			*f.to = *f.from
		}
	}
	if m.Seed != nil {
		s.Seed = uint64(*m.Seed)
	} else {
		s.Seed = drawSeed(job, seq)
	}
	// Refused before, where it is malformed.
	s.Logprobs, _ = logprobs(m)
	return s
}
