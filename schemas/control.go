package schemas

import "encoding/json"

// Dead is a message that could not be processed, on dead.<stage>.<tenant>.
type Dead struct {
	Header
	Stage   Stage  `json:"stage"`
	Tenant  string `json:"tenant"`
	Session string `json:"session,omitempty"`
	Turn    string `json:"turn,omitempty"`
	Subject string `json:"subject"`       // where the message came from
	Seq     uint64 `json:"seq,omitempty"` // its stream sequence
	Code    string `json:"code"`
	Reason  string `json:"reason"`
	AtNS    int64  `json:"at_ns"`
	// Body is the message, cut to MaxDeadBody bytes.
	Body []byte `json:"body,omitempty"`
}

// MaxDeadBody bounds the copy of a message in a dead letter, in bytes.
const MaxDeadBody = 64 << 10

// Check reports the first bad field.
func (d *Dead) Check() error {
	if d.Reason == "" {
		return bad("a dead letter without a reason")
	}
	return CheckID("tenant", d.Tenant)
}

// Lease says which instance of a service is active in a cell, on
// lease.<cell>.<service>. It ends when it is not renewed within its TTL; its
// stream sequence is the epoch.
type Lease struct {
	Header
	Holder string `json:"holder"`
	AtNS   int64  `json:"at_ns"`
}

// Check reports the first bad field.
func (l *Lease) Check() error { return CheckID("holder", l.Holder) }

// Snap is an actor's snapshot, on snap.<actor>.<shard>. State is the compressed
// state, or Parts says where its pieces are. A piece is a Snap too, with State.
type Snap struct {
	Header
	// Seqs is the last input sequence that the state contains, by stream.
	Seqs  map[string]uint64 `json:"seqs"`
	AtNS  int64             `json:"at_ns"`
	State []byte            `json:"state,omitempty"`
	Parts *SnapParts        `json:"parts,omitempty"`
}

// SnapParts names the pieces of a compressed state that is too large for one
// message: they are on snap.<actor>.<shard>-<set>-<0 to n-1>. Two sets take turns,
// so the last whole snapshot stays until the next one is complete.
type SnapParts struct {
	Set    string `json:"set"` // a or b
	N      int    `json:"n"`
	Bytes  int64  `json:"bytes"`  // of all pieces together
	Digest string `json:"digest"` // SHA-256 of all pieces together
}

// MaxSnapParts bounds the pieces of one snapshot.
const MaxSnapParts = 4096

// Check reports the first bad field.
func (s *Snap) Check() error {
	switch p := s.Parts; {
	case (p == nil) == (len(s.State) == 0):
		return bad("a snapshot has either state or parts")
	case p != nil && (p.Set != "a" && p.Set != "b" || p.N < 1 || p.N > MaxSnapParts || p.Bytes < int64(p.N)):
		return bad("parts are set %q, %d of %d bytes; allowed are sets a and b, 1 to %d parts with a byte each", p.Set, p.N, p.Bytes, MaxSnapParts)
	}
	return nil
}

// RenderRequest asks the tokenizer service (weir.tokenize.<model>) to render
// messages through the chat template, to tokenize text, or both.
type RenderRequest struct {
	Header
	Messages []json.RawMessage `json:"messages,omitempty"`
	Tools    []json.RawMessage `json:"tools,omitempty"`
	Kwargs   json.RawMessage   `json:"kwargs,omitempty"` // chat_template_kwargs
	NowNS    int64             `json:"now_ns,omitempty"` // time that a template may ask for
	// Text is tokenized when there are no messages.
	Text string `json:"text,omitempty"`
	// ResponseFormat and Grammar constrain sampling; the reply holds the grammar.
	ResponseFormat json.RawMessage `json:"response_format,omitempty"`
	Grammar        string          `json:"grammar,omitempty"`
	// Known are texts of prefixes that already have tokens, as (bytes, digest):
	// the longest one that the rendered text starts with is left out of Tokens.
	Known []KnownText `json:"known,omitempty"`
	// Continue: the text continues other text, so no BOS is put before it.
	Continue bool `json:"continue,omitempty"`

	ToolChoice json.RawMessage `json:"tool_choice,omitempty"`
	Parallel   *bool           `json:"parallel_tool_calls,omitempty"`
	// Answer is an answer that comes back and that no known text covers yet.
	Answer *AnswerText `json:"answer,omitempty"`
}

// AnswerText is an answer that was produced here and that the request repeats as a
// message. The template may write it otherwise than it was generated: with other
// white space, with other JSON, without reasoning. If the rendered prompt still
// holds the whole answer, its tokens stand for what the template writes.
type AnswerText struct {
	At    int `json:"at"`    // index in Messages
	Known int `json:"known"` // index into Known, plus 1: the prompt that it answered
	// Text is what was generated; End the text of the end token, if there was one.
	Text string `json:"text"`
	End  string `json:"end,omitempty"`
}

