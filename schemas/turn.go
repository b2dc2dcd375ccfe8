package schemas

import (
	"encoding/json"
	"math"
)

// EventKind is the last token of an agent subject.
type EventKind string

// What agents say. A turn asks for tokens; the others describe the branch.
const (
	EventTurn          EventKind = "turn"
	EventCancel        EventKind = "cancel"
	EventToolWait      EventKind = "tool_wait"
	EventUserWait      EventKind = "user_wait"
	EventBranchFork    EventKind = "branch_fork"
	EventBranchEnd     EventKind = "branch_end"
	EventCompacted     EventKind = "compacted"
	EventPrefixRewrite EventKind = "prefix_rewrite"
	EventSessionEnd    EventKind = "session_end"
)

// knownEvents are the kinds besides turn, for an error's text.
const knownEvents = "cancel, tool_wait, user_wait, branch_fork, branch_end, compacted, prefix_rewrite, session_end"

// known: the kind is one of the constants above, and not turn.
func (k EventKind) known() bool {
	switch k {
	case EventCancel, EventToolWait, EventUserWait, EventBranchFork, EventBranchEnd, EventCompacted, EventPrefixRewrite, EventSessionEnd:
		return true
	default:
		return false
	}
}

// TurnMeta is the "weir" object of a turn: what a Chat Completions body has no
// place for. All fields are optional.
type TurnMeta struct {
	V int `json:"v,omitempty"`
	// Turn is the caller's id for this turn. (tenant, session, turn) published
	// twice is one turn. Without it the turn is named after its stream sequence.
	Turn string `json:"turn,omitempty"`
	// Branch is the line of context that the turn extends, "main" by default.
	Branch string `json:"branch,omitempty"`
	// Parent is the branch that a new branch forks from.
	Parent string `json:"parent,omitempty"`
	// Known is the digest that an earlier result returned as "known": the body's
	// messages continue that prefix instead of repeating it.
	Known string `json:"known,omitempty"`
	// DeadlineNS is the Unix time in nanoseconds after which the turn fails
	// instead of being tried further; 0 means the service's default.
	DeadlineNS int64 `json:"deadline_ns,omitempty"`
	// IgnoreEOS goes on after an end token, up to the token limit.
	IgnoreEOS bool `json:"ignore_eos,omitempty"`
	// ForceOutput is emitted instead of sampled tokens; its KV is really
	// computed. The result is marked as a replay.
	ForceOutput Tokens `json:"force_output,omitempty"`
	// InputTokens is the whole prompt as tokens: no template, no tokenizer.
	InputTokens Tokens `json:"input_tokens,omitempty"`
	// Digest is the content digest of the published body. Callers leave it out;
	// it is set where a large body was moved to the payload bucket.
	Digest string `json:"digest,omitempty"`
	// Hint is what the caller knows of this turn and a Chat Completions body has
	// no place for; see the constants.
	Hint TurnHint `json:"hint,omitempty"`
	// Priority orders turns that wait: a turn of priority p passes those that came up to
	// p seconds before it. -3600 to 3600, 0 by default.
	Priority int `json:"priority,omitempty"`
	// Inferred: the session was chosen by the gateway from the content, so turns
	// of unrelated agents may share it, and old branches may be forgotten.
	Inferred bool `json:"inferred,omitempty"`
}

// MaxPriority bounds TurnMeta.Priority, in seconds.
const MaxPriority = 3600

// TurnHint says what a turn is for.
type TurnHint string

// The hints.
const (
	// HintCompaction: the answer is a summary that will replace the branch's
	// context. Codex sends it as x-codex-turn-metadata.
	HintCompaction TurnHint = "compaction"
)

// Turn is published on agent.<tenant>.<session>.turn: a Chat Completions (or,
// with Prompt, a Completions) body plus the "weir" object.
type Turn struct {
	Weir TurnMeta `json:"weir,omitzero"`
	// BodyRef names the compressed body in the payload bucket; the body's own
	// fields are then empty here.
	BodyRef *PayloadRef `json:"body_ref,omitempty"`
	Body
}

// PayloadRef names an object of the PAYLOAD bucket.
type PayloadRef struct {
	Digest string `json:"digest"` // SHA-256 of the uncompressed bytes, hex
	Bytes  int64  `json:"bytes"`  // uncompressed size
}

// MaxBody bounds an uncompressed turn body in bytes.
const MaxBody = 16 << 20

