package turns

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weir-dev/weir/schemas"
)

// Waits of a stream.
const (
	// rejectGrace is how long a publish under an id that was seen before waits
	// for lineage to refuse it. Lineage answers within milliseconds.
	rejectGrace = time.Second
	// fetchPause bounds how often missing frames are looked for.
	fetchPause = 200 * time.Millisecond
	// confirmFor is how long a result that may have lost against another one is
	// looked for in the stream before it is believed.
	confirmFor = 3 * time.Second
)

// Stream is the answer to one turn. Next may be called by one goroutine at a
// time; Cancel and Close from any.
type Stream struct {
	c                         *Client
	ref                       Ref
	outSubject, resultSubject string
	digest                    string // of our publish; empty for a reader
	session                   *session

	queue chan *nats.Msg
	// lost is set when messages may have been missed; wake makes Next notice.
	lost atomic.Bool
	wake chan struct{}
	// away is set once the connection was lost during the turn.
	away atomic.Bool
	once sync.Once

	// The rest belongs to the reader.
	got     answer
	events  []Event // decided and not returned
	err     error   // what Next returns after the events
	alarm   *time.Timer
	silence time.Duration
	heard   time.Time
	hold    time.Time       // until then nothing is believed but a refusal
	fetched time.Time       // last look for frames
	outSeq  uint64          // where to look for frames from
	doubt   *schemas.Result // a result that waits for confirmation
	doubted time.Time
}

func newStream(c *Client, ref Ref, from Position) *Stream {
	s := &Stream{
		c: c, ref: ref, queue: make(chan *nats.Msg, c.opts.Buffer), wake: make(chan struct{}, 1),
		outSubject:    schemas.OutSubject(ref.Tenant, ref.Session, ref.Turn),
		resultSubject: schemas.ResultSubject(ref.Tenant, ref.Session, ref.Turn),
		got:           answer{from: from}, silence: c.opts.SilenceMin, heard: time.Now(), outSeq: 1,
	}
	s.alarm = time.NewTimer(s.silence)
	return s
}

// Ref names the turn; its id was drawn if the request had none.
func (s *Stream) Ref() Ref { return s.ref }

// push is called by the hub and must not block.
func (s *Stream) push(m *nats.Msg) {
	select {
	case s.queue <- m:
	default:
		s.lost.Store(true)
	}
}

