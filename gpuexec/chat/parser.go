package chat

import (
	"bytes"
	"encoding/json"
	"strings"
)

// Delta is a piece of a message as it becomes certain. It holds text of one kind:
// content, reasoning, or the arguments of one call.
type Delta struct {
	Content   string
	Reasoning string
	Call      int    // index of the call, -1 for none
	ID, Name  string // on the first delta of a call only
	Arguments string
}

// Parser turns the text of an answer into content, reasoning and tool calls while it
// is generated. All deltas together are the message, however the text was cut.
//
// It reads byte by byte. Text that may be the beginning of a marker is held back,
// and so is a call until its name is certain:
//
//	text ──open──> reasoning ──close──> text
//	text ──marker──> call ──end──> text
//	             no call: the marker and what was held stay text
//	reasoning ──marker──> draft ──other text or close──> reasoning
//	                         └── end of the answer: the calls count
//
// A call inside the reasoning is a draft, unless the answer ends with it: then the
// closing tag was forgotten. As in SGLang and llama.cpp, white space belongs to no text
// where it only sets reasoning and calls apart: around reasoning, between text and
// calls, behind the last call. Elsewhere it is kept, so an answer without either is its
// own content. What is held back is bounded by maxHeld.
type Parser struct {
	spec    Spec
	job     string
	syntax  *syntax // nil: all is content
	strings []byte
	chars   *Text
	ended   bool

	mode  mode
	held  []byte // the beginning of a marker
	space []byte // white space that is text if other text follows
	// thought: reasoning was closed or opened before; what follows is trimmed.
	thought bool
	stray   bool // a call broke off, its end marker may come

	c     callReader
	draft []byte     // text since the first drafted call
	made  []callText // drafted calls

	content, reasoning []byte
	calls              []callText
	out                []Delta
	run                Delta // kind of the text since from
	from               int
}

// callText is one call as far as it is known.
type callText struct {
	id, name  string
	arguments []byte
	whole     bool
}

type mode uint8

const (
	modeText mode = iota
	modeReasoning
	modeCall
	modeDraft // behind a drafted call
)

// Bounds of what is held back, in bytes.
const (
	maxHeld      = 256 << 10 // text of a call without a name
	maxHeldSpace = 16 << 10  // white space
	maxName      = 256       // names, keys and ids
)

// NewParser makes a parser of one answer. The job (schemas.JobID) decides the ids of
// calls, so every reader of an answer makes the same ones. With an unknown family
// all text is content.
func NewParser(spec Spec, job string) *Parser {
	p := &Parser{spec: spec, job: job, syntax: syntaxOf(spec.Family), strings: bloomOf(spec.Strings), chars: NewText(nil)}
	p.run.Call = -1
	if p.syntax != nil && spec.Thinks {
		p.mode, p.thought = modeReasoning, true
	}
	return p
}

// Add takes the next piece of text, which may be cut anywhere, and returns what has
// become certain.
func (p *Parser) Add(text string) []Delta {
	if p.ended {
		return nil
	}
	p.takeAll(p.chars.Add([]byte(text)))
	return p.flush()
}

// End tells that the text is over, and returns the rest. Afterwards Message is final.
func (p *Parser) End() []Delta {
	if p.ended {
		return nil
	}
	p.takeAll(p.chars.Flush())
	p.ended = true
	switch p.mode {
	case modeCall:
		p.endInCall()
	case modeDraft:
		p.promote()
	}
	for _, c := range p.held {
		p.text(c)
	}
	if len(p.calls) == 0 && p.mode == modeText && (len(p.content) > 0 || !p.thought) {
		p.put(&p.content, Delta{Call: -1}, p.space...)
	}
	p.held, p.space = nil, nil
	return p.flush()
}

// Calls is the number of calls so far.
func (p *Parser) Calls() int { return len(p.calls) }

