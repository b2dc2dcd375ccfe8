package stack

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/tokenizer"
)

// renderWait bounds one question to the tokenizer.
const renderWait = 30 * time.Second

// Render asks the tokenizer of a model to render or tokenize. A refusal is an error.
func Render(ctx context.Context, nc *nats.Conn, model string, req *schemas.RenderRequest) (*schemas.RenderReply, error) {
	body, err := schemas.Encode(req)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, renderWait)
	defer cancel()
	m, err := nc.RequestWithContext(ctx, tokenizer.Subject(model), body)
	if err != nil {
		return nil, fmt.Errorf("stack: asking the tokenizer of %s: %w", model, err)
	}
	r := new(schemas.RenderReply)
	if err := schemas.Decode(m.Data, r); err != nil {
		return nil, err
	}
	if f := r.Failure; f != nil {
		return nil, fmt.Errorf("stack: the tokenizer of %s refuses: %s: %s", model, f.Code, f.Message)
	}
	return r, nil
}

// Tokens are the tokens of a text in mid-answer, as weir.force_output takes them.
func Tokens(ctx context.Context, nc *nats.Conn, model, text string) (schemas.Tokens, error) {
	r, err := Render(ctx, nc, model, &schemas.RenderRequest{Header: schemas.H(), Text: text, Continue: true})
	if err != nil {
		return nil, err
	}
	return r.Tokens, nil
}
