package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
)

// maxEvents bounds the events of one request.
const maxEvents = 256

// maxExpected bounds an expected wait in seconds: a year.
const maxExpected = 365 * 24 * 3600

// sessionTimeout is the wait for lineage's word on a session.
const sessionTimeout = 5 * time.Second

// agentEvent is one event as a caller writes it.
type agentEvent struct {
	Kind     schemas.EventKind `json:"kind"`
	Branch   string            `json:"branch"`
	Parent   string            `json:"parent"`
	Tool     string            `json:"tool"`
	Expected float64           `json:"expected_seconds"`
	Turn     string            `json:"turn"`
	Reason   string            `json:"reason"`
}

// stored is an event as the answer names it.
type stored struct {
	Kind schemas.EventKind `json:"kind"`
	Seq  uint64            `json:"seq"` // in the stream AGENT
}

// postEvents takes what an agent says of its branches, in order: one event or an
// array. Nothing is published unless all of them are well formed. The answer
// comes when they are stored.
func (g *Gateway) postEvents(w http.ResponseWriter, r *http.Request) {
	leave, e := g.enter()
	if e != nil {
		writeError(w, e)
		return
	}
	defer leave()
	body, release, e := g.take(w, r)
	if e != nil {
		writeError(w, e)
		return
	}
	defer release()
	session := schemas.CleanID(r.PathValue("session"))
	list, e := readEvents(body, g.o.Tenant, session, r.Header)
	if e != nil {
		writeError(w, e)
		return
	}
	out := struct {
		Session string   `json:"session"`
		Events  []stored `json:"events"`
	}{Session: session}
	ctx, cancel := context.WithTimeout(r.Context(), g.o.Deadline)
	defer cancel()
	defer context.AfterFunc(g.stopping, cancel)()
	for i, ev := range list {
		seq, err := g.turns.Event(ctx, ev)
		if err != nil {
			e := ofError(err)
			e.Message = fmt.Sprintf("%s; %d of %d events were stored before", e.Message, i, len(list))
			writeError(w, e)
			return
		}
		out.Events = append(out.Events, stored{ev.Kind, seq})
	}
	w.Header().Set(headerSession, session)
	writeJSON(w, http.StatusAccepted, out)
}

// readEvents reads one event or an array of them. An idempotency key makes the
// repeat of a request harmless, also where it stopped in between.
func readEvents(body []byte, tenant, session string, h http.Header) ([]turns.EventRequest, *apiError) {
	raws := []json.RawMessage{body}
	many := bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("["))
	if many {
		if err := json.Unmarshal(body, &raws); err != nil {
			return nil, invalid("", "the body is not valid JSON: %v", err)
		}
	}
	if len(raws) == 0 || len(raws) > maxEvents {
		return nil, invalid("", "the body has %d events, allowed are 1 to %d", len(raws), maxEvents)
	}
	out := make([]turns.EventRequest, 0, len(raws))
	for i, raw := range raws {
		ev, err := readEvent(raw, tenant, session)
		if err == nil {
			err = turns.CheckEvent(ev)
		}
		if err != nil {
			e := ofError(err)
			if many {
				e.Message = fmt.Sprintf("event %d: %s", i, e.Message)
			}
			return nil, e
		}
		if key := h.Get(headerIdem); key != "" {
			ev.ID = schemas.CleanID(fmt.Sprintf("%s/%d", key, i))
		}
		ev.Trace = traceOf(h)
		out = append(out, ev)
	}
	return out, nil
}

func readEvent(raw json.RawMessage, tenant, session string) (turns.EventRequest, error) {
	var ev agentEvent
	if err := turns.DecodeRequest(raw, &ev); err != nil {
		return turns.EventRequest{}, err
	}
	if ev.Expected < 0 || ev.Expected > maxExpected {
		return turns.EventRequest{}, &turns.FieldError{Param: "expected_seconds", Message: fmt.Sprintf("expected_seconds is %v, allowed are 0 to %d", ev.Expected, maxExpected)}
	}
	clean := func(id string) string {
		if id == "" {
			return ""
		}
		return schemas.CleanID(id)
	}
	return turns.EventRequest{
		Tenant: tenant, Session: session, Kind: ev.Kind, Branch: clean(ev.Branch), Parent: clean(ev.Parent), Turn: clean(ev.Turn),
		Tool: ev.Tool, Expected: time.Duration(ev.Expected * float64(time.Second)), Reason: ev.Reason,
	}, nil
}

