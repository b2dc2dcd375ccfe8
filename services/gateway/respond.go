package gateway

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/weir-dev/weir/gpuexec/chat"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
)

// cancelTimeout bounds the wait for the wish to cancel to be stored.
const cancelTimeout = 5 * time.Second

// deadlineGrace is how much longer than the turn's deadline the gateway waits:
// the router's failure, with its reason, should arrive first.
const deadlineGrace = 5 * time.Second

// complete answers one request for a turn.
func (g *Gateway) complete(w http.ResponseWriter, r *http.Request, d dialect) {
	began := time.Now()
	// OpenAI's and Anthropic's clients show it with an error.
	id := turns.NewID("req")
	w.Header().Set("X-Request-Id", id)
	w.Header().Set("Request-Id", id)
	leave, e := g.enter()
	if e != nil {
		body := d.failure(nil, e)
		g.metrics.done(d.String(), e.Status, e.Code, began, time.Time{})
		writeErrorBody(w, e, body)
		return
	}
	defer leave()
	g.metrics.inFlight.Inc()
	defer g.metrics.inFlight.Dec()
	x := &exchange{g: g, d: d, w: w, rc: http.NewResponseController(w), began: began}
	trace, end := g.o.Span(d.String(), traceOf(r.Header))
	status, code := x.run(r, trace)
	// What net/http still has to write must not wait for ever either.
	_ = x.rc.SetWriteDeadline(time.Now().Add(g.o.WriteTimeout))
	end(x.answered(status, code))
	g.metrics.done(d.String(), status, code, began, x.first)
}

// enter takes one of the places for requests that wait for NATS, until leave.
func (g *Gateway) enter() (leave func(), e *apiError) {
	select {
	case g.slots <- struct{}{}:
		return func() { <-g.slots }, nil
	default:
		return nil, &apiError{Status: http.StatusTooManyRequests, Type: typeRate, Code: schemas.CodeBusy, RetryAfter: time.Second, Message: "too many requests are waiting for an answer here"}
	}
}

// exchange is one request and its response.
type exchange struct {
	g     *Gateway
	d     dialect
	w     http.ResponseWriter
	rc    *http.ResponseController
	c     *call
	began time.Time
	first time.Time // when the first token was there
	res   *schemas.Result

	// Once the response is a stream.
	sse    *sse
	out    speaker
	parser *chat.Parser // when the text has markers
	looked bool         // whether there is a parser is decided
	piece  piece        // what is being written; here so that no chunk allocates it
}

func (x *exchange) answered(status int, code string) Answered {
	out := Answered{Status: status, Code: code, First: x.first, Result: x.res}
	if x.c != nil {
		out.Model, out.Session, out.Stream = x.c.model, x.c.session, x.c.stream
	}
	return out
}

// run returns the HTTP status and the error code, also those that were only sent
// as an event because the stream had begun.
func (x *exchange) run(r *http.Request, trace schemas.Trace) (int, string) {
	c, release, e := x.g.read(x.w, r, x.d)
	if e != nil {
		return x.fail(e)
	}
	defer release()
	x.c = c
	ctx, cancel := context.WithDeadline(r.Context(), x.until())
	defer cancel()
	defer context.AfterFunc(x.g.stopping, cancel)()
	s, err := x.g.turns.Publish(ctx, turns.Request{Tenant: x.g.o.Tenant, Session: c.session, Turn: c.turn, Trace: trace})
	if err != nil {
		return x.fail(x.cause(r, err))
	}
	defer s.Close()
	c.ref, c.turn = s.Ref(), nil
	release()
	h := x.w.Header()
	h.Set(headerSession, c.session)
	h.Set(headerTurn, c.ref.Turn)
	res, err := x.follow(ctx, s)
	if err != nil {
		e := x.cause(r, err)
		if ctx.Err() != nil || errors.Is(err, errSlow) {
			x.cancelTurn(s, e)
		}
		return x.fail(e)
	}
	x.res = res
	if res.Failure != nil {
		h.Set(headerTiming, serverTiming(res))
		return x.fail(ofFailure(res.Failure))
	}
	x.count(res)
	err = x.finish(res)
	if c.final {
		x.endBranch(res.Branch)
	}
	if err != nil {
		return statusGone, schemas.CodeCancelled
	}
	return http.StatusOK, ""
}