// Message is the assistant message of Chat Completions: role, content (null when
// there are only calls), reasoning_content and tool_calls.
func (p *Parser) Message() json.RawMessage {
	type function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	}
	type call struct {
		ID       string   `json:"id"`
		Type     string   `json:"type"`
		Function function `json:"function"`
	}
	m := struct {
		Role      string  `json:"role"`
		Content   *string `json:"content"`
		Reasoning string  `json:"reasoning_content,omitempty"`
		Calls     []call  `json:"tool_calls,omitempty"`
	}{Role: "assistant", Reasoning: string(p.reasoning)}
	if content := string(p.content); content != "" || len(p.calls) == 0 {
		m.Content = &content
	}
	for _, c := range p.calls {
		m.Calls = append(m.Calls, call{c.id, "function", function{c.name, string(c.arguments)}})
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(m); err != nil {
		return nil // strings always have a form
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}

func (p *Parser) takeAll(text string) {
	if p.syntax == nil {
		p.put(&p.content, Delta{Call: -1}, []byte(text)...)
		return
	}
	for i := 0; i < len(text); i++ {
		p.take(text[i])
	}
}

// take reads one byte. It is called again for bytes that turn out to be text, at
// most once per marker.
func (p *Parser) take(c byte) {
	switch p.mode {
	case modeCall:
		p.inCall(c)
		return
	case modeDraft:
		p.draft = append(p.draft, c)
		if len(p.held) == 0 && isSpace(c) {
			if len(p.draft) >= maxHeld {
				p.release(nil)
			}
			return
		}
	case modeText:
		if c == '{' && len(p.held) == 0 && p.syntax.bare > 0 && p.spec.Tools && p.fresh() {
			p.begin(p.syntax.bare, "")
			p.c.bare = true
			p.inCall(c)
			return
		}
	}
	if len(p.held) == 0 && c != '<' && c != '[' && p.mode != modeDraft {
		p.text(c) // no marker begins like this
		return
	}
	p.held = append(p.held, c)
	for len(p.held) > 0 {
		m, whole := p.syntax.marker(p.held)
		if m != nil && !whole {
			return
		}
		if whole {
			p.held = p.held[:0]
			p.marker(m)
			return
		}
		if p.mode == modeDraft {
			p.release(p.held)
			continue
		}
		p.text(p.held[0])
		p.held = p.held[1:]
	}
}

// fresh: there is no content and no call yet.
func (p *Parser) fresh() bool { return len(p.content) == 0 && len(p.calls) == 0 }

// marker acts on a whole marker, or takes it as text.
func (p *Parser) marker(m *marker) {
	thinking := p.mode != modeText
	switch {
	case m.kind == markClose && thinking:
		if p.mode == modeDraft {
			p.release([]byte(m.text))
		}
		p.mode, p.space = modeText, nil
	case m.kind == markClose && p.fresh(): // the prompt had closed it already
		p.thought, p.space = true, nil
	case m.kind == markOpen && p.mode == modeText && p.fresh():
		p.mode, p.thought, p.space = modeReasoning, true, nil
	case m.kind == markOpen && p.mode == modeReasoning && len(p.reasoning) == 0:
		// written by the prompt and by the model
	case m.kind == markCall && p.spec.Tools:
		p.begin(m.to, m.text)
	case m.kind == markEnd && p.stray && p.mode == modeText:
		p.stray = false
	default:
		if p.mode == modeDraft {
			p.release([]byte(m.text))
		}
		for i := 0; i < len(m.text); i++ {
			p.text(m.text[i])
		}
	}
}

// text takes a byte of content or reasoning.
func (p *Parser) text(c byte) {
	to, kind := &p.content, Delta{Call: -1}
	if p.mode == modeReasoning {
		to, kind = &p.reasoning, Delta{Call: -1, Reasoning: "r"}
	}
	if isSpace(c) && len(p.space) < maxHeldSpace {
		p.space = append(p.space, c)
		return
	}
	if len(*to) > 0 || !p.thought && len(p.calls) == 0 {
		p.put(to, kind, p.space...)
	}
	p.space = p.space[:0]
	p.put(to, kind, c)
}

// put appends to a text of the message, and to the delta of its kind.
func (p *Parser) put(to *[]byte, kind Delta, text ...byte) {
	if len(text) == 0 {
		return
	}
	if kind.Call != p.run.Call || kind.Reasoning != p.run.Reasoning || p.from < 0 {
		p.cut()
		p.run, p.from = kind, len(*to)
	}
	*to = append(*to, text...)
}

// cut ends the delta that is under way.
func (p *Parser) cut() {
	d, from := p.run, max(p.from, 0)
	switch {
	case d.Call >= 0:
		d.Arguments = string(p.calls[d.Call].arguments[from:])
	case d.Reasoning != "":
		d.Reasoning = string(p.reasoning[from:])
	default:
		d.Content = string(p.content[from:])
	}
	if p.from >= 0 && (d.Content != "" || d.Reasoning != "" || d.Arguments != "" || d.Name != "") {
		p.out = append(p.out, d)
	}
	p.run, p.from = Delta{Call: -1}, -1
}

func (p *Parser) flush() []Delta {
	p.cut()
	out := p.out
	p.out = nil
	return out
}

// announce begins a call whose name is certain.
func (p *Parser) announce(id, name string) {
	switch {
	case len(p.draft) > 0:
		p.made = append(p.made, callText{id: id, name: name})
	case p.spec.One && len(p.calls) > 0:
		p.c.left = true
	default:
		if id == "" {
			id = CallID(p.spec.Family, p.job, len(p.calls))
		}
		p.cut()
		p.calls = append(p.calls, callText{id: id, name: name})
		p.run, p.from = Delta{Call: len(p.calls) - 1, ID: id, Name: name}, 0
	}
	p.c.announced, p.c.raw = true, nil
}

// arguments adds to the arguments of the call that was announced last.
func (p *Parser) arguments(text ...byte) {
	switch {
	case p.c.left:
	case len(p.draft) > 0:
		c := &p.made[len(p.made)-1]
		c.arguments = append(c.arguments, text...)
	default:
		i := len(p.calls) - 1
		p.put(&p.calls[i].arguments, Delta{Call: i}, text...)
	}
}

// finishCall ends the call that was announced last.
func (p *Parser) finishCall() {
	if len(p.draft) > 0 {
		p.made[len(p.made)-1].whole = true
	}
	p.c.reset()
}

// release gives the text of drafted calls back to the reasoning, all but rest,
// which is still to be read.
func (p *Parser) release(rest []byte) {
	text := p.draft[:len(p.draft)-len(rest)]
	p.draft, p.made, p.mode = nil, nil, modeReasoning
	for _, c := range text {
		p.text(c)
	}
}

// promote: the answer ended behind drafted calls, so they are its calls.
func (p *Parser) promote() {
	for _, c := range p.made {
		if !c.whole {
			p.held = nil
			p.release(nil)
			return
		}
	}
	made := p.made
	p.draft, p.made, p.held, p.mode = nil, nil, nil, modeText
	for _, c := range made {
		p.announce(c.id, c.name)
		p.arguments(c.arguments...)
		p.c.left = false
	}
}

// marker finds what held begins, or is.
func (s *syntax) marker(held []byte) (*marker, bool) {
	for i := range s.markers {
		m := &s.markers[i]
		if strings.HasPrefix(m.text, string(held)) {
			return m, len(m.text) == len(held)
		}
	}
	return nil, false
}
