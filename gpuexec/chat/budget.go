package chat

import (
	"errors"
	"fmt"
	"strings"

	"github.com/nikolalohinski/gonja/v2/builtins"
	tags "github.com/nikolalohinski/gonja/v2/builtins/control_structures"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// Bounds of one rendering. A template of 30 KiB over 1,000 messages takes some
// 10,000 steps; recursion is bounded because a Go stack overflow ends the process.
const (
	maxOutput = 32 << 20 // bytes; twice the largest turn body
	maxSteps  = 1 << 18  // some seconds; loop iterations and macro calls together
	maxCalls  = 100      // macro calls inside one another
	maxRange  = 100_000  // elements of range()
	// maxWork bounds what functions, filters and assignments read and write, in bytes.
	// It takes a few seconds. A template that adds to one string message by message
	// needs half the square of the text's length over that of a message.
	maxWork = 256 << 20
)

// Work that is not bytes of strings, in the same unit.
const (
	itemWork = 8 // an element of a list that a filter reads
	jsonWork = 4 // a byte that tojson writes
)

// ErrTemplate: a template does not compile, refuses its input or exceeds a bound.
var ErrTemplate = errors.New("chat template")

// ErrWork: the messages are too long for the way in which a template treats them.
// It comes with ErrTemplate.
var ErrWork = errors.New("too much work")

// budgetName is the name under which a rendering's budget stands in its context.
const budgetName = "__budget"

// budget is what one rendering has used.
type budget struct {
	out    strings.Builder
	steps  int
	calls  int
	work   int
	raised error // the error of raise_exception; gonja loses error chains
}

// Write collects the output up to its bound.
func (b *budget) Write(p []byte) (int, error) {
	if b.out.Len()+len(p) > maxOutput {
		b.raised = fmt.Errorf("output exceeds %d bytes", maxOutput)
		return 0, b.raised
	}
	return b.out.Write(p)
}

// charge adds to the work of the rendering that e belongs to.
func charge(e *exec.Evaluator, work int) error {
	v, _ := e.Environment.Context.Get(budgetName)
	b, ok := v.(*budget)
	if !ok {
		return errors.New("the rendering has no budget")
	}
	if b.work += work; b.work > maxWork && b.raised == nil {
		b.raised = fmt.Errorf("%w: the template copies more than %d bytes of text for these messages and tools", ErrWork, maxWork)
	}
	return b.raised
}

// size is the work of reading a value.
func size(v *exec.Value) int {
	switch {
	case v == nil || v.IsNil():
		return 0
	case v.IsString():
		return v.Len()
	case v.IsList():
		return itemWork * v.Len()
	}
	return 0
}

// meter is a node put at the head of loop bodies and at both ends of macro bodies.
type meter struct {
	at    *tokens.Token
	calls int // +1 entering a macro, -1 leaving it
}

// Position implements nodes.Node.
func (m *meter) Position() *tokens.Token { return m.at }

// String implements nodes.Node.
func (m *meter) String() string { return "meter" }

// Execute charges one step.
func (m *meter) Execute(r *exec.Renderer, _ *nodes.ControlStructureBlock) error {
	v, _ := r.Environment.Context.Get(budgetName)
	b, ok := v.(*budget)
	if !ok {
		return errors.New("the rendering has no budget")
	}
	b.steps++
	b.calls += m.calls
	switch {
	case b.steps > maxSteps:
		b.raised = fmt.Errorf("more than %d loop steps", maxSteps)
	case b.calls > maxCalls:
		b.raised = fmt.Errorf("macros call each other deeper than %d", maxCalls)
	}
	return b.raised
}

func metered(at *tokens.Token, calls int) nodes.Node {
	return &nodes.ControlStructureBlock{Location: at, Name: "meter", ControlStructure: &meter{at, calls}}
}

// controlStructures are the tags that a template may use. Those that read other
// templates (include, import, extends) are left out.
func controlStructures() *exec.ControlStructureSet {
	set := map[string]parser.ControlStructureParser{}
	for _, name := range []string{"if", "set", "raw", "filter", "do", "with", "break", "continue"} {
		if p, ok := builtins.ControlStructures.Get(name); ok {
			set[name] = p
		}
	}
	set["call"] = parseCall
	set["for"] = parseMetered("for", func(cs nodes.ControlStructure) {
		if f, ok := cs.(*tags.ForControlStructure); ok {
			f.BodyWrapper.Nodes = append([]nodes.Node{metered(f.BodyWrapper.Location, 0)}, f.BodyWrapper.Nodes...)
		}
	})
	set["macro"] = parseMetered("macro", func(cs nodes.ControlStructure) {
		if m, ok := cs.(*tags.MacroControlStructure); ok {
			w := m.Wrapper
			w.Nodes = append([]nodes.Node{metered(m.Location, 1)}, append(w.Nodes, metered(m.Location, -1))...)
		}
	})
	return exec.NewControlStructureSet(set)
}

// parseMetered is gonja's parser of a tag followed by a change of the result.
func parseMetered(name string, change func(nodes.ControlStructure)) parser.ControlStructureParser {
	parse, _ := builtins.ControlStructures.Get(name)
	return func(p, args *parser.Parser) (nodes.ControlStructure, error) {
		cs, err := parse(p, args)
		if err == nil {
			change(cs)
		}
		return cs, err
	}
}