// endBranch says that nothing comes after this turn, as the client did: on its
// branch if the client named one, else in the session.
func (x *exchange) endBranch(branch string) {
	_ = x.rc.Flush() // the client need not wait for this
	ctx, cancel := context.WithTimeout(context.Background(), cancelTimeout)
	defer cancel()
	e := turns.EventRequest{
		Tenant: x.c.ref.Tenant, Session: x.c.ref.Session, Kind: schemas.EventSessionEnd, Reason: "the client said so with its last turn",
		ID: "final-" + schemas.JobID(x.c.ref.Tenant, x.c.ref.Session, x.c.ref.Turn),
	}
	if x.c.child {
		e.Kind, e.Branch = schemas.EventBranchEnd, branch
	}
	if _, err := x.g.turns.Event(ctx, e); err != nil {
		x.g.o.Logger.Warn("the end of a session could not be published", "session", e.Session, "branch", branch, "error", err)
	}
}

func (x *exchange) until() time.Time {
	if d := x.c.turn.Weir.DeadlineNS; d > 0 {
		return time.Unix(0, d).Add(deadlineGrace)
	}
	return x.began.Add(x.g.o.Deadline + deadlineGrace)
}

// cause says why a request ended: the client went, the gateway stops, or err.
func (x *exchange) cause(r *http.Request, err error) *apiError {
	switch {
	case r.Context().Err() != nil, errors.Is(err, errSlow):
		return ofError(context.Canceled)
	case x.g.stopping.Err() != nil:
		return &apiError{Status: http.StatusServiceUnavailable, Type: typeServer, Code: "unavailable", Message: "the gateway is shutting down", RetryAfter: time.Second}
	}
	return ofError(err)
}

// cancelTurn stops a turn that nobody waits for any more.
func (x *exchange) cancelTurn(s *turns.Stream, e *apiError) {
	ctx, cancel := context.WithTimeout(context.Background(), cancelTimeout)
	defer cancel()
	if err := s.Cancel(ctx, e.Message); err != nil {
		x.g.o.Logger.Warn("a turn could not be cancelled", "session", x.c.ref.Session, "turn", x.c.ref.Turn, "error", err)
	}
}

func (x *exchange) count(r *schemas.Result) {
	t := x.g.metrics.tokens
	t.WithLabelValues("input").Add(float64(r.Usage.Prompt))
	t.WithLabelValues("cached").Add(float64(r.Usage.Cached))
	t.WithLabelValues("output").Add(float64(r.Usage.Completion))
}

// follow reads the turn to its end. A stream's header is sent with the first
// event, so that an early failure still has its status, or after the first pause
// that needs a keep-alive comment.
func (x *exchange) follow(ctx context.Context, s *turns.Stream) (*schemas.Result, error) {
	for {
		e, err := x.next(ctx, s)
		switch {
		case err != nil:
			return nil, err
		case e.Result != nil:
			return e.Result, nil
		}
		if x.first.IsZero() {
			x.first = time.Now()
		}
		if !x.c.stream {
			continue
		}
		if err := x.begin(); err != nil {
			return nil, err
		}
		if err := x.say(&e); err != nil {
			return nil, err
		}
		if s.Ready() {
			continue // one flush for all that is there
		}
		if err := x.sse.flush(); err != nil {
			return nil, err
		}
	}
}

