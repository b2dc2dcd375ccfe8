package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"time"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
)

// call is a request that was read.
type call struct {
	turn    *schemas.Turn // nil once published
	session string
	stream  bool
	raw     bool // the text is wanted as it was generated, without a parser
	more    any  // what the dialect needs for the answer
	// said are headers that the body carries, by lower-case name.
	said map[string]string

	// Set by the gateway.
	created     int64 // Unix time in seconds
	model       string
	fingerprint string
	final       bool      // the client says that nothing comes after this turn,
	child       bool      // on the branch that it named
	ref         turns.Ref // once published
}

func (c *call) modelOf(r *schemas.Result) string {
	if r.Model != "" {
		return r.Model
	}
	return c.model
}

// read reads a request into a call. The body's memory is charged to the gateway
// until release is called.
func (g *Gateway) read(w http.ResponseWriter, r *http.Request, d dialect) (c *call, release func(), e *apiError) {
	body, release, e := g.take(w, r)
	if e != nil {
		return nil, nil, e
	}
	c, e = d.parse(g, r, body)
	if e == nil {
		c.created, c.fingerprint = time.Now().Unix(), g.o.Fingerprint
		if c.model = c.turn.Model; c.model == "" {
			c.model = g.fleet.defaultModel()
		}
		e = g.place(r, c)
	}
	if e != nil {
		release()
		return nil, nil, e
	}
	return c, release, nil
}

// take reads a body. Its memory is charged to the gateway until release is called,
// which may be called more than once.
func (g *Gateway) take(w http.ResponseWriter, r *http.Request) (body []byte, release func(), e *apiError) {
	size := r.ContentLength
	if most := mostOf(r); size < 0 || size > most {
		size = most
	}
	if g.bodies.Add(size) > g.o.MaxBodies {
		g.bodies.Add(-size)
		return nil, nil, &apiError{Status: http.StatusTooManyRequests, Type: typeRate, Code: schemas.CodeBusy, RetryAfter: time.Second, Message: "too many large requests are being read; try again"}
	}
	charged := true
	release = func() {
		if charged {
			charged = false
			g.bodies.Add(-size)
		}
	}
	if body, e = g.readBody(w, r); e != nil {
		release()
		return nil, nil, e
	}
	return body, release, nil
}

// mostOf bounds a request's body in bytes. A body with images may be larger than
// the turn that is made of it. One that does not tell its length is charged for all
// that it might have, so it may have less.
func mostOf(r *http.Request) int64 {
	if r.ContentLength < 0 {
		return schemas.MaxBody
	}
	return turns.MaxRequest
}

// drainMax bounds what is read and thrown away of a body that is too large, so
// that the client gets to read why.
const drainMax = 64 << 20

func (g *Gateway) readBody(w http.ResponseWriter, r *http.Request) ([]byte, *apiError) {
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(g.o.BodyTimeout)) // not supported by test recorders
	var body []byte
	var err error
	most := mostOf(r)
	if r.ContentLength <= most {
		body = make([]byte, 0, max(r.ContentLength, 0)+512)
		body, err = readUpTo(body, r.Body, int(most)+1)
	}
	switch {
	case err != nil:
		// The deadline stays: before it answers, net/http waits for the rest of the body.
		return nil, &apiError{Status: http.StatusBadRequest, Type: typeInvalid, Code: schemas.CodeInvalid, Message: "the body could not be read: " + err.Error()}
	case r.ContentLength > most || int64(len(body)) > most:
		_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, drainMax))
		return nil, &apiError{
			Status: http.StatusRequestEntityTooLarge, Type: typeInvalid, Code: "request_too_large",
			Message: fmt.Sprintf("the body has more than %d bytes", most),
		}
	}
	_ = rc.SetReadDeadline(time.Time{})
	return body, nil
}

// readUpTo appends at most limit bytes of r to b.
func readUpTo(b []byte, r io.Reader, limit int) ([]byte, error) {
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := r.Read(b[len(b):min(cap(b), limit)])
		b = b[:len(b)+n]
		switch {
		case errors.Is(err, io.EOF), len(b) >= limit:
			return b, nil
		case err != nil:
			return b, err
		}
	}
}

func invalid(param, format string, args ...any) *apiError {
	return &apiError{Status: http.StatusBadRequest, Type: typeInvalid, Code: schemas.CodeInvalid, Param: param, Message: fmt.Sprintf(format, args...)}
}

func unknown(param string) *apiError {
	return &apiError{Status: http.StatusBadRequest, Type: typeInvalid, Code: "unknown_parameter", Param: param, Message: "Unrecognized request argument supplied: " + param}
}

// given: the field is there and not null.
func given(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

var traceparent = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// traceOf reads the W3C trace context; a malformed one is left out, as the
// standard says.
func traceOf(h http.Header) schemas.Trace {
	t := schemas.Trace{Parent: h.Get("traceparent")}
	if !traceparent.MatchString(t.Parent) {
		return schemas.Trace{}
	}
	if s := h.Get("tracestate"); len(s) <= 512 {
		t.State = s
	}
	return t
}
