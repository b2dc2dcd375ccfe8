package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
)

// responses is OpenAI's Responses API, POST /v1/responses. Shapes and the order of
// events follow the types of its TypeScript package. /v1/responses/compact does not
// exist here: clients with a base URL of their own compact by an ordinary turn.
type responses struct{}

// String names the endpoint in metrics and spans.
func (responses) String() string { return "responses" }

// responsesRequest is a request's body. The second group is refused; the third one is
// repeated in the answer, or concerns OpenAI's own service, and has no effect.
type responsesRequest struct {
	Model           string            `json:"model"`
	Input           json.RawMessage   `json:"input"`
	Instructions    *string           `json:"instructions"`
	Previous        *string           `json:"previous_response_id"`
	MaxOutputTokens *int64            `json:"max_output_tokens"`
	Stream          *bool             `json:"stream"`
	StreamOptions   json.RawMessage   `json:"stream_options"`
	Temperature     *float64          `json:"temperature"`
	TopP            *float64          `json:"top_p"`
	Tools           []json.RawMessage `json:"tools"`
	ToolChoice      json.RawMessage   `json:"tool_choice"`
	Parallel        *bool             `json:"parallel_tool_calls"`
	Text            json.RawMessage   `json:"text"`
	Reasoning       json.RawMessage   `json:"reasoning"`
	User            json.RawMessage   `json:"user"`
	Metadata        json.RawMessage   `json:"metadata"`
	PromptCacheKey  json.RawMessage   `json:"prompt_cache_key"`
	Weir            schemas.TurnMeta  `json:"weir"`
	NVExt           json.RawMessage   `json:"nvext"`

	Background   *bool           `json:"background"`
	Conversation json.RawMessage `json:"conversation"`
	Prompt       json.RawMessage `json:"prompt"`
	TopLogprobs  *int64          `json:"top_logprobs"`

	Include              json.RawMessage `json:"include"`
	Store                *bool           `json:"store"`
	Truncation           *string         `json:"truncation"`
	MaxToolCalls         *int64          `json:"max_tool_calls"`
	ServiceTier          json.RawMessage `json:"service_tier"`
	SafetyIdentifier     json.RawMessage `json:"safety_identifier"`
	PromptCacheRetention json.RawMessage `json:"prompt_cache_retention"`
	PromptCacheOptions   json.RawMessage `json:"prompt_cache_options"`
	ContextManagement    json.RawMessage `json:"context_management"`
	ClientMetadata       json.RawMessage `json:"client_metadata"`
}

// responsesMore is what an answer needs of its request.
type responsesMore struct {
	req    *responsesRequest
	digest string // of the instructions that the context begins with
}

func (responses) parse(g *Gateway, r *http.Request, body []byte) (*call, *apiError) {
	q := new(responsesRequest)
	if err := turns.DecodeRequest(body, q); err != nil {
		return nil, ofError(err)
	}
	c := &call{stream: q.Stream != nil && *q.Stream, said: saidIn(q.ClientMetadata)}
	more := &responsesMore{req: q, digest: textDigest(q.Instructions)}
	c.more = more
	var last *schemas.Result
	if q.Previous != nil && *q.Previous != "" {
		id, e := parseResponseID(*q.Previous)
		if e != nil {
			return nil, e
		}
		if more.digest != id.digest && q.Instructions != nil {
			return nil, invalid("instructions", "the context of previous_response_id begins with other instructions; send the same ones or none, or the whole conversation as input")
		}
		more.digest = id.digest
		if last, e = g.previous(r, id); e != nil {
			return nil, e
		}
	}
	t, e := q.turn(last == nil, g.o.EnableThinking)
	if e != nil {
		return nil, e
	}
	if last != nil {
		// Without a branch lineage goes on with the one that the answer ends, or forks.
		c.session, t.Weir.Known = last.Session, last.Known()
	}
	if c.turn = t; c.stream {
		return c, nil
	}
	if given(q.StreamOptions) {
		return nil, invalid("stream_options", "stream_options is only allowed when stream is true")
	}
	return c, nil
}

