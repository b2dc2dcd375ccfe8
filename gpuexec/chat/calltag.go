package chat

import (
	"fmt"
	"io"
	"strings"

	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// callTag is {% call(a, b) macro(…) %} body {% endcall %}. gonja's own takes no
// names for what the macro hands to caller().
type callTag struct {
	at    *tokens.Token
	names []string
	macro *nodes.Call
	body  *nodes.Wrapper
}

// callerName is where gonja's macros look for caller().
const callerName = "__gonja_caller__"

func parseCall(p, args *parser.Parser) (nodes.ControlStructure, error) {
	c := &callTag{at: p.Current()}
	if args.Match(tokens.LeftParenthesis) != nil {
		for args.Match(tokens.RightParenthesis) == nil {
			name := args.Match(tokens.Name)
			if name == nil {
				return nil, args.Error("call takes names", args.Current())
			}
			c.names = append(c.names, name.Val)
			args.Match(tokens.Comma)
		}
	}
	expr, err := args.ParseExpression()
	if err != nil {
		return nil, err
	}
	call, ok := expr.(*nodes.Call)
	if !ok || !args.End() {
		return nil, args.Error("call takes a macro's call", args.Current())
	}
	c.macro = call
	c.body, _, err = p.WrapUntil("endcall")
	return c, err
}

// Position implements nodes.Node.
func (c *callTag) Position() *tokens.Token { return c.at }

// String implements nodes.Node.
func (c *callTag) String() string { return "call" }

// Execute calls the macro. The stack of callers is bounded by that of macros.
func (c *callTag) Execute(r *exec.Renderer, _ *nodes.ControlStructureBlock) error {
	macro, err := c.evaluated(r)
	if err != nil {
		return err
	}
	r.Environment.Context.Set(callerName, func(va *exec.VarArgs) *exec.Value {
		var out strings.Builder
		sub := r.Inherit()
		sub.Output = &out
		if len(va.Args) > len(c.names) {
			return exec.AsValue(fmt.Errorf("caller takes %d arguments, got %d", len(c.names), len(va.Args)))
		}
		for i, v := range va.Args {
			sub.Environment.Context.Set(c.names[i], unwrap(v))
		}
		if err := sub.ExecuteWrapper(c.body); err != nil {
			return exec.AsValue(err)
		}
		return exec.AsSafeValue(out.String())
	})
	text := r.Eval(macro)
	r.Environment.Context.Set(callerName, nil) // whether or not the macro took it
	if text.IsError() {
		return fmt.Errorf("call: %w", text)
	}
	_, err = io.WriteString(r.Output, text.String())
	return err
}

// evaluated is the call with its arguments as variables: a macro called in an
// argument would take the caller for its own.
func (c *callTag) evaluated(r *exec.Renderer) (*nodes.Call, error) {
	out := &nodes.Call{Location: c.macro.Location, Func: c.macro.Func, Kwargs: map[string]nodes.Expression{}}
	put := func(name string, e nodes.Expression) (nodes.Expression, error) {
		v := r.Eval(e)
		if v.IsError() {
			return nil, fmt.Errorf("call: %w", v)
		}
		r.Environment.Context.Set(name, unwrap(v))
		return &nodes.Name{Name: &tokens.Token{Type: tokens.Name, Val: name, Line: c.at.Line, Col: c.at.Col}}, nil
	}
	for i, e := range c.macro.Args {
		v, err := put(fmt.Sprintf("%s%d", argumentName, i), e)
		if err != nil {
			return nil, err
		}
		out.Args = append(out.Args, v)
	}
	for name, e := range c.macro.Kwargs {
		v, err := put(argumentName+name, e)
		if err != nil {
			return nil, err
		}
		out.Kwargs[name] = v
	}
	return out, nil
}

// argumentName begins the names of a call's arguments.
const argumentName = "__argument_"
