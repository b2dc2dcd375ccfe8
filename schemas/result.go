package schemas

import "encoding/json"

// Frame is a piece of a turn's output on out.<tenant>.<session>.<turn>. A reader
// keeps the index of the next token it expects and skips what it has. Frames of an
// attempt count up to the index at which the next attempt began: behind it they
// are dropped.
type Frame struct {
	Header
	Attempt int    `json:"a"`
	First   int    `json:"i"` // index of Tokens[0] among the generated tokens
	Tokens  Tokens `json:"t"`
	// Text is what these tokens add to the answer. It never splits a character,
	// so it may lag behind the tokens.
	Text string `json:"x,omitempty"`
	// TextAt is the byte offset of Text in the answer: a reader that resumes cuts by it.
	TextAt   int               `json:"xi,omitempty"`
	Logprobs []json.RawMessage `json:"lp,omitempty"` // OpenAI logprob objects, one per token
	// Reject refuses a publish that is no turn of its own: its turn id was used
	// with other content. It concerns only the caller whose body has that digest.
	Reject *Reject `json:"reject,omitempty"`
}

// Reject says why a publish is not a turn.
type Reject struct {
	Digest  string  `json:"digest"` // SHA-256 of the refused body, hex
	Failure Failure `json:"failure"`
}

// Check reports the first bad field.
func (f *Frame) Check() error {
	if f.Attempt < 1 || f.First < 0 {
		return bad("frame of attempt %d at index %d", f.Attempt, f.First)
	}
	return nil
}

// Checkpoint holds the tokens that were delivered so far, on
// ckpt.<tenant>.<session>.<turn>. A later attempt is forced along them.
type Checkpoint struct {
	Header
	Attempt int    `json:"attempt"`
	Tokens  Tokens `json:"tokens"`
	Seed    uint64 `json:"seed"`
}

// Check reports the first bad field.
func (c *Checkpoint) Check() error {
	if c.Attempt < 1 {
		return bad("attempt is %d, it starts at 1", c.Attempt)
	}
	return nil
}

// Status of a result.
type Status string

// The two ways a turn ends.
const (
	StatusOK     Status = "ok"
	StatusFailed Status = "failed"
)

// Codes of failures: stable, for programs.
const (
	CodeInvalid   = "invalid_request"         // the turn is wrong; trying again will not help
	CodeTooLong   = "context_length_exceeded" // prompt plus answer exceed the context
	CodeModel     = "model_not_found"
	CodeSession   = "unknown_branch" // unknown session, branch or known-prefix digest
	CodeNeedFull  = "need_full"      // publish again with all messages
	CodeConflict  = "turn_conflict"  // the turn id was used with other content
	CodeBusy      = "overloaded"     // no room; try again later
	CodeDeadline  = "deadline_exceeded"
	CodeCancelled = "cancelled"
	CodePoison    = "poison_turn" // ended two executors
	CodeEngine    = "engine_error"
	CodeInternal  = "internal_error"
)

// Failure says why a turn has no answer.
type Failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Param   string `json:"param,omitempty"` // the field that is wrong
}

// Usage counts tokens of a turn.
type Usage struct {
	Prompt     int `json:"prompt"`
	Cached     int `json:"cached"` // prompt tokens whose KV was found
	Completion int `json:"completion"`
}

// Timing of a turn in nanoseconds since it was admitted, as the executors saw it.
type Timing struct {
	AdmittedNS int64 `json:"admitted_ns"` // Unix time
	PrefillNS  int64 `json:"prefill_ns"`  // engine time spent in prefill
	DecodeNS   int64 `json:"decode_ns"`   // from the decode job's start to its end
	TTFTNS     int64 `json:"ttft_ns"`     // admission to first token computed
	// EngineTTFTNS is the engine time up to the first token, on all executors: what
	// the same engine called directly would have taken.
	EngineTTFTNS int64 `json:"engine_ttft_ns,omitempty"`
	TotalNS      int64 `json:"total_ns"` // admission to result
}

// Result is the end of a turn, on result.<tenant>.<session>.<turn>. It is
// published with an expected last sequence of 0 on its subject, so the first one
// wins and a turn has exactly one.
type Result struct {
	Header
	Tenant  string   `json:"tenant"`
	Session string   `json:"session"`
	Turn    string   `json:"turn"`
	Branch  string   `json:"branch,omitempty"`
	Job     string   `json:"job"`
	Attempt int      `json:"attempt"`
	Status  Status   `json:"status"`
	Failure *Failure `json:"failure,omitempty"`
	Model   string   `json:"model,omitempty"`

	Text   string `json:"text"`
	Tokens Tokens `json:"tokens"` // generated tokens, the end token included
	Finish string `json:"finish,omitempty"`
	// End is the text of the end token, when one was generated. Templates write
	// it after an answer, so lineage needs it to recognise the answer.
	End    string `json:"end,omitempty"`
	Usage  Usage  `json:"usage"`
	Timing Timing `json:"timing"`
	Replay bool   `json:"replay,omitempty"` // force_output

	PrefillOn string            `json:"prefill_on,omitempty"`
	DecodeOn  string            `json:"decode_on,omitempty"`
	Seed      uint64            `json:"seed,omitempty"`
	Logprobs  []json.RawMessage `json:"logprobs,omitempty"`
}

// Known is the digest by which a later turn may refer to the context up to and
// including this result: 32 hex digits of SHA-256 over job, status and tokens.
func (r *Result) Known() string { return knownDigest(r) }

// Check reports the first bad field.
func (r *Result) Check() error {
	for _, f := range [...]struct{ name, v string }{{"tenant", r.Tenant}, {"session", r.Session}, {"turn", r.Turn}} {
		if err := CheckID(f.name, f.v); err != nil {
			return err
		}
	}
	switch {
	case r.Status != StatusOK && r.Status != StatusFailed:
		return bad("status is %q", r.Status)
	case (r.Status == StatusFailed) != (r.Failure != nil):
		return bad("a failed result has a failure, an ok one has none")
	}
	return nil
}