// responseID names an answer: its turn, and the instructions of its context, which
// a turn that continues it may repeat.
type responseID struct{ session, turn, digest string }

// String is resp_<session>.<turn>.<digest>; ids have no points.
func (id responseID) String() string {
	return "resp_" + id.session + "." + id.turn + "." + id.digest
}

func parseResponseID(s string) (responseID, *apiError) {
	rest, ok := strings.CutPrefix(s, "resp_")
	parts := strings.Split(rest, ".")
	if !ok || len(parts) != 3 || !schemas.ValidID(parts[0]) || !schemas.ValidID(parts[1]) || !schemas.ValidID(parts[2]) {
		return responseID{}, noResponse(s)
	}
	return responseID{parts[0], parts[1], parts[2]}, nil
}

func noResponse(id string) *apiError {
	return &apiError{
		Status: http.StatusBadRequest, Type: typeInvalid, Code: "previous_response_not_found", Param: "previous_response_id",
		Message: fmt.Sprintf("Previous response with id %.200q not found.", id),
	}
}

// textDigest names instructions in an id; 0 for none.
func textDigest(s *string) string {
	if s == nil || *s == "" {
		return "0"
	}
	sum := sha256.Sum256([]byte(*s))
	return hex.EncodeToString(sum[:8])
}

// previous reads the result that a turn continues.
func (g *Gateway) previous(r *http.Request, id responseID) (*schemas.Result, *apiError) {
	res, err := g.turns.Result(r.Context(), turns.Ref{Tenant: g.o.Tenant, Session: id.session, Turn: id.turn})
	switch {
	case errors.Is(err, turns.ErrNotFound):
		return nil, noResponse(id.String())
	case err != nil:
		return nil, ofError(err)
	case res.Failure != nil:
		return nil, invalid("previous_response_id", "response %s failed (%s) and cannot be continued", id, res.Failure.Code)
	}
	return res, nil
}

// failure is OpenAI's error object. A context that is gone is named by the field
// that asked for it.
func (responses) failure(c *call, e *apiError) []byte {
	if e.Code == schemas.CodeNeedFull || e.Code == schemas.CodeSession {
		if more, ok := callMore(c); ok && more.req.Previous != nil {
			e.Status, e.Param = http.StatusBadRequest, "previous_response_id"
			e.Message = "the context of previous_response_id is not there any more; send the whole conversation as input"
		}
	}
	return e.body()
}

func callMore(c *call) (*responsesMore, bool) {
	if c == nil {
		return nil, false
	}
	more, ok := c.more.(*responsesMore)
	return more, ok
}

// oneResponse answers GET /v1/responses/{id} from the stored result. What only the
// request said (instructions, tools, metadata) is not stored with it.
func (g *Gateway) oneResponse(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("id")
	missing := &apiError{Status: http.StatusNotFound, Type: typeInvalid, Code: "response_not_found", Param: "id", Message: fmt.Sprintf("Response with id %.200q not found.", name)}
	if v := r.URL.Query().Get("stream"); v != "" && v != "false" {
		writeError(w, invalid("stream", "a stored response is not streamed again; ask without stream"))
		return
	}
	id, e := parseResponseID(name)
	if e != nil {
		writeError(w, missing)
		return
	}
	ref := turns.Ref{Tenant: g.o.Tenant, Session: id.session, Turn: id.turn}
	res, err := g.turns.Result(r.Context(), ref)
	if errors.Is(err, turns.ErrNotFound) {
		writeError(w, missing)
		return
	}
	if err != nil {
		writeError(w, ofError(err))
		return
	}
	c := &call{session: id.session, ref: ref, model: res.Model, created: res.Timing.AdmittedNS / int64(time.Second), more: &responsesMore{req: &responsesRequest{}, digest: id.digest}}
	if res.Failure != nil {
		out := responseOf(c)
		out.fail(ofFailure(res.Failure))
		writeJSON(w, http.StatusOK, out)
		return
	}
	writeJSON(w, http.StatusOK, responses{}.whole(c, replyOf(res, nil)))
}
