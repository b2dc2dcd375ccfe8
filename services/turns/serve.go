package turns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/weir-dev/weir/schemas"
)

// Headers of a request to the service weir.turn. All are optional.
const (
	HeaderTenant  = "Weir-Tenant"
	HeaderSession = "Weir-Session"
)

// Service answers turns by request and reply: nats req weir.turn '{"messages":[…]}'.
type Service struct {
	micro  micro.Service
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// ServeOptions configure the service. The zero value is usable.
type ServeOptions struct {
	Version string // semantic version, 0.0.1 by default
	// MaxInFlight bounds turns of this instance; more are refused as overloaded. 1,024.
	MaxInFlight int
	Logger      *slog.Logger
}

// Serve registers the service on a connection. Instances share the requests.
func Serve(nc *nats.Conn, c *Client, o ServeOptions) (*Service, error) {
	if o.Version == "" {
		o.Version = "0.0.1"
	}
	if o.MaxInFlight <= 0 {
		o.MaxInFlight = 1024
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Service{cancel: cancel}
	slots := make(chan struct{}, o.MaxInFlight)
	m, err := micro.AddService(nc, micro.Config{
		Name: "weir-turn", Version: o.Version, Description: "answers one agent turn with its result; the body is a Chat Completions request",
		ErrorHandler: func(_ micro.Service, e *micro.NATSError) {
			o.Logger.Warn("service weir.turn", "subject", e.Subject, "error", e.Description)
		},
	})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("turns: registering the service %s: %w", schemas.TurnService, err)
	}
	s.micro = m
	err = m.AddEndpoint("turn", micro.HandlerFunc(func(req micro.Request) {
		select {
		case slots <- struct{}{}:
		default:
			_ = req.Error("429", fmt.Sprintf("%d turns are in work here; try again", o.MaxInFlight), nil)
			return
		}
		s.wg.Go(func() {
			defer func() { <-slots }()
			if err := answerRequest(ctx, c, req); err != nil {
				o.Logger.Warn("service weir.turn: answering", "error", err)
			}
		})
	}), micro.WithEndpointSubject(schemas.TurnService))
	if err != nil {
		cancel()
		_ = m.Stop()
		return nil, fmt.Errorf("turns: registering the endpoint %s: %w", schemas.TurnService, err)
	}
	return s, nil
}

// Stop takes no more requests and ends those in work.
func (s *Service) Stop() error {
	err := s.micro.Stop()
	s.cancel()
	s.wg.Wait()
	return err
}

func answerRequest(ctx context.Context, c *Client, req micro.Request) error {
	t := new(schemas.Turn)
	if err := schemas.Decode(req.Data(), t); err != nil {
		return req.Error("400", err.Error(), nil)
	}
	h := req.Headers()
	session := h.Get(HeaderSession)
	if session == "" {
		session = NewID("s")
	}
	t.Stream, t.StreamOptions = nil, nil
	limit := time.Now().Add(c.opts.Deadline)
	if d := t.Weir.DeadlineNS; d > 0 {
		limit = time.Unix(0, d)
	}
	ctx, cancel := context.WithDeadline(ctx, limit.Add(c.opts.SilenceMax))
	defer cancel()
	s, err := c.Publish(ctx, Request{
		Tenant: h.Get(HeaderTenant), Session: session, Turn: t,
		Trace: schemas.Trace{Parent: h.Get("traceparent"), State: h.Get("tracestate")},
	})
	if err != nil {
		code, text := explain(err)
		return req.Error(code, text, nil)
	}
	defer s.Close()
	res, err := Collect(ctx, s, nil)
	if err != nil {
		code, text := explain(err)
		return req.Error(code, text, nil)
	}
	b, err := json.Marshal(res)
	if err != nil {
		return req.Error("500", err.Error(), nil)
	}
	if f := res.Failure; f != nil {
		return req.Error(f.Code, f.Message, b)
	}
	return req.Respond(b)
}

// explain gives an error the code that a caller of the service sees.
func explain(err error) (code, text string) {
	var f *FailureError
	switch {
	case errors.As(err, &f):
		return f.Failure.Code, f.Failure.Message
	case errors.Is(err, ErrBusy):
		return schemas.CodeBusy, err.Error()
	case errors.Is(err, ErrInvalid), errors.Is(err, ErrTooLarge):
		return schemas.CodeInvalid, err.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return schemas.CodeDeadline, "no result within the turn's deadline"
	}
	return schemas.CodeInternal, err.Error()
}
