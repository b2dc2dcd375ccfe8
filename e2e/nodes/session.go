package nodes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
)

// session publishes turns that continue each other, greedy, so that equal prompts
// give equal answers.
type session struct {
	c     *turns.Client
	id    string
	known string
}

// turn sends the next user message and returns the result. seen, when not nil, is
// called at the first token.
func (s *session) turn(ctx context.Context, text string, most int64, seen func()) (*schemas.Result, error) {
	m, err := json.Marshal(map[string]string{"role": "user", "content": text})
	if err != nil {
		return nil, err
	}
	greedy := 0.0
	t := &schemas.Turn{Weir: schemas.TurnMeta{IgnoreEOS: true, Known: s.known}}
	t.Messages, t.MaxTokens, t.Temperature = []json.RawMessage{m}, &most, &greedy
	st, err := s.c.Publish(ctx, turns.Request{Session: s.id, Turn: t})
	if err != nil {
		return nil, err
	}
	defer st.Close()
	r, err := turns.Collect(ctx, st, func(*turns.Event) error {
		if seen != nil {
			seen()
			seen = nil
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, context.Cause(ctx))
	}
	if r.Failure != nil {
		return nil, fmt.Errorf("%s: %s", r.Failure.Code, r.Failure.Message)
	}
	s.known = r.Known()
	return r, nil
}

// text is a message of about so many tokens of the random models, which have a token
// for 1.4 characters of it.
func text(topic string, tokens int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "About %s. ", topic)
	for i := 0; b.Len() < tokens*3/2; i++ {
		fmt.Fprintf(&b, "Line %d: the tool returned %d rows in %d ms. ", i, i*7919%1009, i*104729%997)
	}
	return b.String()
}
