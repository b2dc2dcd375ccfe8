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
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weir-dev/weir/e2e/reword"
	"github.com/weir-dev/weir/e2e/stack"
	"github.com/weir-dev/weir/schemas"
)

// TestToolLoopOverKills: an agent without a session header calls a tool in each of its
// turns, sends its history back with the JSON written anew, and repeats a request that
// broke off. Between and within its turns processes are killed. Every turn is answered
// as it was to be, once, and finds what was computed before.
func TestToolLoopOverKills(t *testing.T) {
	path, err := stack.ModelFile("tiny")
	if err != nil {
		t.Fatal(err)
	}
	s := stack.Start(t, stack.Options{Args: []string{
		"--engine", "go", "--model", path, "--prefill", "1", "--decode", "2", "--ctx", "8192", "--slots", "2", "--kv-mem", "256MiB",
	}})
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	defer cancel()
	user, err := json.Marshal(message{"user", firstText(Scenario{Preset: "kills"})})
	if err != nil {
		t.Fatal(err)
	}
	history := []json.RawMessage{user}
	if _, err := s.Connect("e2e-kills"); err != nil { // and stays while the server is killed
		t.Fatal(err)
	}
	var last answer
	kills := [][]string{{}, {"all"}, {"control"}, {"d0", "d1"}, {"p0", "tier"}, {"control", "d0"}, {"control", "d0", "p0"}, {"all"}, {}}
	arguments := func(step int) string {
		return fmt.Sprintf(`{"title":"step %d","body":"%s","draft":true}`, step, strings.Repeat("the harbour is deep ", 15))
	}
	forced := make([]schemas.Tokens, len(kills)) // asked for while the tokenizer is there
	for step := range kills {
		if forced[step], err = tokens(ctx, s, "<tool_call>\n{\"name\": \"write_report\", \"arguments\": "+arguments(step)+"}\n</tool_call>"); err != nil {
			t.Fatal(err)
		}
	}
	for step, kill := range kills {
		name := fmt.Sprintf("turn %d, killed %v", step, kill)
		if len(kill) == 1 && kill[0] == "all" {
			if err := crash(ctx, s); err != nil {
				t.Fatal(err)
			}
			kill = nil
		}
		args := arguments(step)
		body, err := json.Marshal(map[string]any{
			"messages": history, "tools": []json.RawMessage{json.RawMessage(callTool)}, "weir": map[string]any{"force_output": forced[step]},
		})
		if err != nil {
			t.Fatal(err)
		}
		got, raw, err := askUntilAnswered(ctx, s, fmt.Sprint("kills-", step), body, kill)
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, s.Logs(10))
		}
		var m struct {
			ToolCalls []struct {
				ID       string
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
		}
		if err := json.Unmarshal(raw, &m); err != nil || len(m.ToolCalls) != 1 || m.ToolCalls[0].Function.Name != "write_report" || m.ToolCalls[0].Function.Arguments != args {
			t.Fatalf("%s: the answer is %s, %v", name, raw, err)
		}
		share := float64(got.cached) / float64(max(1, last.prompt+last.generated))
		t.Logf("%s: prompt %d, cached %d, share %.3f", name, got.prompt, got.cached, share)
		if step > 0 && share < minShare {
			t.Errorf("%s: %d of %d tokens found", name, got.cached, last.prompt+last.generated)
		}
		last = got
		again, err := reword.JSON(raw)
		if err != nil {
			t.Fatal(err)
		}
		result, err := json.Marshal(map[string]string{"role": "tool", "tool_call_id": m.ToolCalls[0].ID, "content": fmt.Sprintf("Report %d was written.", step)})
		if err != nil {
			t.Fatal(err)
		}
		history = append(history, again, result)
	}
}

// askUntilAnswered sends a request, kills processes when it has begun, and sends it
// again under its key as often as it breaks off.
func askUntilAnswered(ctx context.Context, s *stack.Stack, key string, body []byte, kill []string) (answer, json.RawMessage, error) {
	type reply struct {
		a   answer
		m   json.RawMessage
		err error
	}
	begun, err := beginning(ctx, s, len(kill))
	if err != nil {
		return answer{}, nil, err
	}
	done := make(chan reply, 1)
	go func() {
		for {
			a, m, err := askOnce(ctx, s, key, body)
			if err == nil || ctx.Err() != nil || !errors.Is(err, errBroke) {
				done <- reply{a, m, err}
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	if begun != nil {
		if _, err := begun.NextMsgWithContext(ctx); err != nil {
			return answer{}, nil, fmt.Errorf("waiting for the turn to begin: %w", err)
		}
	}
	for _, id := range kill {
		pid, err := s.Kill(id, syscall.SIGKILL)
		if err != nil {
			return answer{}, nil, err
		}
		defer func() { _, _ = s.WaitRestarted(ctx, id, pid) }() // the next turn begins on a whole stack
	}
	r := <-done
	return r.a, r.m, r.err
}

// beginning is a subscription that hears of the next turn: when it was published where
// an odd number of processes is to end, else when it has said something.
func beginning(ctx context.Context, s *stack.Stack, kills int) (*nats.Subscription, error) {
	if kills == 0 {
		return nil, nil //nolint:nilnil // nothing is to be waited for
	}
	nc, err := s.Connect("e2e-kills")
	for err == nil && !nc.IsConnected() { // the server was killed the turn before
		select {
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
	if err != nil {
		return nil, err
	}
	sub, err := nc.SubscribeSync(map[bool]string{true: "agent.>", false: "out.>"}[kills%2 == 1])
	if err != nil {
		return nil, err
	}
	return sub, nc.FlushWithContext(ctx)
}

// errBroke: the request may be sent again.
var errBroke = errors.New("no answer")

func askOnce(ctx context.Context, s *stack.Stack, key string, body []byte) (answer, json.RawMessage, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.Ready.HTTP+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return answer{}, nil, err
	}
	req.Header.Set("Idempotency-Key", key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{}, nil, fmt.Errorf("%w: %w", errBroke, err)
	}
	defer func() { _ = resp.Body.Close() }() // read to its end
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, nil, fmt.Errorf("%w: %w", errBroke, err)
	}
	switch {
	case resp.StatusCode == http.StatusServiceUnavailable, resp.StatusCode == http.StatusTooManyRequests:
		return answer{}, nil, fmt.Errorf("%w: %s", errBroke, raw)
	case resp.StatusCode != http.StatusOK:
		return answer{}, nil, fmt.Errorf("status %d: %s", resp.StatusCode, raw)
	}
	return readAnswer(raw)
}
