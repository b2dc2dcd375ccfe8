package explaincmd

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weir-dev/weir/schemas"
)

// TurnReport explains one turn; -o json prints it.
type TurnReport struct {
	Tenant  string `json:"tenant"`
	Session string `json:"session"`
	Turn    string `json:"turn"`
	Branch  string `json:"branch,omitempty"`
	Model   string `json:"model,omitempty"`
	// Status is ok, failed, running, or unknown when the result is not stored.
	Status   string           `json:"status"`
	Finish   string           `json:"finish,omitempty"`
	Failure  *schemas.Failure `json:"failure,omitempty"`
	Attempt  int              `json:"attempt,omitempty"`
	Admitted string           `json:"admitted,omitempty"` // RFC 3339, UTC

	// Milliseconds since admission; EngineMS is the engine's time up to the first
	// token, which the same engine called directly would have taken too. The result
	// has both for the last executor that decoded. Where others did so before it
	// (Moved), TTFTMS is when the first one began, and EngineMS is not known.
	TotalMS  float64 `json:"total_ms,omitempty"`
	TTFTMS   float64 `json:"ttft_ms,omitempty"`
	EngineMS float64 `json:"engine_ttft_ms,omitempty"`
	Moved    int     `json:"moved,omitempty"` // how often the decode was handed over
	Stages   []Stage `json:"stages,omitempty"`

	Tokens *Tokens `json:"tokens,omitempty"`
	Miss   *Miss   `json:"miss,omitempty"`
	// Notes name what could not be read.
	Notes []string `json:"notes,omitempty"`
}

// Stage is one bar of the waterfall, in milliseconds since admission.
type Stage struct {
	Stage  string  `json:"stage"`
	On     string  `json:"on,omitempty"`
	FromMS float64 `json:"from_ms"`
	ToMS   float64 `json:"to_ms"`
}

// Tokens of a turn: Prompt = Cached + Recomputed + New.
type Tokens struct {
	Prompt     int `json:"prompt"`
	Cached     int `json:"cached"`     // found in memory
	Recomputed int `json:"recomputed"` // computed before, and computed again
	New        int `json:"new"`
	Generated  int `json:"generated"`
	// Lost: computed before in this session, at a place that they have no more.
	Lost int `json:"lost,omitempty"`
}

// Miss is why the first block that was not found had to be computed.
type Miss struct {
	Cause schemas.MissCause `json:"cause"`
	Words string            `json:"words"`
	// Token is the prompt's first token that was not found.
	Token int `json:"token"`
	// Message is the index in the turn's whole message list, -1 for what stands
	// before it; absent where no text decides. Byte is the first one in its content
	// that differs.
	Message *int   `json:"message,omitempty"`
	Role    string `json:"role,omitempty"`
	Byte    *int   `json:"byte,omitempty"`
	// Before and After are the text around that byte, cut short.
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
	// End: behind the last message, where the answer begins.
	End bool `json:"end,omitempty"`
	// About: the place is near that, because answers are written otherwise than they
	// were generated.
	About  bool   `json:"about,omitempty"`
	Detail string `json:"detail,omitempty"`

	Evicted   string `json:"evicted,omitempty"` // RFC 3339, UTC
	Rule      string `json:"rule,omitempty"`
	RuleWords string `json:"rule_words,omitempty"`
}

const stamp = "2006-01-02T15:04:05.000Z"

func at(ns int64) string { return time.Unix(0, ns).UTC().Format(stamp) }

func milli(ns int64) float64 { return float64(ns/1000) / 1000 }

// turnReport explains one turn from what is known.
func turnReport(f *facts, id string) *TurnReport {
	rep := &TurnReport{Tenant: f.tenant, Session: f.session, Turn: id, Status: "unknown"}
	defer func() { rep.Notes = f.notes }()
	if h := f.turn(id); h == nil {
		f.note("the turn is not in AGENT: it was never published, or has aged out; its messages cannot be shown")
	} else if h.err != nil {
		f.note("the turn's messages cannot be shown: %s", h.err)
	}
	r := f.results[id]
	if r == nil {
		rep.unanswered(f)
		return rep
	}
	rep.Branch, rep.Model, rep.Status, rep.Finish, rep.Failure, rep.Attempt = r.Branch, r.Model, string(r.Status), r.Finish, r.Failure, r.Attempt
	t := &r.Timing
	rep.Admitted, rep.TotalMS, rep.TTFTMS, rep.EngineMS = at(t.AdmittedNS), milli(t.TotalNS), milli(t.TTFTNS), milli(t.EngineTTFTNS)
	for _, s := range t.Spans {
		rep.Stages = append(rep.Stages, Stage{Stage: s.Stage, On: s.On, FromMS: milli(s.From), ToMS: milli(s.To)})
	}
	rep.firstToken(t)
	if len(rep.Stages) == 0 {
		f.note("the result names no stages: it was written by an older version, or never placed")
	}
	if r.Usage.Prompt > 0 {
		rep.Tokens = tokensOf(r)
	}
	if r.Miss != nil && r.Miss.Cause != "" {
		rep.Miss = f.missOf(r)
	}
	return rep
}

