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

// Span begins the span of a request below in and returns what ends it with the
// code of a failure.
type Span func(in schemas.Trace, subject string) func(code string)

// Serve answers on NATS until ctx ends. Several instances share the work. span may
// be nil.
func Serve(ctx context.Context, nc *nats.Conn, r *Renderer, version string, span Span) error {
	if span == nil {
		span = func(schemas.Trace, string) func(string) { return func(string) {} }
	}
	svc, err := micro.AddService(nc, micro.Config{Name: "weir-tokenize", Version: version, Description: "renders and tokenizes for model " + r.model.Name})
	if err != nil {
		return fmt.Errorf("tokenizer: %w", err)
	}
	err = svc.AddEndpoint("render", micro.HandlerFunc(func(req micro.Request) {
		var q schemas.RenderRequest
		var reply schemas.RenderReply
		end := span(schemas.Trace{Parent: req.Headers().Get("traceparent")}, req.Subject())
		if err := Unpack(req.Data(), &q); err != nil {
			reply = schemas.RenderReply{Header: schemas.H(), Failure: invalid("", "%s", err)}
		} else {
			reply = r.Render(&q)
		}
		code := ""
		if reply.Failure != nil {
			code = reply.Failure.Code
		}
		end(code)
		body, err := Pack(&reply)
		if err != nil {
			body, _ = schemas.Encode(&schemas.RenderReply{Header: schemas.H(), Failure: &schemas.Failure{
				Code: schemas.CodeTooLong, Param: "messages", Message: fmt.Sprintf("the rendered prompt is too large for one message: %s", err),
			}})
		}
		_ = req.Respond(body) // the asker repeats when it hears nothing
	}), micro.WithEndpointSubject(Subject(r.model.Name)))
	if err != nil {
		return fmt.Errorf("tokenizer: %w", err)
	}
	<-ctx.Done()
	return svc.Stop()
}
