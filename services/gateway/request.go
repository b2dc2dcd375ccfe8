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

// Headers that place a request in a session. Ids that are none of weir's are
// replaced by their hash.
const (
	headerSession = "X-Weir-Session"
	headerBranch  = "X-Weir-Branch"
	headerTurn    = "X-Weir-Turn"
	headerIdem    = "Idempotency-Key"
)

// api is which of the two endpoints a request came to.
type api uint8

const (
	chatAPI api = iota
	textAPI
)

func (a api) String() string {
	if a == chatAPI {
		return "chat.completions"
	}
	return "completions"
}

// call is a request that was read.
type call struct {
	api          api
	turn         *schemas.Turn
	session      string
	trace        schemas.Trace
	stream       bool
	includeUsage bool
	created      int64
	model        string
	ref          turns.Ref // once published
}

// read reads a request into a call. The body's memory is charged to the gateway
// until release is called.
func (g *Gateway) read(w http.ResponseWriter, r *http.Request, a api) (c *call, release func(), e *apiError) {
	size := r.ContentLength
	if size < 0 || size > schemas.MaxBody {
		size = schemas.MaxBody
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
	body, e := g.readBody(w, r)
	if e == nil {
		c, e = g.parse(r, a, body)
	}
	if e != nil {
		release()
		return nil, nil, e
	}
	return c, release, nil
}

// drainMax bounds what is read and thrown away of a body that is too large, so
// that the client gets to read why.
const drainMax = 64 << 20

func (g *Gateway) readBody(w http.ResponseWriter, r *http.Request) ([]byte, *apiError) {
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(g.o.BodyTimeout)) // not supported by test recorders
	var body []byte
	var err error
	if r.ContentLength <= schemas.MaxBody {
		body = make([]byte, 0, max(r.ContentLength, 0)+512)
		body, err = readUpTo(body, r.Body, schemas.MaxBody+1)
	}
	switch {
	case err != nil:
		// The deadline stays: before it answers, net/http waits for the rest of the body.
		return nil, &apiError{Status: http.StatusBadRequest, Type: typeInvalid, Code: schemas.CodeInvalid, Message: "the body could not be read: " + err.Error()}
	case r.ContentLength > schemas.MaxBody || len(body) > schemas.MaxBody:
		_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, drainMax))
		return nil, &apiError{
			Status: http.StatusRequestEntityTooLarge, Type: typeInvalid, Code: "request_too_large",
			Message: fmt.Sprintf("the body has more than %d bytes", schemas.MaxBody),
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

// parse makes a turn of a body.
func (g *Gateway) parse(r *http.Request, a api, body []byte) (*call, *apiError) {
	t, err := turns.DecodeBody(body)
	if err != nil {
		return nil, ofError(err)
	}
	c := &call{api: a, turn: t, created: time.Now().Unix(), trace: traceOf(r.Header)}
	c.stream = t.Stream != nil && *t.Stream
	if t.StreamOptions != nil {
		if !c.stream {
			return nil, invalid("stream_options", "stream_options is only allowed when stream is true")
		}
		c.includeUsage = t.StreamOptions.IncludeUsage
	}
	if e := a.check(t); e != nil {
		return nil, e
	}
	c.session = r.Header.Get(headerSession)
	// prompt_cache_key names an application, not a conversation: as a session it
	// would make unrelated requests wait for each other. Blocks are found by content.
	if raw := t.PromptCacheKey; len(raw) > 0 && string(raw) != "null" {
		var key string
		if json.Unmarshal(raw, &key) != nil {
			return nil, invalid("prompt_cache_key", "prompt_cache_key must be a string")
		}
	}
	if c.session == "" {
		c.session = turns.NewID("s")
	} else {
		c.session = schemas.CleanID(c.session)
	}
	for _, h := range [...]struct {
		to   *string
		name string
	}{{&t.Weir.Branch, headerBranch}, {&t.Weir.Turn, headerTurn}, {&t.Weir.Turn, headerIdem}} {
		if v := r.Header.Get(h.name); *h.to == "" && v != "" {
			*h.to = schemas.CleanID(v)
		}
	}
	if c.model = t.Model; c.model == "" {
		c.model = g.fleet.defaultModel()
	}
	// What concerns only this response, or nobody, stays out of the turn: a turn
	// asked for again as a stream is the same turn.
	t.Stream, t.StreamOptions = nil, nil
	t.User, t.Metadata, t.Store, t.ServiceTier, t.SafetyIdentifier = nil, nil, nil, nil, nil
	t.PromptCacheKey, t.PromptCacheRetention = nil, nil
	return c, nil
}

func invalid(param, format string, args ...any) *apiError {
	return &apiError{Status: http.StatusBadRequest, Type: typeInvalid, Code: schemas.CodeInvalid, Param: param, Message: fmt.Sprintf(format, args...)}
}

func unknown(param string) *apiError {
	return &apiError{Status: http.StatusBadRequest, Type: typeInvalid, Code: "unknown_parameter", Param: param, Message: "Unrecognized request argument supplied: " + param}
}

// check refuses what belongs to the other endpoint, and requests without input.
func (a api) check(t *schemas.Turn) *apiError {
	has := func(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }
	tokens := len(t.Weir.InputTokens) > 0
	if a == chatAPI {
		switch {
		case has(t.Prompt):
			return unknown("prompt")
		case t.BestOf != nil:
			return unknown("best_of")
		case len(t.Messages) == 0 && !tokens:
			return invalid("messages", "messages must not be empty")
		}
		t.Prompt = nil
		return nil
	}
	switch {
	case t.Messages != nil:
		return unknown("messages")
	case t.Tools != nil:
		return unknown("tools")
	case has(t.ToolChoice):
		return unknown("tool_choice")
	case !has(t.Prompt) && !tokens:
		return invalid("prompt", "you must provide a prompt")
	}
	return onePrompt(t)
}

// onePrompt takes an array of one string, or of one array of ids, as that prompt.
func onePrompt(t *schemas.Turn) *apiError {
	if len(t.Prompt) == 0 || t.Prompt[0] != '[' {
		return nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal(t.Prompt, &list); err != nil || len(list) == 0 {
		return invalid("prompt", "prompt must not be an empty array")
	}
	if c := list[0][0]; c != '"' && c != '[' {
		var ids schemas.Tokens
		if err := json.Unmarshal(t.Prompt, &ids); err != nil {
			return invalid("prompt", "prompt must be a string or an array of token ids")
		}
		return nil
	}
	if len(list) > 1 {
		return invalid("prompt", "prompt has %d prompts, weir answers one per request", len(list))
	}
	t.Prompt = list[0]
	return nil
}

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