// unanswered says what is known of a turn without a result.
func (rep *TurnReport) unanswered(f *facts) {
	h, l := f.turn(rep.Turn), f.lineage
	// Lineage was asked for this turn, so it names its branch alone. It remembers
	// turns that ended, too.
	if h == nil || l == nil || !l.Found || l.Pending == 0 || len(l.Branches) == 0 || l.Branches[0].State != schemas.BranchRunning {
		f.note("the turn has no stored result: it is still in work, or its result has aged out")
		return
	}
	rep.Status, rep.Branch = "running", l.Branches[0].ID
	f.note("the turn was published at %s and is in work; where its time went is known when it has ended", h.at.UTC().Format(stamp))
}

// firstToken corrects the time to the first token of a turn that was handed over
// while it decoded.
func (rep *TurnReport) firstToken(t *schemas.Timing) {
	first := int64(-1)
	for _, s := range t.Spans {
		switch {
		case s.Stage == schemas.SpanPrefillWait:
			// What decoded before that may have lacked blocks, and sent nothing.
			first, rep.Moved = -1, 0
		case s.Stage != schemas.SpanDecode:
		case first < 0:
			first = s.From
		default:
			rep.Moved++
		}
	}
	if rep.Moved > 0 && first < t.TTFTNS {
		rep.TTFTMS, rep.EngineMS = milli(first), 0
	}
}

func tokensOf(r *schemas.Result) *Tokens {
	u := r.Usage
	known := u.Cached
	t := &Tokens{Prompt: u.Prompt, Cached: u.Cached, Generated: u.Completion}
	if r.Miss != nil {
		known = max(known, min(r.Miss.Known, u.Prompt))
		t.Lost = r.Miss.Lost
	}
	t.Recomputed, t.New = known-u.Cached, u.Prompt-known
	return t
}

// textual: the text of the prompt is the cause, so there is a place in it.
func textual(c schemas.MissCause) bool {
	switch c {
	case schemas.MissEvicted, schemas.MissNotKept, schemas.MissNotCached, schemas.MissFirst:
		return false
	default:
		return true
	}
}

func (f *facts) missOf(r *schemas.Result) *Miss {
	m := r.Miss
	out := &Miss{Cause: m.Cause, Words: causeWords(m.Cause), Token: r.Usage.Cached, Detail: m.Detail, Rule: m.Rule}
	if m.Rule != "" {
		out.RuleWords = ruleWords(m.Rule)
	}
	if m.AtNS != 0 {
		out.Evicted = at(m.AtNS)
	}
	if !textual(m.Cause) {
		return out
	}
	index, byteAt := m.Message, m.Byte
	out.Message, out.Byte = &index, &byteAt
	if index < 0 {
		out.Byte = nil
		return out
	}
	all, err := f.messages(r.Turn)
	switch {
	case err != nil:
		f.note("the text around the difference cannot be shown: %s", err)
	case index == len(all):
		out.End = true
	case index > len(all):
		f.note("the turn has %d messages, the difference is in number %d: it cannot be shown", len(all), index)
	default:
		var text string
		out.Role, text = content(all[index])
		out.Before, out.After = around(text, byteAt)
	}
	return out
}

// content is a message's role and its text as lineage compares it: parts of text
// joined by line feeds, others as their JSON; tool calls where there is no text.
func content(raw json.RawMessage) (role, text string) {
	var m struct {
		Role      string          `json:"role"`
		Content   json.RawMessage `json:"content"`
		ToolCalls json.RawMessage `json:"tool_calls"`
	}
	if json.Unmarshal(raw, &m) != nil {
		return "", string(raw)
	}
	var parts []json.RawMessage
	switch {
	case json.Unmarshal(m.Content, &text) == nil:
	case json.Unmarshal(m.Content, &parts) == nil:
		var texts []string
		for _, p := range parts {
			var t struct {
				Type string  `json:"type"`
				Text *string `json:"text"`
			}
			if json.Unmarshal(p, &t) == nil && t.Text != nil {
				texts = append(texts, *t.Text)
			} else {
				texts = append(texts, string(p))
			}
		}
		text = strings.Join(texts, "\n")
	}
	if text == "" {
		text = string(m.ToolCalls)
	}
	return m.Role, text
}

// excerpt bounds the text on each side of a difference, in bytes.
const excerpt = 48

// around is the text before and behind a byte, cut at whole characters.
func around(text string, at int) (before, after string) {
	at = max(0, min(at, len(text)))
	for at > 0 && at < len(text) && !utf8.RuneStart(text[at]) {
		at--
	}
	from, to := max(0, at-excerpt), min(len(text), at+excerpt)
	for from < at && !utf8.RuneStart(text[from]) {
		from++
	}
	for to > at && to < len(text) && !utf8.RuneStart(text[to]) {
		to--
	}
	before, after = text[from:at], text[at:to]
	if from > 0 {
		before = "…" + before
	}
	if to < len(text) {
		after += "…"
	}
	return strings.ToValidUTF8(before, "\ufffd"), strings.ToValidUTF8(after, "\ufffd")
}

// place says in words where the difference is.
func (m *Miss) place() string {
	switch {
	case m.Message == nil:
		return ""
	case *m.Message < 0:
		return "before all messages"
	case m.End:
		return "behind the last message, where the answer begins"
	}
	where := fmt.Sprintf("message %d", *m.Message)
	if m.About {
		where = "about " + where
	}
	if m.Role != "" {
		where += " (" + m.Role + ")"
	}
	if m.Byte != nil {
		where += fmt.Sprintf(", byte %d", *m.Byte)
	}
	return where
}
