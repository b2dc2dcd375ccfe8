package turncmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
)

// Frame is a line of --frames.
type Frame struct {
	Event   string         `json:"event"` // "frame"
	AtMS    float64        `json:"at_ms"` // since the publish began
	Attempt int            `json:"attempt"`
	First   int            `json:"first"`
	Tokens  schemas.Tokens `json:"tokens"`
	Text    string         `json:"text"`
}

// Summary is the last line of -o json. Times are as this command saw them, in
// milliseconds since the publish began.
type Summary struct {
	Event   string `json:"event"` // "result", "stored" or "error"
	Status  string `json:"status"`
	Tenant  string `json:"tenant"`
	Session string `json:"session"`
	Branch  string `json:"branch,omitempty"`
	Turn    string `json:"turn"`
	Model   string `json:"model,omitempty"`

	Text             string         `json:"text"`
	Tokens           schemas.Tokens `json:"tokens"`
	Finish           string         `json:"finish,omitempty"`
	PromptTokens     int            `json:"prompt_tokens"`
	CachedTokens     int            `json:"cached_tokens"`
	CompletionTokens int            `json:"completion_tokens"`

	PrefillOn string           `json:"prefill_on,omitempty"`
	DecodeOn  string           `json:"decode_on,omitempty"`
	Attempts  int              `json:"attempts"`
	TTFTMS    float64          `json:"ttft_ms"`
	TotalMS   float64          `json:"total_ms"`
	Timing    *schemas.Timing  `json:"timing,omitempty"` // as the executors saw it
	Known     string           `json:"known,omitempty"`
	Seed      uint64           `json:"seed,omitempty"`
	Replay    bool             `json:"replay,omitempty"`
	Trace     string           `json:"traceparent,omitempty"`
	Failure   *schemas.Failure `json:"failure,omitempty"`
}

// printer writes the answer in the form that was asked for.
type printer struct {
	out, err io.Writer
	json     bool
	frames   bool
	began    time.Time
	first    time.Time
	ref      turns.Ref
	trace    string
	newline  bool // the text so far ended without one
}

func newPrinter(out, errs io.Writer, f *flags, session string) *printer {
	if f.output != "json" {
		out = forTerminal(out)
	}
	return &printer{
		out: out, err: errs, json: f.output == "json", frames: f.frames, began: time.Now(),
		ref: turns.Ref{Tenant: f.tenant, Session: session, Turn: f.turn},
	}
}

func (p *printer) published(ref turns.Ref) { p.ref = ref }

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func (p *printer) event(e *turns.Event) error {
	if p.first.IsZero() {
		p.first = time.Now()
	}
	if p.json {
		if !p.frames {
			return nil
		}
		return p.line(Frame{Event: "frame", AtMS: ms(time.Since(p.began)), Attempt: e.Attempt, First: e.First, Tokens: e.Tokens, Text: e.Text})
	}
	if e.Text != "" {
		p.newline = !strings.HasSuffix(e.Text, "\n")
	}
	_, err := io.WriteString(p.out, e.Text)
	return err
}

func (p *printer) line(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = p.out.Write(append(b, '\n'))
	return err
}

// summary is what is known without a result.
func (p *printer) summary(event string) Summary {
	s := Summary{
		Event: event, Tenant: p.ref.Tenant, Session: p.ref.Session, Turn: p.ref.Turn, Trace: p.trace,
		TotalMS: ms(time.Since(p.began)),
	}
	if !p.first.IsZero() {
		s.TTFTMS = ms(p.first.Sub(p.began))
	}
	return s
}

// stored ends a turn that nobody waits for.
func (p *printer) stored() error {
	s := p.summary("stored")
	s.Status = "stored"
	if p.json {
		return p.line(s)
	}
	_, err := fmt.Fprintf(p.err, "stored: session %s, turn %s, in %.1f ms\n", s.Session, s.Turn, s.TotalMS)
	return err
}

// failed reports an error that is not a result of the turn.
func (p *printer) failed(cause error) error {
	p.endText()
	if !p.json {
		return cause
	}
	s := p.summary("error")
	s.Status = "error"
	var f *turns.FailureError
	if errors.As(cause, &f) {
		s.Failure = &f.Failure
	} else {
		s.Failure = &schemas.Failure{Code: schemas.CodeInternal, Message: cause.Error()}
	}
	if err := p.line(s); err != nil {
		return err
	}
	return cause
}

// result prints the end and returns an error for a failed turn.
func (p *printer) result(r *schemas.Result) error {
	p.endText()
	s := p.summary("result")
	s.Status, s.Branch, s.Model = string(r.Status), r.Branch, r.Model
	s.Text, s.Tokens, s.Finish = r.Text, r.Tokens, r.Finish
	s.PromptTokens, s.CachedTokens, s.CompletionTokens = r.Usage.Prompt, r.Usage.Cached, r.Usage.Completion
	s.PrefillOn, s.DecodeOn, s.Attempts, s.Timing = r.PrefillOn, r.DecodeOn, r.Attempt, &r.Timing
	s.Seed, s.Replay, s.Failure = r.Seed, r.Replay, r.Failure
	if r.Status == schemas.StatusOK {
		s.Known = r.Known()
	}
	var err error
	if p.json {
		err = p.line(s)
	} else if r.Failure == nil {
		_, err = fmt.Fprintf(p.err, "%d tokens in (%d cached), %d out, finish %s; prefill on %s, decode on %s, attempt %d; first token %.1f ms, total %.1f ms\nsession %s, turn %s, known %s\n",
			s.PromptTokens, s.CachedTokens, s.CompletionTokens, s.Finish, s.PrefillOn, s.DecodeOn, s.Attempts, s.TTFTMS, s.TotalMS, s.Session, s.Turn, s.Known)
	}
	if err != nil {
		return err
	}
	if f := r.Failure; f != nil {
		where := ""
		if f.Param != "" {
			where = " (" + f.Param + ")"
		}
		if f.RetryNS > 0 {
			where += "; try again in " + time.Duration(f.RetryNS).Round(time.Second).String()
		}
		return fmt.Errorf("the turn failed, %s: %s%s", f.Code, f.Message, where)
	}
	return nil
}

// endText puts the summary on its own line.
func (p *printer) endText() {
	if p.newline && !p.json {
		p.newline = false
		_, _ = io.WriteString(p.out, "\n") // a broken pipe shows at the next write
	}
}
