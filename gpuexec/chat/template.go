package chat

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/nikolalohinski/gonja/v2/config"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/loaders"
)

// Template is a compiled chat template. It may be used by several goroutines.
type Template struct {
	compiled *exec.Template
	// developer: the template knows that role. Others would drop such a message, or
	// refuse it, so they are told that it is a system message, as OpenAI's older
	// models are.
	developer bool
}

// Input is what a template renders.
type Input struct {
	Messages []json.RawMessage // objects of Chat Completions
	Tools    []json.RawMessage // likewise; none: the template sees tools as none
	// Kwargs is a JSON object of options that this template knows
	// (chat_template_kwargs), e.g. {"enable_thinking": false}.
	Kwargs json.RawMessage
	// AddGenerationPrompt asks for the opening of the answer.
	AddGenerationPrompt bool
	BOS, EOS            string    // text of these tokens, "" when the model has none
	Now                 time.Time // for templates that print the date; UTC is used
}

// Compile parses a Jinja template. The error wraps ErrTemplate and names the line.
func Compile(source string) (t *Template, err error) {
	defer func() {
		if r := recover(); r != nil { // gonja panics on some malformed input
			t, err = nil, fmt.Errorf("%w: does not compile: %.300v", ErrTemplate, r)
		}
	}()
	text, err := rewrite(source)
	if err != nil {
		return nil, fmt.Errorf("%w: does not compile: %w", ErrTemplate, err)
	}
	conf := config.New() // without trim_blocks and lstrip_blocks, which rewrite has done
	const name = "/chat_template"
	loader, err := loaders.NewMemoryLoader(map[string]string{name: text})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTemplate, err)
	}
	compiled, err := exec.NewTemplate(name, conf, loader, &exec.Environment{
		Context:           globals(),
		Filters:           filters(),
		Tests:             tests(),
		ControlStructures: controlStructures(),
	})
	if err != nil {
		reason := strings.TrimPrefix(err.Error(), "failed to parse template '"+text+"': ")
		return nil, fmt.Errorf("%w: does not compile: %s", ErrTemplate, short(reason))
	}
	return &Template{compiled: compiled, developer: strings.Contains(source, "developer")}, nil
}

// Render renders messages to the text of a prompt. The error wraps ErrMessage
// when the input is wrong, ErrTemplate when the template refuses it
// (raise_exception), fails, or exceeds a bound.
func (t *Template) Render(in Input) (text string, err error) {
	used := &budget{}
	defer func() {
		if r := recover(); r != nil {
			text, err = "", fmt.Errorf("%w: cannot render: %.300v", ErrTemplate, r)
		}
	}()
	data, err := in.values(used, t.developer)
	if err != nil {
		return "", err
	}
	if err := t.compiled.Execute(used, exec.NewContext(data)); err != nil {
		if used.raised != nil {
			return "", fmt.Errorf("%w: %w", ErrTemplate, used.raised)
		}
		return "", fmt.Errorf("%w: cannot render: %s", ErrTemplate, short(err.Error()))
	}
	return used.out.String(), nil
}

// values are the names that a template sees, as transformers defines them.
func (in Input) values(used *budget, developer bool) (map[string]any, error) {
	data := map[string]any{
		budgetName:              used,
		"tools":                 (*null)(nil),
		"documents":             (*null)(nil),
		"add_generation_prompt": in.AddGenerationPrompt,
		"bos_token":             in.BOS,
		"eos_token":             in.EOS,
		"strftime_now": func(_ *exec.Evaluator, va *exec.VarArgs) *exec.Value {
			return exec.AsValue(strftime(in.Now.UTC(), va.First().String()))
		},
		"raise_exception": func(_ *exec.Evaluator, va *exec.VarArgs) *exec.Value {
			used.raised = fmt.Errorf("refused: %s", short(va.First().String()))
			return exec.AsValue(used.raised)
		},
	}
	if len(in.Kwargs) > 0 {
		v, err := decode(in.Kwargs)
		if err != nil {
			return nil, fmt.Errorf("%w: chat_template_kwargs is not valid JSON: %v", ErrMessage, err)
		}
		switch options := object(v); {
		case options != nil:
			for _, p := range options.Pairs {
				if _, taken := data[p.Key.String()]; taken || p.Key.String() == "messages" || strings.HasPrefix(p.Key.String(), "__") {
					return nil, fmt.Errorf("%w: chat_template_kwargs.%s is set by the server", ErrMessage, p.Key.String())
				}
				data[p.Key.String()] = unwrap(p.Value)
			}
		case unwrap(v) != (*null)(nil):
			return nil, fmt.Errorf("%w: chat_template_kwargs must be an object", ErrMessage)
		}
	}
	messages := list{}
	for i, raw := range in.Messages {
		m, err := message(i, raw)
		if err != nil {
			return nil, err
		}
		if !developer && field(m, "role") == "developer" {
			setField(m, "role", "system")
		}
		messages = append(messages, m)
	}
	data["messages"] = messages
	if len(in.Tools) > 0 {
		tools := list{}
		for i, raw := range in.Tools {
			v, err := decode(raw)
			if err != nil || object(v) == nil {
				return nil, fmt.Errorf("%w: tools[%d] must be a JSON object", ErrMessage, i)
			}
			tools = append(tools, v)
		}
		data["tools"] = tools
	}
	return data, nil
}

// short keeps an error readable: gonja prints whole syntax trees.
func short(s string) string {
	const limit = 400
	if len(s) > limit {
		return strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return s
}
