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

	"github.com/weir-dev/weir/e2e/reword"
	"github.com/weir-dev/weir/e2e/stack"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
)

// Style is how an agent comes back with its history.
type Style string

// The styles.
const (
	StyleDelta     Style = "delta"     // only what is new, and the digest of the context
	StyleText      Style = "text"      // all messages; the answer was text
	StyleToolCall  Style = "tool_call" // all messages; the answer was a tool call
	StyleReordered Style = "reordered" // likewise, with its JSON written anew
	// StyleReasoning: the answer had reasoning, which the template drops when the
	// user goes on. What is found then is reported with its cause.
	StyleReasoning Style = "reasoning"
)

// Styles are those of the figures, without StyleReasoning.
func Styles() []Style { return []Style{StyleDelta, StyleText, StyleToolCall, StyleReordered} }

// Returned is what the second turn of a style found.
type Returned struct {
	Style     Style             `json:"style"`
	Prompt    int               `json:"prompt"` // tokens of the first turn
	Generated int               `json:"generated"`
	Cached    int               `json:"cached"` // of the second turn's prompt
	Share     float64           `json:"share"`
	Cause     schemas.MissCause `json:"cause,omitempty"`
}

// RunStyles runs all styles on one stack with llama.cpp, which constrains the tool
// calls. firstGenerated tokens are the least that a first turn generates.
func RunStyles(ctx context.Context, emit func(*Returned)) (out []Returned, err error) {
	path, err := stack.ModelFile("small")
	if err != nil {
		return nil, err
	}
	s, err := stack.Launch(ctx, stack.Options{Args: []string{
		"--engine", "llama", "--model", path, "--prefill", "1", "--decode", "1", "--ctx", "8192", "--slots", "2", "--kv-mem", "512MiB",
	}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	for _, style := range append(Styles(), StyleReasoning) {
		r, err := comeBack(ctx, s, style)
		if err != nil {
			return out, fmt.Errorf("style %s: %w\n%s", style, err, s.Logs(10))
		}
		out = append(out, *r)
		if emit != nil {
			emit(r)
		}
	}
	return out, nil
}

func comeBack(ctx context.Context, s *stack.Stack, style Style) (*Returned, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, scenarioWait, fmt.Errorf("it did not end within %s", scenarioWait))
	defer cancel()
	var first, second answer
	var cause schemas.MissCause
	var err error
	switch style {
	case StyleDelta, StyleText:
		first, second, err = plain(ctx, s, style)
	case StyleToolCall, StyleReordered:
		first, second, err = calls(ctx, s, style)
	case StyleReasoning:
		first, second, cause, err = reasoned(ctx, s)
	}
	if err != nil {
		return nil, err
	}
	if first.prompt < firstPrompt || first.generated < firstGenerated {
		return nil, fmt.Errorf("the first turn had %d prompt and %d generated tokens, %d and %d are to be there",
			first.prompt, first.generated, firstPrompt, firstGenerated)
	}
	if first.cached >= 64 {
		return nil, fmt.Errorf("the first turn found %d tokens", first.cached)
	}
	return &Returned{
		Style: style, Prompt: first.prompt, Generated: first.generated, Cached: second.cached, Cause: cause,
		Share: float64(second.cached) / float64(first.prompt+first.generated),
	}, nil
}

// plain sends two turns of text.
func plain(ctx context.Context, s *stack.Stack, style Style) (first, second answer, err error) {
	form := map[Style]Form{StyleDelta: Delta, StyleText: Full}[style]
	sc := Scenario{Engine: "llama", Preset: "style-" + string(style), Place: Same, Form: form}
	send, err := sender(s, sc)
	if err != nil {
		return first, second, err
	}
	if first, err = send.turn(ctx, firstText(sc), firstGenerated); err == nil {
		second, err = send.turn(ctx, "And what follows from that?", 16)
	}
	return first, second, err
}

// callTool has arguments so long that a call has more than firstGenerated tokens.
const callTool = `{"type":"function","function":{"name":"write_report","description":"Writes a report.","parameters":{"type":"object",
"properties":{"title":{"type":"string","minLength":100,"maxLength":150},"body":{"type":"string","minLength":250,"maxLength":350},"draft":{"type":"boolean"}},
"required":["title","body","draft"],"additionalProperties":false}}}`

// calls sends a turn that is answered by a tool call, and then the tool's result.
func calls(ctx context.Context, s *stack.Stack, style Style) (first, second answer, err error) {
	// The system message differs, so that a style does not find another's tools.
	system, err := json.Marshal(message{"system", "You write reports in the style of " + string(style) + "."})
	if err != nil {
		return first, second, err
	}
	user, err := json.Marshal(message{"user", firstText(Scenario{Preset: string(style)})})
	if err != nil {
		return first, second, err
	}
	body := map[string]any{
		"messages": []json.RawMessage{system, user}, "tools": []json.RawMessage{json.RawMessage(callTool)}, "tool_choice": "required",
		"parallel_tool_calls": false, "max_tokens": 2000,
	}
	first, raw, err := post(ctx, s, "style-"+string(style), body)
	if err != nil {
		return first, second, err
	}
	var got struct {
		ToolCalls []struct{ ID string } `json:"tool_calls"`
	}
	if err := json.Unmarshal(raw, &got); err != nil || len(got.ToolCalls) != 1 {
		return first, second, errors.Join(err, fmt.Errorf("one tool call is to come, the answer is %s", raw))
	}
	result, err := json.Marshal(map[string]string{"role": "tool", "tool_call_id": got.ToolCalls[0].ID, "content": "It was written."})
	if err != nil {
		return first, second, err
	}
	if style == StyleReordered {
		if raw, err = reword.JSON(raw); err != nil {
			return first, second, err
		}
	}
	body["messages"] = []json.RawMessage{system, user, raw, result}
	body["max_tokens"], body["tool_choice"] = 16, "none"
	second, _, err = post(ctx, s, "style-"+string(style), body)
	return first, second, err
}

// post sends a Chat Completions request and returns the message of the answer.
func post(ctx context.Context, s *stack.Stack, session string, body any) (answer, json.RawMessage, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return answer{}, nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.Ready.HTTP+"/v1/chat/completions", bytes.NewReader(b))
	if err != nil {
		return answer{}, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Weir-Session", session)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{}, nil, errors.Join(err, context.Cause(ctx))
	}
	defer func() { _ = resp.Body.Close() }() // read to its end
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return answer{}, nil, fmt.Errorf("status %d: %s", resp.StatusCode, raw)
	}
	return readAnswer(raw)
}

