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
	// Parse says how the text becomes a message, see Ready.Parse. It is in every
	// frame, so that a reader may begin anywhere.
	Parse string `json:"p,omitempty"`
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
	// RetryNS, with CodeBusy, is when room is expected, in nanoseconds from now.
	RetryNS int64 `json:"retry_ns,omitempty"`
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
	// Spans are the stages of the turn in order, as offsets from AdmittedNS.
	Spans []StageSpan `json:"spans,omitempty"`
}

// StageSpan is the time that one stage of a turn took, in nanoseconds since
// admission. Clocks are those of the hosts that did the work.
type StageSpan struct {
	Stage string `json:"s"`            // see the constants
	On    string `json:"on,omitempty"` // executor
	From  int64  `json:"a"`
	To    int64  `json:"b"`
}

// The stages of a waterfall, in the order in which they happen. A turn without a
// prefill stage has no prefill spans, one that was handed over has several decode
// spans.
const (
	SpanRender      = "render"       // lineage: admission to READY
	SpanQueue       = "queue"        // router: READY to the first job
	SpanPrefillWait = "prefill_wait" // executor: job placed to its first engine operation
	SpanPrefill     = "prefill"      // executor: first engine operation to blocks sealed
	SpanDecodeWait  = "decode_wait"  // prefilled, or placed, to the decode job's first engine operation
	SpanRebuild     = "rebuild"      // a decode that goes on elsewhere: its first engine operation to the first new token
	SpanDecode      = "decode"       // first engine operation, or end of the rebuild, to the last token
)

// MaxSpans bounds the spans of a turn; later attempts drop the oldest ones.
const MaxSpans = 32

// Miss says why the first block of a prompt that was not found had to be
// computed. Lineage fills it as far as the text decides; an executor that misses
// a block which had been computed fills in why it is gone.
type Miss struct {
	Cause MissCause `json:"cause"`
	// Message is the index, among the turn's whole message list, of the message in
	// which the block begins, and Byte the offset in that message's content of the
	// first byte that differs from what was computed before. -1 is what stands
	// before all messages: template, tools.
	Message int `json:"message"`
	Byte    int `json:"byte"`
	// Known is the number of leading prompt tokens that were computed before in
	// this session; more than the cached ones if blocks are gone.
	Known int `json:"known"`
	// Lost: prompt tokens that had been computed and whose place in the prompt
	// changed, by the cause.
	Lost   int    `json:"lost,omitempty"`
	Detail string `json:"detail,omitempty"`
	// AtNS and Rule say when and by which rule the block was evicted.
	AtNS int64  `json:"at_ns,omitempty"`
	Rule string `json:"rule,omitempty"`
}

// MissCause is why a block was missed.
type MissCause string

// The causes.
const (
	MissFirst      MissCause = "first_turn" // the branch has no context yet
	MissNewText    MissCause = "new_text"   // what comes behind the known context
	MissSystem     MissCause = "system"     // the system message changed
	MissTools      MissCause = "tools"      // the tool definitions changed
	MissTemplate   MissCause = "template"   // template options changed
	MissModel      MissCause = "model"      // another model or adapter
	MissCompaction MissCause = "compaction" // a summary replaced the middle
	MissRewrite    MissCause = "rewrite"    // an earlier message changed
	MissPruned     MissCause = "pruned"     // media or a tool result was taken out
	MissReasoning  MissCause = "reasoning"  // the template dropped an answer's reasoning
	MissReworded   MissCause = "reworded"   // the template writes an answer otherwise than it was generated
	MissEvicted    MissCause = "evicted"    // it was computed, kept, and evicted
	MissNotKept    MissCause = "not_kept"   // it was computed, and memory had no room for it
	MissNotCached  MissCause = "not_cached" // media are not fully described, so nothing is kept
)

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

	// Text is what was generated, with the markers of reasoning and tool calls as
	// the model wrote them. Message is what it means, as Chat Completions has it:
	// role, content, reasoning_content, tool_calls. Without a parser it is absent:
	// the text is the content.
	Text    string          `json:"text"`
	Message json.RawMessage `json:"message,omitempty"`
	Parse   string          `json:"parse,omitempty"` // see Ready.Parse

	Tokens Tokens `json:"tokens"` // generated tokens, the end token included
	Finish string `json:"finish,omitempty"`
	// End is the text of the end token, when one was generated. Templates write
	// it after an answer, so lineage needs it to recognise the answer.
	End string `json:"end,omitempty"`
	// KnownAs is Known(), for readers without this package: a later turn continues
	// the context by it, as weir.known.
	KnownAs string `json:"known,omitempty"`
	Usage   Usage  `json:"usage"`
	Miss    *Miss  `json:"miss,omitempty"`
	Timing  Timing `json:"timing"`
	Replay  bool   `json:"replay,omitempty"` // force_output

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
