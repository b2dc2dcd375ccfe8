package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/tokenizer"
	"github.com/weir-dev/weir/services/turns"
)

// renderWait bounds the wait for the tokenizer. It works off a prompt of 100,000
// tokens in about a tenth of a second.
const renderWait = 30 * time.Second

// render asks the tokenizer of a model.
func (g *Gateway) render(ctx context.Context, model string, req *schemas.RenderRequest) (*schemas.RenderReply, *apiError) {
	req.Header, req.NowNS = schemas.H(), time.Now().UnixNano()
	name, ok := g.servedAs(model)
	if !ok {
		return nil, g.withModels(&apiError{Status: http.StatusNotFound, Type: typeInvalid, Code: schemas.CodeModel, Param: "model", Message: "model " + quoted(model) + " is not served here"})
	}
	body, err := tokenizer.Pack(req)
	if err != nil {
		return nil, &apiError{
			Status: http.StatusRequestEntityTooLarge, Type: typeInvalid, Code: "request_too_large",
			Message: "this request is too large to be counted: " + err.Error(),
		}
	}
	ctx, cancel := context.WithTimeout(ctx, renderWait)
	defer cancel()
	m, err := g.o.Conn.RequestWithContext(ctx, tokenizer.Subject(name), body)
	switch {
	case err != nil && ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, ofError(context.Canceled)
	case err != nil:
		return nil, &apiError{
			Status: http.StatusServiceUnavailable, Type: typeServer, Code: "unavailable", RetryAfter: 2 * time.Second,
			Message: "the tokenizer of model " + quoted(name) + " does not answer: " + err.Error(),
		}
	}
	reply := new(schemas.RenderReply)
	if err := tokenizer.Unpack(m.Data, reply); err != nil {
		return nil, ofError(err)
	}
	if reply.Failure != nil {
		return nil, ofFailure(reply.Failure)
	}
	return reply, nil
}

func quoted(s string) string {
	if len(s) > 200 {
		s = s[:200]
	}
	return string(quote(nil, s))
}

// servedAs is the name under which a model that a request names is served: lineage
// takes "default" and "weir" for the first one, and so does counting.
func (g *Gateway) servedAs(model string) (name string, ok bool) {
	models := g.fleet.models()
	switch {
	case len(models) == 0:
		return "", false
	case model == "", model == "default", model == "weir":
		return models[0].Name, true
	}
	return model, slices.ContainsFunc(models, func(m Model) bool { return m.Name == model })
}

// renderOf is what of a turn decides about its prompt.
func renderOf(t *schemas.Turn) *schemas.RenderRequest {
	return &schemas.RenderRequest{Messages: t.Messages, Tools: t.Tools, Kwargs: t.ChatTemplateKwargs, ToolChoice: shown(t.ToolChoice)}
}

// shown is a choice as far as it decides which tools a prompt shows. A call that must
// come constrains the answer only, and engines that cannot do that can count.
func shown(choice json.RawMessage) json.RawMessage {
	var c struct {
		Allowed struct {
			Mode string `json:"mode"`
		} `json:"allowed_tools"`
	}
	if string(choice) == `"none"` || json.Unmarshal(choice, &c) == nil && c.Allowed.Mode == "auto" {
		return choice
	}
	return nil
}

// counting answers a request that asks for tokens only. read makes the question,
// done the answer.
func (g *Gateway) counting(fail func(http.ResponseWriter, *apiError), read func(body []byte) (string, *schemas.RenderRequest, *apiError), done func(*schemas.RenderReply) any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		leave, e := g.enter()
		if e != nil {
			fail(w, e)
			return
		}
		defer leave()
		body, release, e := g.take(w, r)
		if e != nil {
			fail(w, e)
			return
		}
		defer release()
		model, req, e := read(body)
		if e != nil {
			fail(w, e)
			return
		}
		reply, e := g.render(r.Context(), model, req)
		if e != nil {
			fail(w, e)
			return
		}
		writeJSON(w, http.StatusOK, done(reply))
	}
}