// missed tells the stream that it may have missed something.
func (s *Stream) missed() {
	s.away.Store(true)
	s.lost.Store(true)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Close stops reading. The turn goes on; use Cancel to stop it.
func (s *Stream) Close() {
	s.once.Do(func() {
		s.c.hub.remove(s)
		s.alarm.Stop()
	})
}

// Cancel asks that the turn be stopped.
func (s *Stream) Cancel(ctx context.Context, reason string) error {
	return s.c.Cancel(ctx, s.ref, reason)
}

// Next waits for the next event. After the event with the result it returns
// io.EOF. When ctx ends it returns ctx's error and the stream can still be read.
func (s *Stream) Next(ctx context.Context) (Event, error) {
	for {
		if len(s.events) > 0 {
			e := s.events[0]
			s.events = s.events[1:]
			return e, nil
		}
		if s.err != nil {
			s.Close()
			return Event{}, s.err
		}
		if err := ctx.Err(); err != nil {
			return Event{}, err
		}
		// While NATS is away there is nothing to ask; missed is called when it is back.
		if s.lost.Load() && !s.holding() && s.c.nc.IsConnected() {
			s.look(ctx)
			if len(s.events) > 0 || s.err != nil {
				continue
			}
		}
		select {
		case m := <-s.queue:
			s.take(ctx, m)
		case <-s.wake:
		case <-s.alarm.C:
			s.alarmed(ctx)
		case <-s.c.hub.done:
			s.err = ErrClosed
		case <-ctx.Done():
			return Event{}, ctx.Err()
		}
	}
}

func (s *Stream) holding() bool { return !s.hold.IsZero() && time.Now().Before(s.hold) }

// take handles one live message.
func (s *Stream) take(ctx context.Context, m *nats.Msg) {
	if m.Subject == s.resultSubject {
		r := new(schemas.Result)
		if err := schemas.Decode(m.Data, r); err != nil {
			s.lost.Store(true) // what is stored decides
			return
		}
		if !s.holding() {
			s.result(ctx, r)
		}
		return
	}
	f, err := decodeFrame(m.Data)
	if err != nil {
		s.lost.Store(true)
		return
	}
	s.heard = time.Now()
	s.silence = s.c.opts.SilenceMin
	s.frame(ctx, f, true)
}

// frame handles a frame, live or fetched.
func (s *Stream) frame(ctx context.Context, f *schemas.Frame, live bool) {
	if f.Reject != nil {
		if s.digest != "" && f.Reject.Digest == s.digest {
			s.err = &FailureError{Failure: f.Reject.Failure}
		}
		return
	}
	if s.holding() {
		return
	}
	e, v, err := s.got.frame(f)
	switch {
	case err != nil:
		s.err = err
	case v == fresh:
		s.events = append(s.events, e)
	case v == gap && live:
		s.fill(ctx)
		if s.err != nil {
			return
		}
		// The fetch may have brought everything before this frame, or this one too.
		if e, v, err = s.got.frame(f); err != nil {
			s.err = err
		} else if v == fresh {
			s.events = append(s.events, e)
		}
	}
}

// fill fetches missing frames, at most once in a while: what stays missing comes
// with the result.
func (s *Stream) fill(ctx context.Context) {
	now := time.Now()
	if now.Sub(s.fetched) < fetchPause {
		s.alarm.Reset(fetchPause)
		return
	}
	s.fetched = now
	s.fetchFrames(ctx)
}

// look fetches what may have been missed: frames, then the result.
func (s *Stream) look(ctx context.Context) {
	s.lost.Store(false)
	s.fetched = time.Now()
	if !s.fetchFrames(ctx) {
		s.later()
		return
	}
	if s.err != nil {
		return
	}
	r, err := s.c.storedResult(ctx, s.ref)
	switch {
	case err == nil:
		s.end(r)
	case !errors.Is(err, ErrNotFound):
		s.later()
	}
}

// later looks again when a fetch failed: NATS or its streams are away.
func (s *Stream) later() {
	s.lost.Store(false)
	s.away.Store(true)
	s.heard = time.Time{}
	s.alarm.Reset(fetchPause)
}

// alarmed runs when nothing came for a while, or a wait is over.
func (s *Stream) alarmed(ctx context.Context) {
	now := time.Now()
	switch {
	case s.doubt != nil:
		s.confirm(ctx)
		return
	case !s.hold.IsZero():
		if d := s.hold.Sub(now); d > 0 {
			s.alarm.Reset(d)
			return
		}
		s.hold = time.Time{}
		s.lost.Store(true)
	case now.Sub(s.heard) >= s.silence:
		s.lost.Store(true)
		s.heard = now
		s.silence = min(2*s.silence, s.c.opts.SilenceMax)
	}
	s.alarm.Reset(max(s.silence-now.Sub(s.heard), time.Millisecond))
}

// result takes a result that came live. Whoever publishes one hears from the
// stream whether it was the first; a reader does not. Where there may have been
// two, the stored one is asked for.
func (s *Stream) result(ctx context.Context, r *schemas.Result) {
	if r.Attempt <= 1 && s.got.attempt <= 1 && !s.away.Load() {
		s.end(r)
		return
	}
	if s.doubt == nil {
		s.doubted = time.Now()
	}
	s.doubt = r
	s.confirm(ctx)
}

// confirm replaces a doubtful result by the stored one.
func (s *Stream) confirm(ctx context.Context) {
	r, err := s.c.storedResult(ctx, s.ref)
	switch {
	case err == nil:
		s.end(r)
	case errors.Is(err, ErrNotFound) && time.Since(s.doubted) > confirmFor:
		s.end(s.doubt) // its publisher goes on trying to store it
	default:
		s.alarm.Reset(fetchPause)
	}
}

// end delivers what is left and the result.
func (s *Stream) end(r *schemas.Result) {
	s.doubt = nil
	e, ok, err := s.got.rest(r)
	if err != nil {
		s.err = err
		return
	}
	if ok {
		s.events = append(s.events, e)
	}
	s.events = append(s.events, Event{First: s.got.next(), TextAt: s.got.textAt(), Attempt: r.Attempt, Parse: r.Parse, Result: r})
	s.err = io.EOF
}

// Ready reports whether an event, or a message that may become one, is there. It
// belongs to the reader.
func (s *Stream) Ready() bool { return len(s.events) > 0 || len(s.queue) > 0 }
