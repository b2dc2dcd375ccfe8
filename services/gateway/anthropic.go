package gateway

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
)

// anthropic is Anthropic's Messages API, POST /v1/messages. Shapes and the order of
// events follow the types of its TypeScript package. The headers anthropic-version
// and anthropic-beta are accepted and change nothing.
type anthropic struct{}

// String names the endpoint in metrics and spans.
func (anthropic) String() string { return "messages" }

// messagesMore is what an answer needs of its request.
type messagesMore struct {
	stops []string
}

// messagesRequest is a request's body. Of what concerns Anthropic's own service, the
// second group is refused and the third one accepted without effect.
type messagesRequest struct {
	Model         string            `json:"model"`
	Messages      []json.RawMessage `json:"messages"`
	MaxTokens     *int64            `json:"max_tokens"`
	System        json.RawMessage   `json:"system"`
	StopSequences []string          `json:"stop_sequences"`
	Stream        *bool             `json:"stream"`
	Temperature   *float64          `json:"temperature"`
	TopP          *float64          `json:"top_p"`
	TopK          *int64            `json:"top_k"`
	Tools         []json.RawMessage `json:"tools"`
	ToolChoice    json.RawMessage   `json:"tool_choice"`
	Thinking      json.RawMessage   `json:"thinking"`
	Metadata      json.RawMessage   `json:"metadata"`
	OutputConfig  json.RawMessage   `json:"output_config"`
	OutputFormat  json.RawMessage   `json:"output_format"`
	Weir          schemas.TurnMeta  `json:"weir"`

	Container  json.RawMessage `json:"container"`
	MCPServers json.RawMessage `json:"mcp_servers"`

	CacheControl      json.RawMessage `json:"cache_control"`
	ContextManagement json.RawMessage `json:"context_management"`
	Diagnostics       json.RawMessage `json:"diagnostics"`
	InferenceGeo      json.RawMessage `json:"inference_geo"`
	ServiceTier       json.RawMessage `json:"service_tier"`
	Speed             json.RawMessage `json:"speed"`
	UserProfileID     json.RawMessage `json:"user_profile_id"`
	WorkspaceID       json.RawMessage `json:"workspace_id"`
}

// messagesOptions are what the server decides about the translation.
type messagesOptions struct {
	// keepBilling keeps a first system block that only names the client's build.
	keepBilling bool
	// thinks: the model's template knows enable_thinking.
	thinks bool
}

func (g *Gateway) messagesOptions() messagesOptions {
	return messagesOptions{keepBilling: g.o.KeepBillingHeader, thinks: g.o.EnableThinking}
}

func (anthropic) parse(g *Gateway, _ *http.Request, body []byte) (*call, *apiError) {
	q := new(messagesRequest)
	if err := turns.DecodeRequest(body, q); err != nil {
		return nil, messagesError("", err)
	}
	if q.MaxTokens == nil {
		return nil, invalid("max_tokens", "max_tokens: Field required")
	}
	t, e := q.turn(g.messagesOptions())
	if e != nil {
		return nil, e
	}
	return &call{turn: t, stream: q.Stream != nil && *q.Stream, more: &messagesMore{stops: q.StopSequences}}, nil
}

// turn translates a request. max_tokens may be absent, for counting.
func (q *messagesRequest) turn(o messagesOptions) (*schemas.Turn, *apiError) {
	t := &schemas.Turn{Weir: q.Weir}
	t.Model, t.MaxTokens, t.Temperature, t.TopP, t.TopK = q.Model, q.MaxTokens, q.Temperature, q.TopP, q.TopK
	t.Stop, t.Metadata = q.StopSequences, q.Metadata
	if v := q.Temperature; v != nil && (*v < 0 || *v > 1) {
		return nil, invalid("temperature", "temperature: Input should be from 0 to 1")
	}
	for _, f := range [...]struct {
		name string
		raw  json.RawMessage
	}{{"container", q.Container}, {"mcp_servers", q.MCPServers}} {
		if given(f.raw) && string(f.raw) != "[]" {
			return nil, invalid(f.name, "%s: what runs on Anthropic's servers is not available here", f.name)
		}
	}
	var e *apiError
	if t.Messages, e = q.chat(o); e != nil {
		return nil, e
	}
	for _, set := range [...]func(*schemas.Turn) *apiError{q.tools, q.choice, q.format, func(t *schemas.Turn) *apiError { return q.think(t, o) }} {
		if e := set(t); e != nil {
			return nil, e
		}
	}
	if err := turns.CheckTurn(t); err != nil {
		e := ofError(err)
		if e.Param == "stop" {
			e.Param, e.Message = "stop_sequences", strings.Replace(e.Message, "stop", "stop_sequences", 1)
		}
		return nil, e
	}
	return t, nil
}

// messagesError words an error of decoding as Anthropic does, below a path.
func messagesError(path string, err error) *apiError {
	e := ofError(err)
	if path != "" && e.Param != "" {
		e.Param = path + "." + e.Param
	} else if path != "" {
		e.Param = path
	}
	switch {
	case e.Code == "unknown_parameter":
		e.Message = e.Param + ": Extra inputs are not permitted"
	case path != "":
		e.Message = e.Param + ": " + e.Message
	}
	return e
}

// below reads one object of a request strictly.
func below(path string, raw json.RawMessage, into any) *apiError {
	if len(raw) == 0 || raw[0] != '{' {
		return invalid(path, "%s: Input should be an object", path)
	}
	if err := turns.DecodeRequest(raw, into); err != nil {
		return messagesError(path, err)
	}
	return nil
}

// kindOf is an object's type; empty when it has none.
func kindOf(raw json.RawMessage) string {
	var k struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(raw, &k) != nil {
		return ""
	}
	return k.Type
}

// messagesTypes are Anthropic's names of errors by status.
var messagesTypes = map[int]string{
	http.StatusBadRequest: "invalid_request_error", http.StatusNotFound: "not_found_error", http.StatusMethodNotAllowed: "invalid_request_error",
	http.StatusUnsupportedMediaType: "invalid_request_error", http.StatusRequestEntityTooLarge: "request_too_large", http.StatusTooManyRequests: "rate_limit_error",
	http.StatusGatewayTimeout: "timeout_error", statusOverloaded: "overloaded_error",
}

// statusOverloaded is what Anthropic answers where others say 503.
const statusOverloaded = 529

// failure is Anthropic's error object. Statuses that its clients do not know become
// those that they do.
func (anthropic) failure(_ *call, e *apiError) []byte {
	switch e.Status {
	case http.StatusUnprocessableEntity:
		e.Status = http.StatusBadRequest
	case http.StatusServiceUnavailable:
		e.Status = statusOverloaded
	}
	kind, ok := messagesTypes[e.Status]
	if !ok {
		kind = "api_error"
	}
	type object struct {
		Type    string `json:"type"`
		Message string `json:"message"`
		Retry   int    `json:"retry_after,omitempty"` // seconds
	}
	b, err := json.Marshal(struct {
		Type  string `json:"type"`
		Error object `json:"error"`
	}{"error", object{kind, e.Message, e.retrySeconds()}})
	if err != nil { // strings always encode
		return []byte(`{"type":"error","error":{"type":"api_error","message":"internal error"}}`)
	}
	return b
}
