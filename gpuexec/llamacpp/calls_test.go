package llamacpp

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/weir-dev/weir/gpuexec/chat"
	"github.com/weir-dev/weir/gpuexec/grammar"
)

// TestForcedCall: a model of random weights that is made to call a tool writes a call
// that the family's parser reads, one that conforms to the tool's schema.
func TestForcedCall(t *testing.T) {
	e := tinyEngine(t)
	tools := []json.RawMessage{json.RawMessage(`{"type":"function","function":{"name":"add","parameters":{"type":"object",
		"properties":{"unit":{"type":"string","enum":["m","km"]},"n":{"type":"integer"}},"required":["unit","n"]}}}`)}
	for _, f := range chat.Families() {
		gbnf, err := grammar.ToolCalls(grammar.Calls{Family: string(f), Tools: tools, One: true})
		if err != nil {
			t.Fatal(err)
		}
		c, err := e.Constrain(gbnf)
		if err != nil {
			t.Fatalf("%s: %v\n%s", f, err, gbnf)
		}
		text := generate(t, e, c, 400)
		c.Close()
		p := chat.NewParser(chat.Spec{Family: f, Tools: true, Strings: chat.StringParameters(f, tools)}, "job")
		p.Add(text)
		p.End()
		var m struct {
			Calls []struct {
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
		}
		if err := json.Unmarshal(p.Message(), &m); err != nil || len(m.Calls) != 1 || m.Calls[0].Function.Name != "add" {
			t.Errorf("%s: %q is %s", f, text, p.Message())
			continue
		}
		var arguments struct {
			Unit string
			N    int64
		}
		if err := json.Unmarshal([]byte(m.Calls[0].Function.Arguments), &arguments); err != nil || !strings.HasSuffix(arguments.Unit, "m") {
			t.Errorf("%s: arguments %q: %v", f, m.Calls[0].Function.Arguments, err)
		}
	}
}

// TestConstraintControl: grammars see the text of control tokens, so that a marker
// which is one token may be written as one.
func TestConstraintControl(t *testing.T) {
	e := tinyEngine(t)
	c, err := e.Constrain(`root ::= "<|im_start|>x"`)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ids, err := e.Vocab().Tokenize("<|im_start|>", false, true)
	if err != nil || len(ids) != 1 {
		t.Fatalf("%v, %v", ids, err)
	}
	logits := make([]float32, e.limits.Vocab)
	c.Mask(logits)
	if math.IsInf(float64(logits[ids[0]]), -1) {
		t.Fatal("the control token is forbidden")
	}
	if err := c.Accept(ids[0]); err != nil {
		t.Fatal(err)
	}
	x, err := e.Vocab().Tokenize("x", false, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Accept(x[len(x)-1]); err != nil {
		t.Fatal(err)
	}
}
