package turns

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/weir-dev/weir/schemas"
)

// Event is a piece of an answer, or its end.
type Event struct {
	First    int // index of Tokens[0] among the generated tokens
	Tokens   schemas.Tokens
	Text     string
	TextAt   int               // byte offset of Text in the answer
	Logprobs []json.RawMessage // one per token when they were asked for
	Attempt  int
	Parse    string // how the whole answer's text becomes a message, see schemas.Ready.Parse
	// Result is set on the last event only, which has no tokens or text.
	Result *schemas.Result
}

// Position is where the event ends.
func (e *Event) Position() Position {
	return Position{Index: e.First + len(e.Tokens), TextAt: e.TextAt + len(e.Text)}
}

// answer holds what was delivered of one answer, and decides what of a frame or
// result is new. It has no clock and no I/O.
//
//	0        from.Index              next()
//	| not ours | tokens: delivered     | what a frame may add
//
// A new attempt goes on behind the tokens that earlier ones delivered. What an
// earlier attempt sent before that point counts, also when it is read late;
// what it sent behind it came from an executor that had lost the turn.
//
//	attempt 1  |-------------|xxxxx   x: not taken
//	attempt 2                |----------
//	                         starts[2]
type answer struct {
	from    Position
	attempt int // the newest seen
	starts  map[int]Position
	tokens  schemas.Tokens
	text    []byte
}

// note learns where a frame's attempt began, as far as its frames were seen.
func (a *answer) note(f *schemas.Frame) {
	if f.Reject != nil {
		return
	}
	a.attempt = max(a.attempt, f.Attempt)
	if at, ok := a.starts[f.Attempt]; ok && at.Index <= f.First {
		return
	}
	if a.starts == nil {
		a.starts = make(map[int]Position, 1)
	}
	if len(a.starts) < maxAttempts {
		a.starts[f.Attempt] = Position{Index: f.First, TextAt: f.TextAt}
	}
}

// maxAttempts bounds what is remembered of a turn's attempts. The router gives a
// turn up long before.
const maxAttempts = 64

// cut leaves of a frame what stands before the start of every later attempt; ok
// is false when that is nothing.
func (a *answer) cut(f *schemas.Frame) (_ *schemas.Frame, ok bool) {
	if f.Attempt >= a.attempt {
		return f, true
	}
	tokens, text := f.First+len(f.Tokens), f.TextAt+len(f.Text)
	for attempt, at := range a.starts {
		if attempt > f.Attempt {
			tokens, text = min(tokens, at.Index), min(text, at.TextAt)
		}
	}
	if tokens <= f.First {
		return nil, false
	}
	c := *f
	c.Tokens = f.Tokens[:tokens-f.First]
	c.Text = f.Text[:max(text-f.TextAt, 0)]
	if len(f.Logprobs) == len(f.Tokens) {
		c.Logprobs = f.Logprobs[:len(c.Tokens)]
	}
	return &c, true
}

func (a *answer) next() int   { return a.from.Index + len(a.tokens) }
func (a *answer) textAt() int { return a.from.TextAt + len(a.text) }

// verdict says what a frame was.
type verdict uint8

const (
	fresh verdict = iota // it had something new
	stale                // nothing new: had already, or of an attempt that was over
	gap                  // something before it is missing
)

// frame takes a frame. The error is ErrChanged.
func (a *answer) frame(f *schemas.Frame) (Event, verdict, error) {
	a.note(f)
	f, ok := a.cut(f)
	if !ok {
		return Event{}, stale, nil
	}
	next, at := a.next(), a.textAt()
	if f.First > next || f.TextAt > at && f.Text != "" {
		return Event{}, gap, nil
	}
	if err := a.sameTokens(f.First, f.Tokens); err != nil {
		return Event{}, stale, err
	}
	if err := a.sameText(f.TextAt, f.Text); err != nil {
		return Event{}, stale, err
	}
	e := Event{First: next, TextAt: at, Attempt: f.Attempt, Parse: f.Parse}
	if skip := next - f.First; skip < len(f.Tokens) {
		e.Tokens = f.Tokens[skip:]
		e.Logprobs = behind(f.Logprobs, len(f.Tokens), skip)
	}
	if skip := at - f.TextAt; f.Text != "" && skip < len(f.Text) {
		e.Text = f.Text[skip:]
	}
	if len(e.Tokens) == 0 && e.Text == "" {
		return Event{}, stale, nil
	}
	a.took(&e)
	return e, fresh, nil
}

// rest is what the result has beyond what was delivered; ok is false when that
// is nothing. The error is ErrChanged.
func (a *answer) rest(r *schemas.Result) (e Event, ok bool, err error) {
	if r.Status != schemas.StatusOK {
		return Event{}, false, nil
	}
	next, at := a.next(), a.textAt()
	if next > len(r.Tokens) || at > len(r.Text) {
		return Event{}, false, fmt.Errorf("%w: %d tokens and %d bytes were delivered, the result has %d and %d",
			ErrChanged, next, at, len(r.Tokens), len(r.Text))
	}
	if err := a.sameTokens(0, r.Tokens); err != nil {
		return Event{}, false, err
	}
	if err := a.sameText(0, r.Text); err != nil {
		return Event{}, false, err
	}
	e = Event{First: next, TextAt: at, Attempt: r.Attempt, Parse: r.Parse, Tokens: r.Tokens[next:], Text: r.Text[at:]}
	e.Logprobs = behind(r.Logprobs, len(r.Tokens), next)
	a.took(&e)
	return e, len(e.Tokens) > 0 || e.Text != "", nil
}

func (a *answer) took(e *Event) {
	a.tokens = append(a.tokens, e.Tokens...)
	a.text = append(a.text, e.Text...)
}

// sameTokens compares the part of toks, which begin at index first, that was
// delivered already.
func (a *answer) sameTokens(first int, toks schemas.Tokens) error {
	lo, hi := max(first, a.from.Index), min(first+len(toks), a.next())
	if lo >= hi {
		return nil
	}
	was, is := a.tokens[lo-a.from.Index:hi-a.from.Index], toks[lo-first:hi-first]
	if slices.Equal(was, is) {
		return nil
	}
	for i := range was {
		if was[i] != is[i] {
			return fmt.Errorf("%w: token %d was %d and became %d", ErrChanged, lo+i, was[i], is[i])
		}
	}
	return nil
}

// sameText does the same for text that begins at byte offset first.
func (a *answer) sameText(first int, text string) error {
	lo, hi := max(first, a.from.TextAt), min(first+len(text), a.textAt())
	if lo >= hi {
		return nil
	}
	was := a.text[lo-a.from.TextAt : hi-a.from.TextAt]
	if bytes.Equal(was, []byte(text[lo-first:hi-first])) {
		return nil
	}
	return fmt.Errorf("%w: bytes %d to %d of the text were %q and became %q", ErrChanged, lo, hi, was, text[lo-first:hi-first])
}

// behind cuts the logprobs of n tokens by skip of them.
func behind(lp []json.RawMessage, n, skip int) []json.RawMessage {
	if len(lp) != n || skip >= n {
		return nil
	}
	return lp[skip:]
}
