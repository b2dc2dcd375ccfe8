package gateway

import (
	"encoding/json"
	"time"

	"github.com/weir-dev/weir/schemas"
)

// usage is OpenAI's object of that name.
type usage struct {
	PromptTokens     int           `json:"prompt_tokens"`
	CompletionTokens int           `json:"completion_tokens"`
	TotalTokens      int           `json:"total_tokens"`
	PromptDetails    promptDetails `json:"prompt_tokens_details"`
}

type promptDetails struct {
	CachedTokens int `json:"cached_tokens"`
}

func usageOf(u schemas.Usage) *usage {
	return &usage{PromptTokens: u.Prompt, CompletionTokens: u.Completion, TotalTokens: u.Prompt + u.Completion, PromptDetails: promptDetails{u.Cached}}
}

// about is the "weir" object of a response: what OpenAI's shape has no place for.
type about struct {
	Session   string  `json:"session"`
	Turn      string  `json:"turn"`
	Branch    string  `json:"branch,omitempty"`
	Known     string  `json:"known"` // continues the context in a later turn, as weir.known
	PrefillOn string  `json:"prefill_on,omitempty"`
	DecodeOn  string  `json:"decode_on,omitempty"`
	Attempt   int     `json:"attempt"`
	Cached    int     `json:"cached"`
	TTFTMS    float64 `json:"ttft_ms"`
	TotalMS   float64 `json:"total_ms"`
	Seed      uint64  `json:"seed,omitempty"`
	Replay    bool    `json:"replay,omitempty"`
}

// aboutTurn measures from the request, as the client would.
func aboutTurn(r *schemas.Result, began, first time.Time) *about {
	a := &about{
		Session: r.Session, Turn: r.Turn, Branch: r.Branch, Known: r.Known(), PrefillOn: r.PrefillOn, DecodeOn: r.DecodeOn,
		Attempt: r.Attempt, Cached: r.Usage.Cached, TotalMS: ms(time.Since(began)), Seed: r.Seed, Replay: r.Replay,
	}
	if !first.IsZero() {
		a.TTFTMS = ms(first.Sub(began))
	}
	return a
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

type chatLogprobs struct {
	Content []json.RawMessage `json:"content"`
	Refusal *string           `json:"refusal"`
}

func chatLogprobsOf(lp []json.RawMessage) *chatLogprobs {
	if len(lp) == 0 {
		return nil
	}
	return &chatLogprobs{Content: lp}
}

// textLogprobs is the form of the older endpoint.
type textLogprobs struct {
	Tokens        []string             `json:"tokens"`
	TokenLogprobs []float64            `json:"token_logprobs"`
	TopLogprobs   []map[string]float64 `json:"top_logprobs"`
	TextOffset    []int                `json:"text_offset"`
}

// tokenLogprob is one object of Chat Completions.
type tokenLogprob struct {
	Token   string  `json:"token"`
	Logprob float64 `json:"logprob"`
	Top     []struct {
		Token   string  `json:"token"`
		Logprob float64 `json:"logprob"`
	} `json:"top_logprobs"`
}

// textLogprobsOf converts logprobs whose first token begins at byte offset at.
func textLogprobsOf(lp []json.RawMessage, at int) *textLogprobs {
	if len(lp) == 0 {
		return nil
	}
	out := &textLogprobs{}
	for _, raw := range lp {
		var t tokenLogprob
		if json.Unmarshal(raw, &t) != nil {
			return nil // the engine's business; the answer itself is whole
		}
		top := map[string]float64{}
		for _, o := range t.Top {
			top[o.Token] = o.Logprob
		}
		out.Tokens = append(out.Tokens, t.Token)
		out.TokenLogprobs = append(out.TokenLogprobs, t.Logprob)
		out.TopLogprobs = append(out.TopLogprobs, top)
		out.TextOffset = append(out.TextOffset, at)
		at += len(t.Token)
	}
	return out
}

type chatMessage struct {
	Role    string  `json:"role"`
	Content string  `json:"content"`
	Refusal *string `json:"refusal"`
}

type chatChoice struct {
	Index        int           `json:"index"`
	Message      chatMessage   `json:"message"`
	Logprobs     *chatLogprobs `json:"logprobs"`
	FinishReason string        `json:"finish_reason"`
}

type textChoice struct {
	Text         string        `json:"text"`
	Index        int           `json:"index"`
	Logprobs     *textLogprobs `json:"logprobs"`
	FinishReason string        `json:"finish_reason"`
}

// completion is a whole response of either endpoint.
type completion struct {
	ID          string `json:"id"`
	Object      string `json:"object"`
	Created     int64  `json:"created"`
	Model       string `json:"model"`
	Fingerprint string `json:"system_fingerprint"`
	Choices     any    `json:"choices"`
	Usage       *usage `json:"usage"`
	Weir        *about `json:"weir"`
}

func (c *call) id() string {
	if c.api == chatAPI {
		return "chatcmpl-" + c.ref.Turn
	}
	return "cmpl-" + c.ref.Turn
}

// whole is the response without streaming.
func (c *call) whole(r *schemas.Result, a *about, fingerprint string) *completion {
	out := &completion{ID: c.id(), Created: c.created, Model: c.modelOf(r), Fingerprint: fingerprint, Usage: usageOf(r.Usage), Weir: a}
	if c.api == chatAPI {
		out.Object = "chat.completion"
		out.Choices = []chatChoice{{Message: chatMessage{Role: "assistant", Content: r.Text}, Logprobs: chatLogprobsOf(r.Logprobs), FinishReason: finishOf(r)}}
		return out
	}
	out.Object = "text_completion"
	out.Choices = []textChoice{{Text: r.Text, Logprobs: textLogprobsOf(r.Logprobs, 0), FinishReason: finishOf(r)}}
	return out
}

func (c *call) modelOf(r *schemas.Result) string {
	if r.Model != "" {
		return r.Model
	}
	return c.model
}

func finishOf(r *schemas.Result) string {
	if r.Finish == "" {
		return "stop"
	}
	return r.Finish
}
