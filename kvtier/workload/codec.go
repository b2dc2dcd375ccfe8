package workload

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/weir-dev/weir/schemas"
)

// Format is the first member of a written schedule.
const Format = "weir.schedule.v1"

// Bounds of a schedule that is read. They leave room for a week of ten thousand
// agents and keep a broken file from taking all memory.
const (
	MaxLine     = 1 << 20 // bytes of one line
	MaxSessions = 1 << 20
	MaxCalls    = 1 << 23
	MaxSay      = 256     // events behind one call
	MaxTokens   = 1 << 24 // of one prompt, and of one answer
	MaxLines    = 1 << 16 // lines of context in a session
	MaxNS       = 1 << 55 // a year, in nanoseconds
)

// ErrSchedule is what Decode's errors wrap.
var ErrSchedule = errors.New("workload: not a schedule")

// kinds are the events that an agent may say.
var kinds = []schemas.EventKind{
	schemas.EventToolWait, schemas.EventUserWait, schemas.EventBranchFork, schemas.EventBranchEnd,
	schemas.EventCompacted, schemas.EventPrefixRewrite, schemas.EventSessionEnd,
}

// The lines of a written schedule: a head, then the sessions, then the calls.
type (
	headLine struct {
		Format   string `json:"format"`
		Name     string `json:"name"`
		Seed     uint64 `json:"seed"`
		Sessions int    `json:"sessions"`
		Calls    int    `json:"calls"`
	}
	sessionLine struct {
		ID     string `json:"id"`
		Tenant string `json:"tenant"`
	}
	callLine struct {
		At      int64      `json:"at_ns"`
		For     int64      `json:"for_ns"`
		Session int32      `json:"session"`
		Line    int32      `json:"line,omitempty"`
		In      int32      `json:"in"`
		Out     int32      `json:"out"`
		Prompt  [][2]int32 `json:"prompt"`
		Finish  string     `json:"finish"`
		Tool    string     `json:"tool,omitempty"`
		Dropped int32      `json:"dropped,omitempty"`
		Say     []sayLine  `json:"say,omitempty"`
	}
	sayLine struct {
		Kind   string `json:"kind"`
		After  int64  `json:"after_ns"`
		Line   int32  `json:"line,omitempty"`
		Tool   string `json:"tool,omitempty"`
		Expect int64  `json:"expect_ns,omitempty"`
	}
)

const finishStop, finishTools = "stop", "tools"

// Encode writes s as JSON lines: a head, one line per session, one line per call.
// Times are nanoseconds, a prompt is its runs as [from, n]. Equal schedules give
// equal bytes. It writes nothing when s breaks Check or the bounds above.
func Encode(w io.Writer, s *Schedule) error {
	if err := s.bounded(); err != nil {
		return err
	}
	b := bufio.NewWriterSize(w, 1<<16)
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if err := e.Encode(headLine{Format, s.Name, s.Seed, len(s.Sessions), len(s.Calls)}); err != nil {
		return err
	}
	for i := range s.Sessions {
		if err := e.Encode(sessionLine(s.Sessions[i])); err != nil {
			return err
		}
	}
	for i := range s.Calls {
		if err := e.Encode(lineOf(&s.Calls[i])); err != nil {
			return err
		}
	}
	return b.Flush()
}

func lineOf(c *Call) callLine {
	l := callLine{
		At: c.At, For: c.For, Session: c.Session, Line: c.Line, In: c.In, Out: c.Out,
		Prompt: make([][2]int32, len(c.Prompt)), Finish: finishStop, Tool: c.Tool, Dropped: c.Dropped,
	}
	for i, r := range c.Prompt {
		l.Prompt[i] = [2]int32{r.From, r.N}
	}
	if c.Finish == FinishTools {
		l.Finish = finishTools
	}
	for _, y := range c.Say {
		l.Say = append(l.Say, sayLine(y))
	}
	return l
}

// Decode reads what Encode wrote. Errors wrap ErrSchedule, name the line and say
// what is wrong with it.
func Decode(r io.Reader) (*Schedule, error) {
	d := decoder{in: bufio.NewScanner(r)}
	d.in.Buffer(make([]byte, 0, 1<<16), MaxLine)
	s, err := d.schedule()
	if err != nil {
		return nil, fmt.Errorf("%w: line %d: %w", ErrSchedule, d.line, err)
	}
	if err := s.bounded(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSchedule, err)
	}
	return s, nil
}

type decoder struct {
	in   *bufio.Scanner
	line int
}

// next reads one line into to; fields it does not know are errors.
func (d *decoder) next(what string, to any) error {
	d.line++
	if !d.in.Scan() {
		switch err := d.in.Err(); {
		case errors.Is(err, bufio.ErrTooLong):
			return fmt.Errorf("it is longer than %d bytes", MaxLine)
		case err != nil:
			return err
		}
		return fmt.Errorf("the file ends where %s is due", what)
	}
	j := json.NewDecoder(bytes.NewReader(d.in.Bytes()))
	j.DisallowUnknownFields()
	if err := j.Decode(to); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if j.More() {
		return fmt.Errorf("%s is followed by something else", what)
	}
	return nil
}