// next waits for an event and keeps a stream alive meanwhile.
func (x *exchange) next(ctx context.Context, s *turns.Stream) (turns.Event, error) {
	for {
		wait, done := ctx, context.CancelFunc(func() {})
		if x.c.stream && !s.Ready() {
			wait, done = context.WithTimeout(ctx, x.g.o.KeepAlive)
		}
		e, err := s.Next(wait)
		pause := err != nil && wait.Err() != nil && ctx.Err() == nil
		done()
		if !pause {
			return e, err
		}
		if err := x.begin(); err != nil {
			return turns.Event{}, err
		}
		if err := x.out.idle(); err != nil {
			return turns.Event{}, err
		}
	}
}

// begin sends the header of a stream, once.
func (x *exchange) begin() error {
	if x.out != nil {
		return nil
	}
	x.sse = &sse{w: x.w, rc: x.rc, timeout: x.g.o.WriteTimeout, fingerprint: x.g.o.Fingerprint}
	x.out = x.d.newSpeaker(x.c, x.sse)
	x.sse.header()
	return x.out.begin()
}

// say writes what an event adds. Tokens whose text is still to come are not shown.
func (x *exchange) say(e *turns.Event) error {
	if !x.looked && e.Text != "" {
		x.looked = true
		x.parser = x.parserOf(e.Parse)
	}
	if x.parser == nil {
		if e.Text == "" && len(e.Logprobs) == 0 {
			return nil
		}
		x.piece = piece{delta: delta{Content: e.Text, Call: -1}, Logprobs: e.Logprobs, TextAt: e.TextAt}
		return x.out.piece(&x.piece)
	}
	logprobs, deltas := e.Logprobs, x.parser.Add(e.Text)
	if len(deltas) == 0 && len(logprobs) == 0 {
		return x.out.early()
	}
	for _, d := range deltas {
		x.piece = piece{delta: d, Logprobs: logprobs, TextAt: e.TextAt}
		if err := x.out.piece(&x.piece); err != nil {
			return err
		}
		logprobs = nil
	}
	if len(logprobs) == 0 {
		return nil
	}
	x.piece = piece{delta: delta{Call: -1}, Logprobs: logprobs, TextAt: e.TextAt}
	return x.out.piece(&x.piece)
}

func (x *exchange) parserOf(spec string) *chat.Parser {
	if spec == "" || x.c.raw {
		return nil
	}
	p, err := newParser(spec, schemas.JobID(x.c.ref.Tenant, x.c.ref.Session, x.c.ref.Turn))
	if err != nil {
		x.g.o.Logger.Warn("an answer is shown as it was generated", "session", x.c.ref.Session, "turn", x.c.ref.Turn, "error", err)
		return nil
	}
	return p
}

// finish sends the end of a stream, or the whole response.
func (x *exchange) finish(r *schemas.Result) error {
	reply := replyOf(r, aboutTurn(r, x.began, x.first))
	if x.c.stream {
		return x.finishStream(reply)
	}
	_ = x.rc.SetWriteDeadline(time.Now().Add(x.g.o.WriteTimeout)) // not supported by test recorders
	x.w.Header().Set(headerTiming, serverTiming(r))
	writeJSON(x.w, http.StatusOK, x.d.whole(x.c, reply))
	return nil
}

func (x *exchange) finishStream(r *reply) error {
	if err := x.begin(); err != nil {
		return err
	}
	x.w.Header().Set(headerTiming, serverTiming(r.Result))
	if x.parser != nil {
		for _, d := range x.parser.End() {
			x.piece = piece{delta: d}
			if err := x.out.piece(&x.piece); err != nil {
				return err
			}
		}
	}
	return x.out.end(r)
}

// fail sends an error, as an event when the stream has begun.
func (x *exchange) fail(e *apiError) (int, string) {
	e = x.g.withModels(e)
	if x.out != nil {
		_ = x.out.fail(e) // the client is gone, or hears it
	} else {
		body := x.d.failure(x.c, e)
		_ = x.rc.SetWriteDeadline(time.Now().Add(x.g.o.WriteTimeout))
		writeErrorBody(x.w, e, body)
	}
	return e.Status, e.Code
}