// countMessages is Anthropic's POST /v1/messages/count_tokens.
func (g *Gateway) countMessages() http.HandlerFunc {
	fail := func(w http.ResponseWriter, e *apiError) {
		body := anthropic{}.failure(nil, e)
		writeErrorBody(w, e, body)
	}
	return g.counting(fail, func(body []byte) (string, *schemas.RenderRequest, *apiError) {
		q := new(messagesRequest)
		if err := turns.DecodeRequest(body, q); err != nil {
			return "", nil, messagesError("", err)
		}
		t, e := q.turn(g.messagesOptions())
		if e != nil {
			return "", nil, e
		}
		return t.Model, renderOf(t), nil
	}, func(r *schemas.RenderReply) any {
		return struct {
			N int `json:"input_tokens"`
		}{len(r.Tokens)}
	})
}

// countResponses is OpenAI's POST /v1/responses/input_tokens.
func (g *Gateway) countResponses() http.HandlerFunc {
	return g.counting(writeError, func(body []byte) (string, *schemas.RenderRequest, *apiError) {
		q := new(responsesRequest)
		if err := turns.DecodeRequest(body, q); err != nil {
			return "", nil, ofError(err)
		}
		if q.Previous != nil && *q.Previous != "" {
			return "", nil, invalid("previous_response_id", "only whole conversations are counted; send the input of all turns")
		}
		t, e := q.turn(true, g.o.EnableThinking)
		if e != nil {
			return "", nil, e
		}
		return t.Model, renderOf(t), nil
	}, func(r *schemas.RenderReply) any {
		return struct {
			Object string `json:"object"`
			N      int    `json:"input_tokens"`
		}{"response.input_tokens", len(r.Tokens)}
	})
}

// tokenizeRequest is the body of POST /tokenize, as vLLM has it.
type tokenizeRequest struct {
	Model         string            `json:"model"`
	Prompt        *string           `json:"prompt"`
	Messages      []json.RawMessage `json:"messages"`
	Tools         []json.RawMessage `json:"tools"`
	Kwargs        json.RawMessage   `json:"chat_template_kwargs"`
	Special       *bool             `json:"add_special_tokens"`
	Generation    *bool             `json:"add_generation_prompt"`
	ContinueFinal *bool             `json:"continue_final_message"`
	Strings       *bool             `json:"return_token_strs"`
}

// tokenize is vLLM's POST /tokenize.
func (g *Gateway) tokenize() http.HandlerFunc {
	yes := func(b *bool) bool { return b != nil && *b }
	return g.counting(writeError, func(body []byte) (string, *schemas.RenderRequest, *apiError) {
		q := new(tokenizeRequest)
		if err := turns.DecodeRequest(body, q); err != nil {
			return "", nil, ofError(err)
		}
		switch {
		case (q.Prompt == nil) == (len(q.Messages) == 0):
			return "", nil, invalid("prompt", "give either prompt or messages")
		case q.Generation != nil && !*q.Generation:
			return "", nil, invalid("add_generation_prompt", "messages are always rendered with the generation prompt")
		case yes(q.ContinueFinal):
			return "", nil, invalid("continue_final_message", "an answer that was begun is not continued here")
		case yes(q.Strings):
			return "", nil, invalid("return_token_strs", "the texts of tokens are not available here")
		}
		req := &schemas.RenderRequest{Messages: q.Messages, Tools: q.Tools, Kwargs: q.Kwargs}
		if q.Prompt != nil {
			req.Text, req.Continue = *q.Prompt, q.Special != nil && !*q.Special
		}
		return q.Model, req, nil
	}, func(r *schemas.RenderReply) any {
		return struct {
			Count   int            `json:"count"`
			Max     int            `json:"max_model_len"`
			Tokens  schemas.Tokens `json:"tokens"`
			Strings *[]string      `json:"token_strs"`
		}{len(r.Tokens), g.o.Context, r.Tokens, nil}
	})
}
