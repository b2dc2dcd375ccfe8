package schemas

// Job is a stage of a turn placed on one executor, on
// prefill.<cell>.<executor>.<job> or decode.<cell>.<executor>.<job>.
// MsgID is job:stage:attempt.
type Job struct {
	Header
	Stage   Stage `json:"stage"`
	Attempt int   `json:"attempt"` // from 1; only grows
	// DecodeOn: the router already holds a decode credit there; the prefill
	// executor publishes the decode job itself, which saves a hop.
	DecodeOn string `json:"decode_on,omitempty"`
	// Alone: run with nothing else in the engine, because an executor died
	// while it held this turn.
	Alone bool `json:"alone,omitempty"`
	// Local: compute what is missing here, however much it is, because the tier
	// had no room for what a prefill executor computed.
	Local  bool   `json:"local,omitempty"`
	Ready  *Ready `json:"ready"`
	Router uint64 `json:"router"` // epoch of the router's lease
	// PrefillOn is the executor that did the prefill; for the result.
	PrefillOn string `json:"prefill_on,omitempty"`
	// Cached is the number of prompt tokens that the prefill stage found.
	Cached int `json:"cached,omitempty"`
	// BusyNS is the engine time of the prefill stage in nanoseconds.
	BusyNS int64 `json:"busy_ns,omitempty"`
	// FirstNS is when an executor that had the turn before computed its first token,
	// Unix time; 0 when none did, or it died.
	FirstNS int64 `json:"first_ns,omitempty"`
	// PlacedNS is when the router placed the job, Unix time.
	PlacedNS int64 `json:"placed_ns,omitempty"`
	// Spans are the stages that are over, Miss what the prefill stage found.
	Spans []StageSpan `json:"spans,omitempty"`
	Miss  *Miss       `json:"miss,omitempty"`
	// Sources are the parts of the prompt that the executor's node lacks, as far as
	// the router knows, and other nodes hold: at most MaxSources, from the root on.
	// They are hints. What does not come in time is computed.
	Sources []Source `json:"sources,omitempty"`
}

// MaxSources bounds the places that one job names.
const MaxSources = 16

// Check reports the first bad field.
func (j *Job) Check() error {
	if j.Stage != StagePrefill && j.Stage != StageDecode {
		return bad("stage is %q, a job is prefill or decode", j.Stage)
	}
	if j.Attempt < 1 {
		return bad("attempt is %d, it starts at 1", j.Attempt)
	}
	if len(j.Sources) > MaxSources {
		return bad("%d sources, at most %d", len(j.Sources), MaxSources)
	}
	if j.Ready == nil {
		return bad("a job without its turn")
	}
	return j.Ready.Check()
}

// Outcome says how a stage ended.
type Outcome string

// The outcomes.
const (
	OutcomePrefilled Outcome = "prefilled" // blocks are sealed, decode may start
	OutcomeDecoded   Outcome = "decoded"   // the result is published
	OutcomeReturned  Outcome = "returned"  // not finished here, place it again
	OutcomeFailed    Outcome = "failed"    // the turn cannot be done
)

// Done says that a stage of a turn ended on an executor, on done.<cell>.<job>.
type Done struct {
	Header
	Job      string  `json:"job"`
	Attempt  int     `json:"attempt"`
	Stage    Stage   `json:"stage"`
	Executor string  `json:"executor"`
	Outcome  Outcome `json:"outcome"`
	// Tokens: prompt tokens found in the tier, and tokens computed.
	Cached   int `json:"cached,omitempty"`
	Computed int `json:"computed,omitempty"`
	// PassedTo is the executor that got the decode job from here.
	PassedTo string `json:"passed_to,omitempty"`
	// BusyNS is the engine time of the stage in nanoseconds.
	BusyNS int64 `json:"busy_ns,omitempty"`
	// Spans are the stages that are over, Miss what a prefill stage found.
	Spans []StageSpan `json:"spans,omitempty"`
	Miss  *Miss       `json:"miss,omitempty"`
	// FirstNS is when the turn's first token was computed, Unix time; 0 if none was.
	FirstNS int64  `json:"first_ns,omitempty"`
	Code    string `json:"code,omitempty"` // of a failure: see Failure
	Reason  string `json:"reason,omitempty"`
}

// Check reports the first bad field.
func (d *Done) Check() error {
	if err := CheckID("job", d.Job); err != nil {
		return err
	}
	switch d.Outcome {
	case OutcomePrefilled, OutcomeDecoded, OutcomeReturned, OutcomeFailed:
	default:
		return bad("outcome is %q", d.Outcome)
	}
	if d.Attempt < 1 {
		return bad("attempt is %d, it starts at 1", d.Attempt)
	}
	return nil
}

// Cancel tells an executor to stop a job, on cancel.<cell>.<executor>. It is
// repeated until the job is gone from the executor's heartbeats.
type Cancel struct {
	Header
	Job     string `json:"job"`
	Attempt int    `json:"attempt"` // this attempt and older ones
	Reason  string `json:"reason,omitempty"`
}

// Check reports the first bad field.
func (c *Cancel) Check() error { return CheckID("job", c.Job) }

// TokensRequest asks lineage for tokens From..To-1 of a prompt, on tokens.<cell>.
type TokensRequest struct {
	Header
	Tenant  string `json:"tenant"`
	Session string `json:"session"`
	Turn    string `json:"turn"`
	From    int    `json:"from"`
	To      int    `json:"to"`
}

// Check reports the first bad field.
func (r *TokensRequest) Check() error {
	if r.From < 0 || r.To <= r.From || r.To > MaxTokens {
		return bad("token range %d..%d is empty or out of bounds", r.From, r.To)
	}
	return CheckID("session", r.Session)
}

// TokensReply answers a TokensRequest. Error says why there are none.
type TokensReply struct {
	Header
	From   int    `json:"from"`
	Tokens Tokens `json:"tokens,omitempty"`
	Error  string `json:"error,omitempty"`
}

// Check accepts every reply.
func (r *TokensReply) Check() error { return nil }