func (d *decoder) schedule() (*Schedule, error) {
	var h headLine
	if err := d.next("the head", &h); err != nil {
		return nil, err
	}
	switch {
	case h.Format != Format:
		return nil, fmt.Errorf("its format is %q, not %q", h.Format, Format)
	case h.Sessions < 0 || h.Sessions > MaxSessions:
		return nil, fmt.Errorf("%d sessions, at most %d", h.Sessions, MaxSessions)
	case h.Calls < 0 || h.Calls > MaxCalls:
		return nil, fmt.Errorf("%d calls, at most %d", h.Calls, MaxCalls)
	}
	s := &Schedule{Name: h.Name, Seed: h.Seed}
	for range h.Sessions {
		var l sessionLine
		if err := d.next("a session", &l); err != nil {
			return nil, err
		}
		s.Sessions = append(s.Sessions, Session(l))
	}
	for range h.Calls {
		var l callLine
		if err := d.next("a call", &l); err != nil {
			return nil, err
		}
		c, err := l.call()
		if err != nil {
			return nil, err
		}
		s.Calls = append(s.Calls, c)
	}
	if d.in.Scan() {
		d.line++
		return nil, fmt.Errorf("the head announces %d calls, but more follows", h.Calls)
	}
	if err := d.in.Err(); err != nil {
		d.line++
		return nil, err
	}
	return s, nil
}

func (l *callLine) call() (Call, error) {
	c := Call{At: l.At, For: l.For, Session: l.Session, Line: l.Line, In: l.In, Out: l.Out, Tool: l.Tool, Dropped: l.Dropped}
	switch l.Finish {
	case finishStop:
	case finishTools:
		c.Finish = FinishTools
	default:
		return c, fmt.Errorf("finish is %q, not %q or %q", l.Finish, finishStop, finishTools)
	}
	for _, r := range l.Prompt {
		c.Prompt = append(c.Prompt, Run{r[0], r[1]})
	}
	for _, y := range l.Say {
		c.Say = append(c.Say, Say(y))
	}
	return c, nil
}

// bounded is Check, the bounds of this file, and the names of sessions and events.
func (s *Schedule) bounded() error {
	if len(s.Sessions) > MaxSessions || len(s.Calls) > MaxCalls {
		return fmt.Errorf("workload: %d sessions and %d calls, at most %d and %d", len(s.Sessions), len(s.Calls), MaxSessions, MaxCalls)
	}
	for i, x := range s.Sessions {
		if err := schemas.CheckID("session", x.ID); err != nil {
			return fmt.Errorf("workload: session %d: %w", i, err)
		}
		if err := schemas.CheckID("tenant", x.Tenant); err != nil {
			return fmt.Errorf("workload: session %d: %w", i, err)
		}
	}
	for i := range s.Calls {
		if err := s.Calls[i].bounded(); err != nil {
			return fmt.Errorf("workload: call %d: %w", i, err)
		}
	}
	return s.Check()
}

func (c *Call) bounded() error {
	switch {
	case c.At < 0 || c.At > MaxNS || c.For < 0 || c.For > MaxNS:
		return fmt.Errorf("it begins at %d ns and lasts %d ns, at most %d", c.At, c.For, MaxNS)
	case c.In > MaxTokens || c.Out > MaxTokens:
		return fmt.Errorf("%d tokens in and %d out, at most %d", c.In, c.Out, MaxTokens)
	case c.Line < 0 || c.Line >= MaxLines:
		return fmt.Errorf("line %d of context, at most %d", c.Line, MaxLines-1)
	case c.Finish > FinishTools:
		return fmt.Errorf("finish is %d", c.Finish)
	case len(c.Say) > MaxSay:
		return fmt.Errorf("%d events, at most %d", len(c.Say), MaxSay)
	}
	for i, y := range c.Say {
		switch {
		case !slices.Contains(kinds, schemas.EventKind(y.Kind)):
			return fmt.Errorf("event %d is %q, not one of %v", i, y.Kind, kinds)
		case y.After < 0 || y.After > MaxNS || y.Expect < 0 || y.Expect > MaxNS:
			return fmt.Errorf("event %d comes after %d ns and expects %d ns, at most %d", i, y.After, y.Expect, MaxNS)
		case y.Line < 0 || y.Line >= MaxLines:
			return fmt.Errorf("event %d is about line %d, at most %d", i, y.Line, MaxLines-1)
		case i > 0 && y.After < c.Say[i-1].After:
			return fmt.Errorf("event %d comes before event %d", i, i-1)
		}
	}
	return nil
}
