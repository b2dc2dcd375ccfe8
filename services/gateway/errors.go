package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
)

// Types of errors, as OpenAI names them.
const (
	typeInvalid = "invalid_request_error"
	typeRate    = "rate_limit_error"
	typeServer  = "server_error"
)

// statusGone is what is recorded, and never read by the client, when it went away.
const statusGone = 499

// apiError is an error as the client sees it.
type apiError struct {
	Status     int
	Type       string
	Code       string
	Param      string
	Message    string
	RetryAfter time.Duration
}

// retrySeconds is RetryAfter in whole seconds, never sooner; 0 when no time is named.
// It stands in the header, and in the error too: one that comes in a stream that has
// begun has no header.
func (e *apiError) retrySeconds() int { return int(math.Ceil(e.RetryAfter.Seconds())) }

// body is OpenAI's error object. Empty param and code are null.
func (e *apiError) body() []byte {
	or := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	type object struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
		Retry   int     `json:"retry_after,omitempty"` // seconds
	}
	b, err := json.Marshal(struct {
		Error object `json:"error"`
	}{object{e.Message, e.Type, or(e.Param), or(e.Code), e.retrySeconds()}})
	if err != nil { // strings always encode
		return []byte(`{"error":{"message":"internal error","type":"server_error","param":null,"code":null}}`)
	}
	return b
}

// failures is the table of a turn's failure codes. Clients repeat requests with
// status 408, 409, 429 and 5xx by themselves, so what must not be repeated (a turn
// that ends executors, a turn id with other content) has none of these.
var failures = map[string]struct {
	status int
	kind   string
}{
	schemas.CodeInvalid:   {http.StatusBadRequest, typeInvalid},
	schemas.CodeTooLong:   {http.StatusBadRequest, typeInvalid},
	schemas.CodeModel:     {http.StatusNotFound, typeInvalid},
	schemas.CodeSession:   {http.StatusNotFound, typeInvalid},
	schemas.CodeNeedFull:  {http.StatusUnprocessableEntity, typeInvalid},
	schemas.CodeConflict:  {http.StatusUnprocessableEntity, typeInvalid},
	schemas.CodePoison:    {http.StatusUnprocessableEntity, typeInvalid},
	schemas.CodeBusy:      {http.StatusTooManyRequests, typeRate},
	schemas.CodeDeadline:  {http.StatusGatewayTimeout, typeServer},
	schemas.CodeCancelled: {statusGone, typeInvalid},
	schemas.CodeEngine:    {http.StatusInternalServerError, typeServer},
	schemas.CodeInternal:  {http.StatusInternalServerError, typeServer},
}

// ofFailure turns a turn's failure into an error.
func ofFailure(f *schemas.Failure) *apiError {
	row, ok := failures[f.Code]
	if !ok {
		row = failures[schemas.CodeInternal]
	}
	e := &apiError{Status: row.status, Type: row.kind, Code: f.Code, Param: f.Param, Message: f.Message}
	if e.Status == http.StatusTooManyRequests {
		e.RetryAfter = max(time.Duration(f.RetryNS), time.Second)
	}
	return e
}

// ofError turns an error of the turn path into one for the client.
func ofError(err error) *apiError {
	var field *turns.FieldError
	var busy *turns.BusyError
	var failed *turns.FailureError
	switch {
	case errors.As(err, &field):
		e := &apiError{Status: http.StatusBadRequest, Type: typeInvalid, Code: schemas.CodeInvalid, Param: field.Param, Message: field.Message}
		if field.Unknown {
			e.Code = "unknown_parameter"
		}
		return e
	case errors.As(err, &failed):
		return ofFailure(&failed.Failure)
	case errors.As(err, &busy):
		return &apiError{Status: http.StatusServiceUnavailable, Type: typeServer, Code: schemas.CodeBusy, Message: busy.Error(), RetryAfter: busy.RetryAfter}
	case errors.Is(err, turns.ErrTooLarge):
		return &apiError{Status: http.StatusRequestEntityTooLarge, Type: typeInvalid, Code: "request_too_large", Message: err.Error()}
	case errors.Is(err, turns.ErrInvalid):
		return &apiError{Status: http.StatusBadRequest, Type: typeInvalid, Code: schemas.CodeInvalid, Message: err.Error()}
	case errors.Is(err, turns.ErrUnavailable), errors.Is(err, turns.ErrClosed):
		return &apiError{Status: http.StatusServiceUnavailable, Type: typeServer, Code: "unavailable", Message: err.Error(), RetryAfter: 2 * time.Second}
	case errors.Is(err, context.DeadlineExceeded):
		return &apiError{Status: http.StatusGatewayTimeout, Type: typeServer, Code: schemas.CodeDeadline, Message: "no answer within the turn's deadline"}
	case errors.Is(err, context.Canceled):
		return &apiError{Status: statusGone, Type: typeInvalid, Code: schemas.CodeCancelled, Message: "the client closed the request"}
	}
	return &apiError{Status: http.StatusInternalServerError, Type: typeServer, Code: schemas.CodeInternal, Message: err.Error()}
}

// writeError answers with an error in OpenAI's shape.
func writeError(w http.ResponseWriter, e *apiError) { writeErrorBody(w, e, e.body()) }

func writeErrorBody(w http.ResponseWriter, e *apiError, body []byte) {
	h := w.Header()
	if e.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(e.retrySeconds()))
	}
	switch e.Status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, statusOverloaded:
	default:
		// OpenAI's clients repeat 5xx otherwise; a turn that failed was tried enough.
		h.Set("X-Should-Retry", "false")
	}
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(e.Status)
	_, _ = w.Write(body) // a client that is gone hears nothing
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		writeError(w, &apiError{Status: http.StatusInternalServerError, Type: typeServer, Code: schemas.CodeInternal, Message: err.Error()})
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n'))
}
