package tokenizer

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/weir-dev/weir/schemas"
)

// Subject is where the tokenizer of a model answers.
func Subject(model string) string { return schemas.TokenizeService + "." + model }

// Serve answers on NATS until ctx ends. Several instances share the work.
func Serve(ctx context.Context, nc *nats.Conn, r *Renderer, version string) error {
	svc, err := micro.AddService(nc, micro.Config{Name: "weir-tokenize", Version: version, Description: "renders and tokenizes for model " + r.model.Name})
	if err != nil {
		return fmt.Errorf("tokenizer: %w", err)
	}
	err = svc.AddEndpoint("render", micro.HandlerFunc(func(req micro.Request) {
		var q schemas.RenderRequest
		var reply schemas.RenderReply
		if err := schemas.Decode(req.Data(), &q); err != nil {
			reply = schemas.RenderReply{Header: schemas.H(), Failure: invalid("", "%s", err)}
		} else {
			reply = r.Render(&q)
		}
		body, err := schemas.Encode(&reply)
		if err != nil {
			body, _ = schemas.Encode(&schemas.RenderReply{Header: schemas.H(), Failure: invalid("messages", "the rendered prompt is too large for one message: %s", err)})
		}
		_ = req.Respond(body) // the asker repeats when it hears nothing
	}), micro.WithEndpointSubject(Subject(r.model.Name)))
	if err != nil {
		return fmt.Errorf("tokenizer: %w", err)
	}
	<-ctx.Done()
	return svc.Stop()
}
