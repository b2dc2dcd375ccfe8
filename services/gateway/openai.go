package gateway

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
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
	// Timing is the header Server-Timing, which few clients show for a stream.
	Timing string `json:"server_timing"`
}

// aboutTurn measures from the request, as the client would.
func aboutTurn(r *schemas.Result, began, first time.Time) *about {
	a := &about{
		Session: r.Session, Turn: r.Turn, Branch: r.Branch, Known: r.Known(), PrefillOn: r.PrefillOn, DecodeOn: r.DecodeOn,
		Attempt: r.Attempt, Cached: r.Usage.Cached, TotalMS: ms(time.Since(began)), Seed: r.Seed, Replay: r.Replay, Timing: serverTiming(r),
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

type chatChoice struct {
	Index        int           `json:"index"`
	Message      message       `json:"message"`
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

func idOf(c *call, text bool) string {
	if text {
		return "cmpl-" + c.ref.Turn
	}
	return "chatcmpl-" + c.ref.Turn
}

// openai is the dialect of Chat Completions and, with text, of Completions.
type openai struct{ text bool }

// openaiAsk is what a request wants to see of the answer.
type openaiAsk struct {
	usage bool // stream_options.include_usage
}

func (o openai) String() string {
	if o.text {
		return "completions"
	}
	return "chat.completions"
}

func (o openai) newSpeaker(c *call, w *sse) speaker { return newChunks(c, w, o.text) }

func (o openai) failure(_ *call, e *apiError) []byte { return e.body() }

// openaiBody is a turn and what is taken and means nothing here: where a prefix
// may be cached is found by content.
type openaiBody struct {
	schemas.Turn
	PromptCacheOptions json.RawMessage `json:"prompt_cache_options"`
	CacheControl       json.RawMessage `json:"cache_control"`
}

// parse makes a turn of a body.
func (o openai) parse(_ *Gateway, _ *http.Request, body []byte) (*call, *apiError) {
	var in openaiBody
	if err := turns.DecodeRequest(body, &in); err != nil {
		return nil, ofError(err)
	}
	t := &in.Turn
	if err := turns.CheckTurn(t); err != nil {
		return nil, ofError(err)
	}
	c := &call{turn: t, raw: o.text}
	c.stream = t.Stream != nil && *t.Stream
	if t.StreamOptions != nil {
		if !c.stream {
			return nil, invalid("stream_options", "stream_options is only allowed when stream is true")
		}
		c.more = openaiAsk{usage: t.StreamOptions.IncludeUsage}
	}
	if o.text {
		return c, checkText(t)
	}
	return c, checkChat(t)
}

// whole is the response without streaming.
func (o openai) whole(c *call, r *reply) any {
	out := &completion{ID: idOf(c, o.text), Created: c.created, Model: c.modelOf(r.Result), Fingerprint: c.fingerprint, Usage: usageOf(r.Usage), Weir: r.About}
	if o.text {
		out.Object = "text_completion"
		out.Choices = []textChoice{{Text: r.Text, Logprobs: textLogprobsOf(r.Logprobs, 0), FinishReason: r.Finish}}
		return out
	}
	out.Object = "chat.completion"
	out.Choices = []chatChoice{{Message: r.Message, Logprobs: chatLogprobsOf(r.Logprobs), FinishReason: r.Finish}}
	return out
}

// checkChat refuses what belongs to Completions, and requests without input.
func checkChat(t *schemas.Turn) *apiError {
	switch {
	case given(t.Prompt):
		return unknown("prompt")
	case t.BestOf != nil:
		return unknown("best_of")
	case given(t.WebSearchOptions):
		return invalid("web_search_options", "web search is not available here")
	case len(t.Messages) == 0 && len(t.Weir.InputTokens) == 0:
		return invalid("messages", "messages must not be empty")
	}
	t.Prompt = nil
	return nil
}

// checkText refuses what belongs to Chat Completions, and requests without input.
func checkText(t *schemas.Turn) *apiError {
	switch {
	case t.Messages != nil:
		return unknown("messages")
	case t.Tools != nil:
		return unknown("tools")
	case given(t.ToolChoice):
		return unknown("tool_choice")
	case !given(t.Prompt) && len(t.Weir.InputTokens) == 0:
		return invalid("prompt", "you must provide a prompt")
	}
	return onePrompt(t)
}

// onePrompt takes an array of one string, or of one array of ids, as that prompt.
func onePrompt(t *schemas.Turn) *apiError {
	if len(t.Prompt) == 0 || t.Prompt[0] != '[' {
		return nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal(t.Prompt, &list); err != nil || len(list) == 0 {
		return invalid("prompt", "prompt must not be an empty array")
	}
	if c := list[0][0]; c != '"' && c != '[' {
		var ids schemas.Tokens
		if err := json.Unmarshal(t.Prompt, &ids); err != nil {
			return invalid("prompt", "prompt must be a string or an array of token ids")
		}
		return nil
	}
	if len(list) > 1 {
		return invalid("prompt", "prompt has %d prompts, weir answers one per request", len(list))
	}
	t.Prompt = list[0]
	return nil
}