// Body is an OpenAI request body. Fields that weir cannot honour are listed so
// that they can be refused, or passed by, by name.
type Body struct {
	Model    string            `json:"model,omitempty"`
	Messages []json.RawMessage `json:"messages,omitempty"`
	Prompt   json.RawMessage   `json:"prompt,omitempty"` // string, or array of token ids

	MaxTokens           *int64   `json:"max_tokens,omitempty"`
	MaxCompletionTokens *int64   `json:"max_completion_tokens,omitempty"`
	Temperature         *float64 `json:"temperature,omitempty"`
	TopP                *float64 `json:"top_p,omitempty"`
	TopK                *int64   `json:"top_k,omitempty"`
	MinP                *float64 `json:"min_p,omitempty"`
	FrequencyPenalty    *float64 `json:"frequency_penalty,omitempty"`
	PresencePenalty     *float64 `json:"presence_penalty,omitempty"`
	RepetitionPenalty   *float64 `json:"repetition_penalty,omitempty"`
	Seed                *int64   `json:"seed,omitempty"`
	Stop                StopList `json:"stop,omitempty"`
	IgnoreEOS           *bool    `json:"ignore_eos,omitempty"`

	LogitBias      map[string]float64 `json:"logit_bias,omitempty"`
	Logprobs       json.RawMessage    `json:"logprobs,omitempty"` // bool, or a count in Completions
	TopLogprobs    *int64             `json:"top_logprobs,omitempty"`
	N              *int64             `json:"n,omitempty"`
	BestOf         *int64             `json:"best_of,omitempty"`
	Echo           *bool              `json:"echo,omitempty"`
	Suffix         *string            `json:"suffix,omitempty"`
	Stream         *bool              `json:"stream,omitempty"`
	StreamOptions  *StreamOptions     `json:"stream_options,omitempty"`
	ResponseFormat json.RawMessage    `json:"response_format,omitempty"`
	Grammar        string             `json:"grammar,omitempty"` // GBNF

	Tools              []json.RawMessage `json:"tools,omitempty"`
	ToolChoice         json.RawMessage   `json:"tool_choice,omitempty"`
	ParallelToolCalls  *bool             `json:"parallel_tool_calls,omitempty"`
	Functions          json.RawMessage   `json:"functions,omitempty"`
	FunctionCall       json.RawMessage   `json:"function_call,omitempty"`
	ChatTemplateKwargs json.RawMessage   `json:"chat_template_kwargs,omitempty"`
	NVExt              json.RawMessage   `json:"nvext,omitempty"` // Dynamo's extension; weir reads agent_hints

	Modalities           json.RawMessage `json:"modalities,omitempty"`
	Audio                json.RawMessage `json:"audio,omitempty"`
	Prediction           json.RawMessage `json:"prediction,omitempty"`
	WebSearchOptions     json.RawMessage `json:"web_search_options,omitempty"`
	ReasoningEffort      json.RawMessage `json:"reasoning_effort,omitempty"`
	Verbosity            json.RawMessage `json:"verbosity,omitempty"`
	Metadata             json.RawMessage `json:"metadata,omitempty"`
	Store                json.RawMessage `json:"store,omitempty"`
	ServiceTier          json.RawMessage `json:"service_tier,omitempty"`
	User                 json.RawMessage `json:"user,omitempty"`
	SafetyIdentifier     json.RawMessage `json:"safety_identifier,omitempty"`
	PromptCacheKey       json.RawMessage `json:"prompt_cache_key,omitempty"`
	PromptCacheRetention json.RawMessage `json:"prompt_cache_retention,omitempty"`
}

// StreamOptions is OpenAI's object of that name.
type StreamOptions struct {
	IncludeUsage       bool `json:"include_usage,omitempty"`
	IncludeObfuscation bool `json:"include_obfuscation,omitempty"`
}

// StopList is OpenAI's "stop": one string or up to MaxStops of them.
type StopList []string

// MaxStops and MaxStopLen bound the stop strings of a turn; OpenAI allows 4.
const (
	MaxStops   = 16
	MaxStopLen = 256
)

// UnmarshalJSON reads a string, an array of strings, or null.
func (s *StopList) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*s = nil
		if string(b) != "null" {
			*s = StopList{one}
		}
		return nil
	}
	var many []string
	if err := json.Unmarshal(b, &many); err != nil {
		return bad("stop must be a string or an array of strings")
	}
	*s = many
	return nil
}

func (t *Turn) version() int {
	if t.Weir.V == 0 {
		return Version
	}
	return t.Weir.V
}

