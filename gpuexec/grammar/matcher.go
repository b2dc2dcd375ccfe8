package grammar

import "unicode/utf8"

// maxStacks bounds what a Matcher follows at once; beyond it, it gives up as if
// the text did not match. Grammars of FromSchema need a few dozen.
const maxStacks = 20_000

// Matcher follows a grammar along a text. Like llama.cpp it keeps every stack of
// open sequences that may continue. A stack is a chain of interned frames, so
// equal stacks are one number:
//
//	root ::= "[" item "]"      after "[":   top → item's first char
//	item ::= [0-9]+                               ↓ then
//	                                        frame ("]" of root) → 0 (done)
type Matcher struct {
	g       *Grammar
	frames  []frame       // frame 0 is the end of the text
	ids     map[frame]int // interned
	now     []int         // frames whose next element is a character; 0: may end here
	partial []byte        // start of a character
}

// frame is a place in an alternative and what follows when it is through.
type frame struct{ rule, alt, pos, then int }

// Matcher starts at the beginning of a text.
func (g *Grammar) Matcher() *Matcher {
	m := &Matcher{g: g, frames: make([]frame, 1), ids: map[frame]int{}}
	m.now = m.expand(m.enter(nil, g.rules, g.root, 0))
	return m
}

// Match tells whether the whole text conforms.
func (g *Grammar) Match(text string) bool {
	m := g.Matcher()
	return m.Feed([]byte(text)) && m.Complete()
}

// Feed takes the next bytes, which may end inside a character, and tells
// whether the text so far can still be continued or completed to conform.
func (m *Matcher) Feed(b []byte) bool {
	b = append(m.partial, b...)
	for len(b) > 0 && utf8.FullRune(b) && len(m.now) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			m.now = nil // not UTF-8
			break
		}
		m.step(r)
		b = b[n:]
	}
	m.partial = append(m.partial[:0:0], b...)
	return len(m.now) > 0
}

// Complete tells whether the text so far conforms as a whole.
func (m *Matcher) Complete() bool {
	if len(m.partial) > 0 {
		return false
	}
	for _, id := range m.now {
		if id == 0 {
			return true
		}
	}
	return false
}

func (m *Matcher) step(r rune) {
	var next []int
	for _, id := range m.now {
		if id == 0 {
			continue
		}
		f := m.frames[id]
		if m.g.rules[f.rule].alts[f.alt][f.pos].chars.has(r) {
			next = append(next, m.after(f))
		}
	}
	m.now = m.expand(next)
}

// after is the frame behind the element at f; a finished alternative is left at
// once, so that repetitions do not pile up frames.
func (m *Matcher) after(f frame) int {
	f.pos++
	if f.pos == len(m.g.rules[f.rule].alts[f.alt]) {
		return f.then
	}
	return m.intern(f)
}

func (m *Matcher) intern(f frame) int {
	id, ok := m.ids[f]
	if !ok {
		id = len(m.frames)
		m.frames = append(m.frames, f)
		m.ids[f] = id
	}
	return id
}

// enter appends the frames at the beginning of a rule's alternatives.
func (m *Matcher) enter(to []int, rules []rule, r, then int) []int {
	for alt, elements := range rules[r].alts {
		if len(elements) == 0 {
			to = append(to, then)
			continue
		}
		to = append(to, m.intern(frame{rule: r, alt: alt, then: then}))
	}
	return to
}

// expand replaces frames before a rule by those of its alternatives, until all
// stand before characters.
func (m *Matcher) expand(work []int) []int {
	var out []int
	seen := map[int]bool{}
	for len(work) > 0 {
		id := work[len(work)-1]
		work = work[:len(work)-1]
		if seen[id] {
			continue
		}
		seen[id] = true
		if len(seen) > maxStacks {
			return nil
		}
		f := m.frames[id]
		if id == 0 {
			out = append(out, 0)
			continue
		}
		e := m.g.rules[f.rule].alts[f.alt][f.pos]
		if e.rule < 0 {
			out = append(out, id)
			continue
		}
		work = m.enter(work, m.g.rules, e.rule, m.after(f))
	}
	return out
}
