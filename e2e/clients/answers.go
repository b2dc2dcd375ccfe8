package clients

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-dev/weir/e2e/stack"
)

// word is what every look_up call must have as arguments: its schema allows no more.
func word(arguments []byte) error {
	var a map[string]string
	if err := json.Unmarshal(arguments, &a); err != nil || len(a) != 1 || a["word"] != "harbour" && a["word"] != "tide" {
		return fmt.Errorf("arguments are %q (%w)", arguments, err)
	}
	return nil
}

type chatCall struct {
	ID       string
	Type     string
	Function struct{ Name, Arguments string }
}

type chatAnswer struct {
	Choices []struct {
		Message struct {
			Content *string
			Calls   []chatCall `json:"tool_calls"`
		}
		FinishReason string `json:"finish_reason"`
	}
}

// called is the only call of an answer.
func (c *chatAnswer) called() (*chatCall, error) {
	if len(c.Choices) != 1 || c.Choices[0].FinishReason != "tool_calls" || len(c.Choices[0].Message.Calls) != 1 {
		return nil, fmt.Errorf("an answer that must be one call is %+v", c)
	}
	f := &c.Choices[0].Message.Calls[0]
	if f.ID == "" || f.Type != "function" || f.Function.Name != "look_up" {
		return nil, fmt.Errorf("the call is %+v", f)
	}
	return f, word([]byte(f.Function.Arguments))
}

// openaiTools: a required call comes whole and in pieces, and its result goes back.
func (p *Programs) openaiTools(ctx context.Context, s *stack.Stack) error {
	var r struct {
		Whole, Streamed, Last chatAnswer
		Parts                 int
	}
	if err := p.run(ctx, s, &r, "client.mjs", s.Ready.HTTP+"/v1", "tools"); err != nil {
		return err
	}
	whole, err := r.Whole.called()
	if err != nil {
		return err
	}
	streamed, err := r.Streamed.called()
	if err != nil {
		return fmt.Errorf("streamed: %w", err)
	}
	if whole.Function != streamed.Function || r.Parts < 2 {
		return fmt.Errorf("whole %+v, streamed in %d parts %+v", whole, r.Parts, streamed)
	}
	if c := r.Last.Choices; len(c) != 1 || len(c[0].Message.Calls) != 0 || c[0].Message.Content == nil {
		return fmt.Errorf("the answer behind the result is %+v", r.Last)
	}
	return nil
}

type responsesAnswer struct {
	ID     string
	Status string
	Output []struct {
		Type, Status, Name, Arguments string
		CallID                        string `json:"call_id"`
		Content                       []struct{ Type, Text string }
	}
	Usage responsesUsage
}

type responsesUsage struct {
	Input   int `json:"input_tokens"`
	Output  int `json:"output_tokens"`
	Details struct {
		Cached int `json:"cached_tokens"`
	} `json:"input_tokens_details"`
}

// openaiResponses: a turn continues the one before by its id and finds its context,
// a second one forks there, what is stored is what was answered, and a streamed call has its events in order.
func (p *Programs) openaiResponses(ctx context.Context, s *stack.Stack) error {
	var r struct {
		First, Second, Forked, Stored, Called responsesAnswer
		Events                                [][2]any
	}
	if err := p.run(ctx, s, &r, "client.mjs", s.Ready.HTTP+"/v1", "responses"); err != nil {
		return err
	}
	text := func(a *responsesAnswer) string {
		if len(a.Output) != 1 || a.Output[0].Type != "message" || len(a.Output[0].Content) != 1 {
			return ""
		}
		return a.Output[0].Content[0].Text
	}
	var errs []error
	if text(&r.First) == "" || text(&r.Second) == "" || text(&r.Forked) == "" || r.Stored.ID != r.First.ID || text(&r.Stored) != text(&r.First) {
		errs = append(errs, fmt.Errorf("first %+v, second %+v, forked %+v, stored %+v", r.First, r.Second, r.Forked, r.Stored))
	}
	// Whole blocks of 64 tokens are found again, by the turn that goes on and by one
	// that forks from what it went on from.
	for _, u := range []responsesUsage{r.Second.Usage, r.Forked.Usage} {
		if first := r.First.Usage; u.Input <= first.Input || u.Details.Cached < first.Input/64*64 {
			errs = append(errs, fmt.Errorf("a later turn found %d of %d tokens, the first one had %d", u.Details.Cached, u.Input, first.Input))
		}
	}
	if o := r.Called.Output; r.Called.Status != "completed" || len(o) != 1 || o[0].Type != "function_call" || o[0].CallID == "" || o[0].Name != "look_up" {
		errs = append(errs, fmt.Errorf("the call is %+v", r.Called))
	} else if err := word([]byte(o[0].Arguments)); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(append(errs, ordered(r.Events))...)
}