// KnownText names a text prefix by length and SHA-256.
type KnownText struct {
	Bytes  int    `json:"n"`
	Digest string `json:"d"`
}

// Check accepts every request; limits are the service's.
func (r *RenderRequest) Check() error { return nil }

// RenderReply is the rendered text and the tokens of its part after Matched.
type RenderReply struct {
	Header
	Text    string `json:"text,omitempty"`
	Matched int    `json:"matched,omitempty"` // index into Known, plus 1; 0 for none
	Tokens  Tokens `json:"tokens,omitempty"`
	Grammar string `json:"grammar,omitempty"` // GBNF, checked
	// Answered is set when the request's Answer was found: Text up to that byte is
	// the prompt and the answer, and Tokens begin there. Matched is then Answer.Known.
	// Text up to there ends with Answer.End, unless the template ends answers by
	// another token: then the answer's tokens count without the end token.
	Answered int `json:"answered,omitempty"`
	// Rewrite says how the template's text of the answer differs from what was
	// generated; empty when it does not, or there is no Answer.
	Rewrite RewriteCause `json:"rewrite,omitempty"`
	// Media stand in Tokens; their offsets count from Tokens[0].
	Media []MediaSpan `json:"media,omitempty"`
	// Uncached: media are not fully described, see Prompt.Uncached.
	Uncached bool `json:"uncached,omitempty"`
	// Parse names the parser of the answer, see Ready.Parse.
	Parse   string   `json:"parse,omitempty"`
	Failure *Failure `json:"failure,omitempty"`
}

// Check accepts every reply.
func (r *RenderReply) Check() error { return nil }

// RewriteCause is how a template changes an answer that it is given back.
type RewriteCause string

// The causes, worst first: where several apply, the first one counts.
const (
	RewriteReasoning RewriteCause = "reasoning"   // it drops the reasoning
	RewriteText      RewriteCause = "text"        // it changes words
	RewriteCalls     RewriteCause = "tool_calls"  // it writes tool calls otherwise
	RewriteSpace     RewriteCause = "white_space" // it trims or adds white space
)

// SessionRequest asks lineage about a session, or to forget it, on session.<cell>.
type SessionRequest struct {
	Header
	Tenant  string `json:"tenant"`
	Session string `json:"session"`
	// Turn limits the answer to what concerns one turn.
	Turn string `json:"turn,omitempty"`
	// Forget removes the session from memory and from the next snapshot. It is
	// refused while turns are in work.
	Forget bool `json:"forget,omitempty"`
}

// Check reports the first bad field.
func (r *SessionRequest) Check() error {
	if err := CheckID("tenant", r.Tenant); err != nil {
		return err
	}
	if r.Turn != "" {
		if err := CheckID("turn", r.Turn); err != nil {
			return err
		}
	}
	return CheckID("session", r.Session)
}

// SessionReply is what lineage knows of a session.
type SessionReply struct {
	Header
	Found   bool `json:"found"`
	Pending int  `json:"pending,omitempty"` // turns without a result
	// Branches are sorted by name; at most MaxSessionBranches, Left are left out.
	Branches []BranchInfo `json:"branches,omitempty"`
	Left     int          `json:"left,omitempty"`
	// Events counts what was said and inferred, by kind: tool_wait, user_wait,
	// fork, sub_agent, retry, compaction, rewrite, pruned, …; an inferred one is
	// counted as "inferred.<kind>" too.
	Events map[string]int `json:"events,omitempty"`
	// Keys, with Forget, name blocks of the session's branches that no other session
	// shares: of each context the first one, the last one, and some between, by which
	// every tier node finds all of them that it has.
	Keys []string `json:"keys,omitempty"`
	// Refs, with Forget, are payload objects that only this session named.
	Refs  []string `json:"refs,omitempty"`
	Error string   `json:"error,omitempty"`
}

// MaxSessionBranches bounds the branches in a SessionReply.
const MaxSessionBranches = 1024

// Check accepts every reply.
func (r *SessionReply) Check() error { return nil }

// BranchInfo is one branch of a session.
type BranchInfo struct {
	ID        string      `json:"id"`
	Parent    string      `json:"parent,omitempty"`
	State     BranchState `json:"state"`
	Why       string      `json:"why,omitempty"` // what the state follows from
	Inferred  bool        `json:"inferred,omitempty"`
	Tool      string      `json:"tool,omitempty"`
	ResumeNS  int64       `json:"resume_ns,omitempty"`
	Turns     int         `json:"turns"`
	Messages  int         `json:"messages"`
	Tokens    int         `json:"tokens"`
	Tail      string      `json:"tail,omitempty"` // turn whose answer it ends with
	ToolWaits int         `json:"tool_waits,omitempty"`
	AtNS      int64       `json:"at_ns,omitempty"` // of the last change
}
