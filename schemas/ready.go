package schemas

import "strconv"

// Stage is a part of a turn's work; it is also the root of job subjects and the
// first token after dead.
type Stage string

// The stages.
const (
	StageAgent   Stage = "agent"
	StageReady   Stage = "ready"
	StagePrefill Stage = "prefill"
	StageDecode  Stage = "decode"
)

// Extent is a run of blocks along one edge of the prefix tree: blocks
// From..From+N-1 of every prompt that has this prefix. Key is the chain key of
// its last block in hex, so it names the whole prefix.
type Extent struct {
	Key  string `json:"k"`
	From int    `json:"f"`
	N    int    `json:"n"`
}

// Prompt is a rendered prompt. It never carries all tokens of a long context:
// those before TailFrom are known to lineage and can be asked for on
// tokens.<cell>.
type Prompt struct {
	N        int      `json:"n"`              // tokens in all
	TailFrom int      `json:"from,omitempty"` // index of the first token in Tail, a multiple of the block size
	Tail     Tokens   `json:"tail"`           // tokens TailFrom..N-1, never empty
	Path     []Extent `json:"path,omitempty"` // the known prefix, from the root on, cut at stops (CutAtStops)
	// Rest names the whole blocks behind Path, cut likewise: nobody is known to have
	// computed them for this session, but another one may have begun with them.
	Rest []Extent `json:"rest,omitempty"`
	// Media are the images whose placeholder tokens stand in the prompt, in order.
	// Their digests are part of the keys of the blocks that they touch.
	Media []MediaSpan `json:"media,omitempty"`
	// Uncached: media are not fully described. Blocks are neither looked up nor kept.
	Uncached bool `json:"uncached,omitempty"`
}

// MediaSpan is one image or other medium of a prompt.
type MediaSpan struct {
	// Digest names content and preprocessing: SHA-256 in hex over the medium's
	// own SHA-256 and the options that change what the model sees.
	Digest string `json:"d"`
	Offset int    `json:"o"` // index of the first placeholder token
	Length int    `json:"n"` // placeholder tokens
	// Ref is where the bytes are: an object of the PAYLOAD bucket.
	Ref string `json:"r,omitempty"`
}

// KeySpec names everything besides the tokens that decides what a KV block
// holds, as far as the turn decides it; the executor adds its engine's part.
type KeySpec struct {
	Salt     string `json:"salt,omitempty"`     // tenant salt
	Model    string `json:"model"`              // model digest
	Adapter  string `json:"adapter,omitempty"`  // LoRA digest
	Template string `json:"template,omitempty"` // template options
	Vocab    string `json:"vocab,omitempty"`    // tokenizer implementation and vocabulary
}

// Sampling says how tokens are chosen. Zero values mean: off.
type Sampling struct {
	Temperature       float64 `json:"temp,omitempty"` // 0 is greedy
	TopP              float64 `json:"top_p,omitempty"`
	TopK              int     `json:"top_k,omitempty"`
	MinP              float64 `json:"min_p,omitempty"`
	FrequencyPenalty  float64 `json:"freq,omitempty"`
	PresencePenalty   float64 `json:"pres,omitempty"`
	RepetitionPenalty float64 `json:"rep,omitempty"` // 0 and 1 are off
	// Seed was drawn at admission when the caller gave none, so that every
	// attempt samples the same tokens.
	Seed    uint64             `json:"seed"`
	Bias    map[string]float64 `json:"bias,omitempty"`
	Grammar string             `json:"grammar,omitempty"` // GBNF, checked at admission
	// Logprobs is 0 when none are wanted, else 1 plus the number of alternatives.
	Logprobs int `json:"logprobs,omitempty"`
}

// Ready is a turn that lineage has rendered, on
// ready.<cell>.<tenant>.<session>.<turn>. It is all that a router needs, and
// what a restarted router rebuilds from. It is removed when the result exists.
type Ready struct {
	Header
	Tenant  string `json:"tenant"`
	Session string `json:"session"`
	Turn    string `json:"turn"`
	Branch  string `json:"branch"`
	Job     string `json:"job"` // JobID(tenant, session, turn)
	Pool    string `json:"pool"`

	Prompt   Prompt   `json:"prompt"`
	Keys     KeySpec  `json:"keys"`
	Sampling Sampling `json:"sampling"`

	MaxNew    int      `json:"max_new"` // most tokens to generate
	Stop      []string `json:"stop,omitempty"`
	IgnoreEOS bool     `json:"ignore_eos,omitempty"`
	Force     Tokens   `json:"force,omitempty"` // force_output
	// Parse says how the answer's text becomes a message: the name of a parser
	// family and flags, such as "hermes+tools+think"; empty when the text is all.
	// gpuexec/chat defines it.
	Parse string `json:"parse,omitempty"`
	// Miss is why the first block behind the known prefix must be computed.
	Miss *Miss `json:"miss,omitempty"`
	// ReadyNS is when the turn was rendered, Unix time.
	ReadyNS int64 `json:"ready_ns,omitempty"`

	Priority   int   `json:"priority,omitempty"` // see TurnMeta
	AdmittedNS int64 `json:"admitted_ns"`
	DeadlineNS int64 `json:"deadline_ns"`
	// Cancel: the caller has gone. Published on the same subject again.
	Cancel bool   `json:"cancel,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// MsgID names a publish about the turn, for the stream's window of message ids.
func (r *Ready) MsgID(kind string) string { return TurnMsgID(kind, r.Job, r.AdmittedNS) }

// TurnMsgID is MsgID for those that have no Ready. The time of admission is that of the
// turn's message in AGENT, so it is the same for all who read it. It is in the name
// because a session may be erased and its turn ids used again while streams still
// remember message ids.
func TurnMsgID(kind, job string, admittedNS int64) string {
	return kind + ":" + job + ":" + strconv.FormatInt(admittedNS, 36)
}

// Check reports the first bad field.
func (r *Ready) Check() error {
	for _, f := range [...]struct{ name, v string }{
		{"tenant", r.Tenant}, {"session", r.Session}, {"turn", r.Turn}, {"branch", r.Branch}, {"job", r.Job},
	} {
		if err := CheckID(f.name, f.v); err != nil {
			return err
		}
	}
	if r.Cancel {
		return nil
	}
	if r.MaxNew < 1 {
		return bad("max_new is %d, it must be positive", r.MaxNew)
	}
	return r.Prompt.check()
}

func (p *Prompt) check() error {
	if p.N < 1 || p.N > MaxTokens {
		return bad("prompt.n is %d, allowed are 1 to %d", p.N, MaxTokens)
	}
	if p.TailFrom < 0 || p.TailFrom+len(p.Tail) != p.N || len(p.Tail) == 0 {
		return bad("prompt.tail has %d tokens from %d on, but the prompt has %d", len(p.Tail), p.TailFrom, p.N)
	}
	end := 0
	for i, m := range p.Media {
		if m.Offset < end || m.Length < 1 || m.Length > p.N-m.Offset {
			return bad("prompt.media[%d] covers %d tokens from %d of a prompt of %d", i, m.Length, m.Offset, p.N)
		}
		end = m.Offset + m.Length
	}
	at := 0
	for i, e := range p.Path {
		if e.From != at || e.N < 1 || len(e.Key) != 64 {
			return bad("prompt.path[%d] must continue at block %d with a key of 64 hex digits", i, at)
		}
		at += e.N
	}
	for i, e := range p.Rest {
		if e.From != at || e.N < 1 || len(e.Key) != 64 {
			return bad("prompt.rest[%d] must continue at block %d with a key of 64 hex digits", i, at)
		}
		at += e.N
	}
	return nil
}