// ordered: events are numbered without a gap and come in the order of the API.
func ordered(events [][2]any) error {
	var kinds []string
	for i, e := range events {
		if n, _ := e[0].(float64); int(n) != i {
			return fmt.Errorf("event %d has number %v", i, e[0])
		}
		kind, _ := e[1].(string)
		if len(kinds) == 0 || kinds[len(kinds)-1] != kind {
			kinds = append(kinds, kind)
		}
	}
	want := []string{
		"response.created", "response.in_progress", "response.output_item.added", "response.function_call_arguments.delta",
		"response.function_call_arguments.done", "response.output_item.done", "response.completed",
	}
	if !slices.Equal(kinds, want) {
		return fmt.Errorf("events are %v", kinds)
	}
	return nil
}

type anthropicUsage struct {
	Input    int `json:"input_tokens"`
	Read     int `json:"cache_read_input_tokens"`
	Creation int `json:"cache_creation_input_tokens"`
	Output   int `json:"output_tokens"`
}

type anthropicAnswer struct {
	Type, Role, Model string
	Content           []struct {
		Type, Text, ID, Name string
		Input                json.RawMessage
	}
	StopReason   string  `json:"stop_reason"`
	StopSequence *string `json:"stop_sequence"`
	Usage        anthropicUsage
}

func (a *anthropicAnswer) text() string {
	if len(a.Content) != 1 || a.Content[0].Type != "text" || a.Type != "message" || a.Role != "assistant" {
		return ""
	}
	return a.Content[0].Text
}

// anthropic runs the steps of anthropic.mjs.
func (p *Programs) anthropic(ctx context.Context, s *stack.Stack) error {
	return errors.Join(p.anthropicWhole(ctx, s), p.anthropicStream(ctx, s), p.anthropicTools(ctx, s), p.anthropicCount(ctx, s), p.anthropicStop(ctx, s), p.anthropicModels(ctx, s), p.anthropicErrors(ctx, s))
}

func (p *Programs) anthropicWhole(ctx context.Context, s *stack.Stack) error {
	var r struct{ First, Second anthropicAnswer }
	if err := p.run(ctx, s, &r, "anthropic.mjs", "whole"); err != nil {
		return err
	}
	a, b := r.First, r.Second
	if a.text() == "" || a.text() != b.text() || a.StopReason != "max_tokens" || a.Usage.Output != 24 {
		return fmt.Errorf("first %+v, second %+v", a, b)
	}
	if prompt := a.Usage.Input + a.Usage.Read; a.Usage.Read != 0 || b.Usage.Read != (prompt-1)/64*64 || b.Usage.Input+b.Usage.Read != prompt {
		return fmt.Errorf("usage %+v, then %+v", a.Usage, b.Usage)
	}
	return nil
}

func (p *Programs) anthropicStream(ctx context.Context, s *stack.Stack) error {
	var r struct {
		Whole, Last anthropicAnswer
		Text        string
		Events      []string
		Deltas      int
	}
	if err := p.run(ctx, s, &r, "anthropic.mjs", "stream"); err != nil {
		return err
	}
	want := []string{"message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop"}
	if r.Text == "" || r.Text != r.Whole.text() || r.Last.text() != r.Text || !slices.Equal(r.Events, want) || r.Deltas < 2 || r.Last.StopReason != r.Whole.StopReason {
		return fmt.Errorf("the stream is %+v", r)
	}
	if r.Last.Usage.Output != 24 || r.Last.Usage.Input+r.Last.Usage.Read != r.Whole.Usage.Input+r.Whole.Usage.Read {
		return fmt.Errorf("usage of the stream is %+v, of the whole answer %+v", r.Last.Usage, r.Whole.Usage)
	}
	return nil
}

