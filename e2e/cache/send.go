package cache

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/weir-dev/weir/e2e/stack"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
)

// answer is what is needed of a result.
type answer struct {
	prompt, cached, generated int
	decodeOn                  string
}

// session sends turns of one session; each call's text is the next user message.
type session interface {
	turn(ctx context.Context, text string, most int64) (answer, error)
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

func sender(s *stack.Stack, sc Scenario) (session, error) {
	id := strings.ReplaceAll(sc.String(), "/", "-")
	if sc.Form == Full {
		return &overHTTP{url: s.Ready.HTTP + "/v1/chat/completions", id: id}, nil
	}
	c, err := s.Client()
	return &overNATS{c: c, id: id}, err
}

// overNATS publishes turns that continue the last result.
type overNATS struct {
	c     *turns.Client
	id    string
	known string
}

func (o *overNATS) turn(ctx context.Context, text string, most int64) (answer, error) {
	m, err := json.Marshal(message{"user", text})
	if err != nil {
		return answer{}, err
	}
	t := &schemas.Turn{Weir: schemas.TurnMeta{IgnoreEOS: true, Known: o.known}}
	t.Messages, t.MaxTokens = []json.RawMessage{m}, &most
	s, err := o.c.Publish(ctx, turns.Request{Session: o.id, Turn: t})
	if err != nil {
		return answer{}, err
	}
	defer s.Close()
	r, err := turns.Collect(ctx, s, nil)
	if err != nil {
		return answer{}, errors.Join(err, context.Cause(ctx))
	}
	if r.Failure != nil {
		return answer{}, fmt.Errorf("%s: %s", r.Failure.Code, r.Failure.Message)
	}
	o.known = r.Known()
	return answer{r.Usage.Prompt, r.Usage.Cached, r.Usage.Completion, r.DecodeOn}, nil
}

// overHTTP sends the whole history again, as an OpenAI client does.
type overHTTP struct {
	url, id string
	history []message
}

func (o *overHTTP) turn(ctx context.Context, text string, most int64) (answer, error) {
	o.history = append(o.history, message{"user", text})
	body, err := json.Marshal(map[string]any{"messages": o.history, "max_tokens": most, "ignore_eos": true})
	if err != nil {
		return answer{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, o.url, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Weir-Session", o.id)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{}, errors.Join(err, context.Cause(ctx))
	}
	defer func() { _ = resp.Body.Close() }() // read to its end
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, err
	}
	if resp.StatusCode != http.StatusOK {
		return answer{}, fmt.Errorf("status %d: %s", resp.StatusCode, raw)
	}
	a, said, err := readAnswer(raw)
	if err != nil {
		return a, err
	}
	var m message
	if err := json.Unmarshal(said, &m); err != nil {
		return a, err
	}
	o.history = append(o.history, m)
	return a, nil
}