// oneSession shows or erases a session.
func (g *Gateway) oneSession(w http.ResponseWriter, r *http.Request) {
	leave, e := g.enter()
	if e != nil {
		writeError(w, e)
		return
	}
	defer leave()
	session := schemas.CleanID(r.PathValue("session"))
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		g.showSession(w, r, session)
	case http.MethodDelete:
		g.eraseSession(w, r, session)
	default:
		w.Header().Set("Allow", "GET, DELETE")
		writeError(w, &apiError{Status: http.StatusMethodNotAllowed, Type: typeInvalid, Code: "method_not_allowed", Message: r.Method + " is not allowed here, use GET or DELETE"})
	}
}

func (g *Gateway) showSession(w http.ResponseWriter, r *http.Request, session string) {
	reply, e := g.askSession(r.Context(), &schemas.SessionRequest{Header: schemas.H(), Tenant: g.o.Tenant, Session: session, Turn: r.URL.Query().Get("turn")})
	if e != nil {
		writeError(w, e)
		return
	}
	w.Header().Set(headerSession, session)
	writeJSON(w, http.StatusOK, reply)
}

// askSession asks lineage what it knows of a session.
func (g *Gateway) askSession(ctx context.Context, req *schemas.SessionRequest) (*schemas.SessionReply, *apiError) {
	b, err := schemas.Encode(req)
	if err != nil {
		return nil, invalid("turn", "%s", strings.TrimPrefix(err.Error(), schemas.ErrID.Error()+": "))
	}
	ctx, cancel := context.WithTimeout(ctx, sessionTimeout)
	defer cancel()
	m, err := g.o.Conn.RequestWithContext(ctx, schemas.SessionSubject(g.o.Cell), b)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, &apiError{Status: http.StatusServiceUnavailable, Type: typeServer, Code: "unavailable", Message: "lineage is not running in cell " + g.o.Cell, RetryAfter: 2 * time.Second}
	case err != nil:
		return nil, &apiError{Status: http.StatusServiceUnavailable, Type: typeServer, Code: "unavailable", Message: "lineage did not answer: " + err.Error(), RetryAfter: 2 * time.Second}
	}
	reply := new(schemas.SessionReply)
	switch err := schemas.Decode(m.Data, reply); {
	case err != nil:
		return nil, ofError(err)
	case reply.Error != "":
		return nil, &apiError{Status: http.StatusInternalServerError, Type: typeServer, Code: schemas.CodeInternal, Message: reply.Error}
	case !reply.Found:
		return nil, &apiError{Status: http.StatusNotFound, Type: typeInvalid, Code: schemas.CodeSession, Message: fmt.Sprintf("session %q is not known", req.Session)}
	}
	return reply, nil
}

func (g *Gateway) eraseSession(w http.ResponseWriter, r *http.Request, session string) {
	if g.o.Erase == nil {
		writeError(w, &apiError{Status: http.StatusNotImplemented, Type: typeServer, Code: "not_implemented", Message: "this gateway was started without the right to erase sessions; use weir session delete"})
		return
	}
	out, err := g.o.Erase(r.Context(), g.o.Tenant, session)
	var working interface{ Working() bool }
	if errors.As(err, &working) && working.Working() {
		writeError(w, &apiError{Status: http.StatusConflict, Type: typeInvalid, Code: "session_in_work", Message: err.Error()})
		return
	}
	if err != nil {
		writeError(w, ofError(err))
		return
	}
	w.Header().Set(headerSession, session)
	writeJSON(w, http.StatusOK, out)
}