func (p *Programs) anthropicTools(ctx context.Context, s *stack.Stack) error {
	var r struct{ First, Streamed, Second anthropicAnswer }
	if err := p.run(ctx, s, &r, "anthropic.mjs", "tools"); err != nil {
		return err
	}
	for _, a := range []anthropicAnswer{r.First, r.Streamed} {
		if len(a.Content) != 1 || a.Content[0].Type != "tool_use" || a.Content[0].Name != "look_up" || a.Content[0].ID == "" || a.StopReason != "tool_use" {
			return fmt.Errorf("an answer that must be one call is %+v", a)
		}
		if err := word(a.Content[0].Input); err != nil {
			return err
		}
	}
	if string(r.First.Content[0].Input) != string(r.Streamed.Content[0].Input) {
		return fmt.Errorf("whole %s, streamed %s", r.First.Content[0].Input, r.Streamed.Content[0].Input)
	}
	if r.Second.text() == "" {
		return fmt.Errorf("the answer behind the result is %+v", r.Second)
	}
	return nil
}

// anthropicCount: counted tokens are those that the same request then has.
func (p *Programs) anthropicCount(ctx context.Context, s *stack.Stack) error {
	var r struct {
		Counted struct {
			Input int `json:"input_tokens"`
		}
		Usage anthropicUsage
	}
	if err := p.run(ctx, s, &r, "anthropic.mjs", "count"); err != nil {
		return err
	}
	if r.Counted.Input == 0 || r.Counted.Input != r.Usage.Input+r.Usage.Read {
		return fmt.Errorf("%d tokens were counted, the answer says %+v", r.Counted.Input, r.Usage)
	}
	return nil
}

// anthropicStop: an answer ends before a stop sequence and names it.
func (p *Programs) anthropicStop(ctx context.Context, s *stack.Stack) error {
	var r struct {
		Text, Sequence string
		Stopped        anthropicAnswer
	}
	if err := p.run(ctx, s, &r, "anthropic.mjs", "stop"); err != nil {
		return err
	}
	before, _, found := strings.Cut(r.Text, r.Sequence)
	got := ""
	if len(r.Stopped.Content) > 0 { // the sequence may be what the answer begins with
		got = r.Stopped.text()
	}
	if at := r.Stopped.StopSequence; !found || got != before || r.Stopped.StopReason != "stop_sequence" || at == nil || *at != r.Sequence {
		return fmt.Errorf("the answer to be stopped is %+v", r)
	}
	return nil
}

func (p *Programs) anthropicModels(ctx context.Context, s *stack.Stack) error {
	var r struct {
		IDs []string
		One struct{ ID, Type string }
	}
	if err := p.run(ctx, s, &r, "anthropic.mjs", "models"); err != nil {
		return err
	}
	if len(r.IDs) == 0 || r.IDs[0] != s.Ready.Model || r.One.ID != r.IDs[0] || r.One.Type != "model" {
		return fmt.Errorf("models are %+v, the stack serves %s", r, s.Ready.Model)
	}
	return nil
}

// anthropicErrors: each error has the class and the type that the client knows.
func (p *Programs) anthropicErrors(ctx context.Context, s *stack.Stack) error {
	var got []struct {
		Name, Kind, Type, Message string
		Status                    int
	}
	if err := p.run(ctx, s, &got, "anthropic.mjs", "errors"); err != nil {
		return err
	}
	if len(got) != 8 {
		return fmt.Errorf("%d errors, want 8", len(got))
	}
	var errs []error
	for _, g := range got {
		status, kind, typ := 400, "BadRequestError", "invalid_request_error"
		if g.Name == "model" {
			status, kind, typ = 404, "NotFoundError", "not_found_error"
		}
		if g.Status != status || g.Kind != kind || g.Type != typ || strings.TrimSpace(g.Message) == "" {
			errs = append(errs, fmt.Errorf("%s: %+v", g.Name, g))
		}
	}
	return errors.Join(errs...)
}
