package infer

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// step is an answer of a model and what followed it on the same line.
type step struct {
	calls bool // the answer holds tool calls, which a service sees
	tool  bool // a tool's result came next, which it does not see yet
}

// waits scores the rule that a service has for an idle branch: it waits for a tool
// when its last answer holds tool calls, else for the user.
func waits(steps []step) (tool, user count) {
	for _, s := range steps {
		tool.see(s.calls, s.tool)
		user.see(!s.calls, !s.tool)
	}
	return tool, user
}

// message is what the formats of the traces have in common.
type message struct {
	Role      string            `json:"role"`
	ToolCalls []json.RawMessage `json:"tool_calls"`
}

// messageSteps finds the steps in a list of messages. In observed lists every
// message of the user behind the first answer is the output of a tool.
func messageSteps(ms []message, observed bool) []step {
	var out []step
	for i := 0; i+1 < len(ms); i++ {
		if ms[i].Role == "assistant" && ms[i+1].Role != "assistant" {
			out = append(out, step{calls: len(ms[i].ToolCalls) > 0, tool: observed || ms[i+1].Role == "tool"})
		}
	}
	return out
}

// tauSteps reads tau-bench: dialogs of a model, tools and a user that is another
// model.
func tauSteps(dir string) ([]step, error) {
	path := filepath.Join(dir, "tau-bench", "gpt-4o-airline.json.gz")
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var dialogs []struct {
		Traj []message `json:"traj"`
	}
	if err := json.NewDecoder(z).Decode(&dialogs); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var out []step
	for _, d := range dialogs {
		out = append(out, messageSteps(d.Traj, false)...)
	}
	return out, nil
}

// sweSteps reads trajectories of SWE-agent and mini-swe-agent. There is no user in
// them: all that follows an answer is the output of a command, also where commands
// are written as text and outputs come as messages of the user.
func sweSteps(dir string) ([]step, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "swe-agent-traj", "*.traj*"))
	if err != nil {
		return nil, err
	}
	var out []step
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			return nil, err
		}
		var run struct {
			History []message `json:"history"`
		}
		if bytes.HasPrefix(bytes.TrimSpace(b), []byte("[")) {
			err = json.Unmarshal(b, &run.History)
		} else {
			err = json.Unmarshal(b, &run)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
		out = append(out, messageSteps(run.History, true)...)
	}
	return out, nil
}

// record is one record of a raw session log of Claude Code or Codex.
type record struct {
	Type    string `json:"type"`
	Message struct {
		ID      string          `json:"id"`
		Content json.RawMessage `json:"content"`
	} `json:"message"`
	Payload struct {
		Type string `json:"type"`
		Role string `json:"role"`
	} `json:"payload"`
}

// has says whether the content holds a part of that type.
func (r *record) has(part string) bool {
	var parts []struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(r.Message.Content, &parts) != nil {
		return false // plain text
	}
	for _, p := range parts {
		if p.Type == part {
			return true
		}
	}
	return false
}

// said is what a record is to its session.
type said int

const (
	nothing said = iota
	answer
	answerCalls
	toolResult
	userMessage
)

func (r *record) said() said {
	switch {
	case r.Type == "assistant" && r.has("tool_use"):
		return answerCalls
	case r.Type == "assistant":
		return answer
	case r.Type == "user" && r.has("tool_result"):
		return toolResult
	case r.Type == "user":
		return userMessage
	case r.Type != "response_item":
		return nothing
	}
	switch p := r.Payload; {
	case p.Type == "function_call" || p.Type == "custom_tool_call":
		return answerCalls
	case p.Type == "function_call_output" || p.Type == "custom_tool_call_output":
		return toolResult
	case p.Type == "reasoning" || p.Type == "message" && p.Role == "assistant":
		return answer
	case p.Type == "message" && p.Role == "user":
		return userMessage
	}
	return nothing
}

// tracelabSteps reads TraceLab's raw session segments: JSON records with a line
// "===== record NNNN =====" in front of each. An answer may be several records.
func tracelabSteps(dir string) ([]step, error) {
	var out []step
	for _, name := range []string{"claude", "codex"} {
		path := filepath.Join(dir, "tracelab", name+"_raw_session_example.json")
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		answered, calls := false, false
		for i, text := range strings.Split(string(b), "\n===== record ")[1:] {
			_, text, _ = strings.Cut(text, "=====\n")
			var r record
			if err := json.NewDecoder(strings.NewReader(text)).Decode(&r); err != nil && err != io.EOF {
				return nil, fmt.Errorf("%s: record %d: %w", path, i+1, err)
			}
			switch s := r.said(); s {
			case answer, answerCalls:
				answered, calls = true, calls || s == answerCalls
			case toolResult, userMessage:
				if answered {
					out = append(out, step{calls: calls, tool: s == toolResult})
				}
				answered, calls = false, false
			}
		}
	}
	return out, nil
}