// Check reports ids and numbers that are out of range. Whether the model can do
// what the body asks is for lineage to say.
func (t *Turn) Check() error {
	w := &t.Weir
	for _, f := range [...]struct{ name, v string }{{"weir.turn", w.Turn}, {"weir.branch", w.Branch}, {"weir.parent", w.Parent}} {
		if f.v == "" {
			continue
		}
		if err := CheckID(f.name, f.v); err != nil {
			return err
		}
	}
	if len(w.Known) > 64 || len(w.Digest) > 64 {
		return bad("weir.known and weir.digest are at most 64 hex digits")
	}
	if w.Hint != "" && w.Hint != HintCompaction {
		return bad("weir.hint is %q, known is %s", w.Hint, HintCompaction)
	}
	if w.Priority < -MaxPriority || w.Priority > MaxPriority {
		return bad("weir.priority is %d, allowed are %d to %d", w.Priority, -MaxPriority, MaxPriority)
	}
	if w.DeadlineNS < 0 {
		return bad("weir.deadline_ns is %d, it must be a Unix time in nanoseconds", w.DeadlineNS)
	}
	if r := t.BodyRef; r != nil {
		if len(r.Digest) != 64 || r.Bytes <= 0 || r.Bytes > MaxBody {
			return bad("body_ref must have a digest of 64 hex digits and 1 to %d bytes", MaxBody)
		}
	}
	if len(t.Stop) > MaxStops {
		return bad("stop has %d strings, at most %d", len(t.Stop), MaxStops)
	}
	for i, s := range t.Stop {
		if len(s) == 0 || len(s) > MaxStopLen {
			return bad("stop[%d] has %d bytes, allowed are 1 to %d", i, len(s), MaxStopLen)
		}
	}
	return t.checkNumbers()
}

func (t *Turn) checkNumbers() error {
	for _, f := range [...]struct {
		name   string
		v      *float64
		lo, hi float64
	}{
		{"temperature", t.Temperature, 0, 2},
		{"top_p", t.TopP, 0, 1},
		{"min_p", t.MinP, 0, 1},
		{"frequency_penalty", t.FrequencyPenalty, -2, 2},
		{"presence_penalty", t.PresencePenalty, -2, 2},
		{"repetition_penalty", t.RepetitionPenalty, 0.01, 10},
	} {
		if f.v != nil && (math.IsNaN(*f.v) || *f.v < f.lo || *f.v > f.hi) {
			return bad("%s is %v, allowed are %v to %v", f.name, *f.v, f.lo, f.hi)
		}
	}
	for _, f := range [...]struct {
		name   string
		v      *int64
		lo, hi int64
	}{
		{"max_tokens", t.MaxTokens, 1, MaxTokens},
		{"max_completion_tokens", t.MaxCompletionTokens, 1, MaxTokens},
		{"top_k", t.TopK, -1, 1 << 20},
		{"n", t.N, 1, 128},
		{"top_logprobs", t.TopLogprobs, 0, 20},
		{"best_of", t.BestOf, 1, 20},
	} {
		if f.v != nil && (*f.v < f.lo || *f.v > f.hi) {
			return bad("%s is %d, allowed are %d to %d", f.name, *f.v, f.lo, f.hi)
		}
	}
	return nil
}

// Event is everything else that an agent says, published on
// agent.<tenant>.<session>.<kind>.
type Event struct {
	Header
	Branch string `json:"branch,omitempty"` // "main" when empty
	Turn   string `json:"turn,omitempty"`   // cancel: the turn to stop
	Parent string `json:"parent,omitempty"` // branch_fork: where it forks from
	Tool   string `json:"tool,omitempty"`   // tool_wait: what is waited for
	// ExpectedNS is the expected wait in nanoseconds; 0 when unknown.
	ExpectedNS int64  `json:"expected_ns,omitempty"`
	Reason     string `json:"reason,omitempty"`
}

// Check reports the first bad field.
func (e *Event) Check() error {
	for _, f := range [...]struct{ name, v string }{{"branch", e.Branch}, {"turn", e.Turn}, {"parent", e.Parent}} {
		if f.v != "" {
			if err := CheckID(f.name, f.v); err != nil {
				return err
			}
		}
	}
	if e.ExpectedNS < 0 {
		return bad("expected_ns is %d, it must not be negative", e.ExpectedNS)
	}
	if len(e.Tool) > 256 || len(e.Reason) > 1024 {
		return bad("tool has at most 256 bytes, reason at most 1024")
	}
	return nil
}
