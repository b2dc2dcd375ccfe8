package lineage

import (
	"encoding/json"
	"fmt"

	"github.com/weir-dev/weir/schemas"
)

// checkBody reports what weir cannot honour, by OpenAI's name of the field.
func checkBody(m *schemas.Turn) *schemas.Failure {
	invalid := func(param, format string, args ...any) *schemas.Failure {
		return &schemas.Failure{Code: schemas.CodeInvalid, Param: param, Message: fmt.Sprintf(format, args...)}
	}
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
	case len(m.LogitBias) > 1024:
		return invalid("logit_bias", "logit_bias has %d entries, at most 1024", len(m.LogitBias))
	}
	for id, v := range m.LogitBias {
		if v < -100 || v > 100 {
			return invalid("logit_bias", "logit_bias of token %s is %v, allowed are -100 to 100", id, v)
		}
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
		{&s.MinP, m.MinP}, {&s.FrequencyPenalty, m.FrequencyPenalty}, {&s.PresencePenalty, m.PresencePenalty},
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