// readAnswer takes the counts and the message out of a whole response.
func readAnswer(raw []byte) (answer, json.RawMessage, error) {
	var r struct {
		Choices []struct{ Message json.RawMessage }
		Usage   struct {
			Prompt     int `json:"prompt_tokens"`
			Completion int `json:"completion_tokens"`
			Details    struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
		Weir struct {
			DecodeOn string `json:"decode_on"`
		}
	}
	if err := json.Unmarshal(raw, &r); err != nil || len(r.Choices) != 1 {
		return answer{}, nil, errors.Join(err, fmt.Errorf("not one choice in %s", raw))
	}
	u := r.Usage
	return answer{u.Prompt, u.Details.Cached, u.Completion, r.Weir.DecodeOn}, r.Choices[0].Message, nil
}

// reasoned sends a turn whose answer is forced to hold reasoning, and goes on as a
// user who sends only the answer's content back.
func reasoned(ctx context.Context, s *stack.Stack) (first, second answer, cause schemas.MissCause, err error) {
	c, err := s.Client()
	if err != nil {
		return first, second, "", err
	}
	thought := "<think>\n" + strings.Repeat("The harbour is deep, so the ship may enter. ", 24) + "\n</think>\n\nThe ship may enter."
	forced, err := tokens(ctx, s, thought)
	if err != nil {
		return first, second, "", err
	}
	user := message{"user", firstText(Scenario{Preset: "reasoning"})}
	one, err := publish(ctx, c, &schemas.Turn{Weir: schemas.TurnMeta{ForceOutput: forced}}, user)
	if err != nil {
		return first, second, "", err
	}
	var said struct {
		Content   string `json:"content"`
		Reasoning string `json:"reasoning_content"`
	}
	if err := json.Unmarshal(one.Message, &said); err != nil || said.Reasoning == "" || said.Content == "" {
		return first, second, "", errors.Join(err, fmt.Errorf("the answer %q was read as %s", one.Text, one.Message))
	}
	most := int64(16)
	turn := &schemas.Turn{}
	turn.MaxTokens = &most
	two, err := publish(ctx, c, turn, user, message{"assistant", said.Content}, message{"user", "Which ship?"})
	if err != nil {
		return first, second, "", err
	}
	if two.Miss != nil {
		cause = two.Miss.Cause
	}
	return answerOf(one), answerOf(two), cause, nil
}

func answerOf(r *schemas.Result) answer {
	return answer{prompt: r.Usage.Prompt, cached: r.Usage.Cached, generated: r.Usage.Completion}
}

func publish(ctx context.Context, c *turns.Client, t *schemas.Turn, ms ...message) (*schemas.Result, error) {
	for _, m := range ms {
		b, err := json.Marshal(m)
		if err != nil {
			return nil, err
		}
		t.Messages = append(t.Messages, b)
	}
	s, err := c.Publish(ctx, turns.Request{Session: "style-reasoning", Turn: t})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	r, err := turns.Collect(ctx, s, nil)
	if err != nil {
		return nil, errors.Join(err, context.Cause(ctx))
	}
	if r.Failure != nil {
		return nil, fmt.Errorf("%s: %s", r.Failure.Code, r.Failure.Message)
	}
	return r, nil
}

// tokens are those of a text in mid-answer.
func tokens(ctx context.Context, s *stack.Stack, text string) (schemas.Tokens, error) {
	nc, err := s.Connect("e2e-tokens")
	if err != nil {
		return nil, err
	}
	return stack.Tokens(ctx, nc, s.Ready.Model, text)
}
