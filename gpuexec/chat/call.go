package chat

import "bytes"

// syntax is how a family marks reasoning and calls. Behind a call's marker, steps
// say what may follow; index 0 is not used.
type syntax struct {
	markers []marker // none is the beginning of another
	steps   []step
	bare    int // step of an answer that begins with {, 0 for none
	kimi    bool
}

type marker struct {
	kind markerKind
	text string
	to   int // markCall: the first step
}

type markerKind uint8

const (
	markOpen  markerKind = iota // of reasoning
	markClose                   // likewise
	markCall
	markEnd // of a call
)

// step is a place in a call.
type step struct {
	kind  stepKind
	words []lead // what leads on; none is the beginning of another
	next  int    // stepObject, stepArguments: behind the JSON value
	other int    // stepWords: where text that is no word is read, 0: it is no call
	// end: calls may end here without a marker, and other text is content.
	end  bool
	trim bool // stepValue: one line feed at the beginning belongs to no value
}

type stepKind uint8

const (
	stepWords     stepKind = iota // white space, then a word
	stepName                      // a name, then a word
	stepKey                       // a key: any text on one line, then a word
	stepValue                     // any text, up to a word
	stepObject                    // a call as a JSON object, from { on
	stepArguments                 // the arguments as a JSON object, from { on
)

// lead is a text that leads from one step to another.
type lead struct {
	text string
	to   int // 0: behind the calls
	do   act
}

// act is what a word means, as a set. It is done in this order.
type act uint16

const (
	doValue    act = 1 << iota // the text was a value
	doName                     // the text, if any, was the name
	doKey                      // the text was a key
	doID                       // the text was the call's id
	doAnnounce                 // the name is certain
	doFinish                   // the arguments are complete
	doString                   // the next value is a string
	doFeed                     // the word's last byte begins the JSON value of the next step
)

// callReader reads calls, see Parser.inCall.
type callReader struct {
	step int
	word []byte // the beginning of a word
	text []byte // a name or key
	// raw is the text since the last place where calls may end, or since the marker:
	// it stays text if no call comes of it. Empty once a name is announced.
	raw       []byte
	name      string
	announced bool
	left      bool // the call is one too many
	bare      bool // no marker says that it is a call
	members   int  // arguments that were written one by one
	key, id   string
	quoted    bool // the next value is a string
	object    objectReader
	value     valueReader
	json      scanner
}

// reset prepares for the next call, at the same step.
func (r *callReader) reset() { *r = callReader{step: r.step} }

// begin enters the step behind a call's marker.
func (p *Parser) begin(step int, marker string) {
	if p.mode != modeText && len(p.draft) == 0 {
		p.draft = append(p.draft, marker...)
	}
	p.mode = modeCall
	p.c = callReader{raw: []byte(marker)}
	p.enter(step)
}

func (p *Parser) enter(step int) {
	p.c.step, p.c.word, p.c.text = step, p.c.word[:0], p.c.text[:0]
	s := &p.syntax.steps[step]
	if s.end {
		p.c.raw = nil // what was read is understood
	}
	switch s.kind {
	case stepValue:
		p.c.value = valueReader{skip: s.trim, text: p.c.quoted || bloomHas(p.strings, p.c.name, p.c.key)}
		p.c.quoted = false
	case stepObject:
		p.c.object = objectReader{}
		p.c.object.json.lenient = true
	case stepArguments:
		p.c.json = scanner{lenient: true}
	}
}

// inCall reads a byte of a call.
func (p *Parser) inCall(c byte) {
	if len(p.draft) > 0 {
		if len(p.draft) >= maxHeld {
			p.fail()
			p.take(c)
			return
		}
		p.draft = append(p.draft, c)
	}
	if !p.c.announced {
		if len(p.c.raw) >= maxHeld {
			p.fail(c)
			return
		}
		p.c.raw = append(p.c.raw, c)
	}
	switch s := &p.syntax.steps[p.c.step]; s.kind {
	case stepObject:
		p.inObject(c, s.next)
	case stepArguments:
		p.inArguments(c, s.next)
	case stepWords:
		p.inWords(s, c)
	default:
		p.inText(s, c)
	}
}

// find returns the word that held is, or may become: then more is true.
func (s *step) find(held []byte) (w *lead, more bool) {
	for i := range s.words {
		if bytes.HasPrefix([]byte(s.words[i].text), held) {
			return &s.words[i], len(held) < len(s.words[i].text)
		}
	}
	return nil, false
}

// inWords: white space, then one of the words.
func (p *Parser) inWords(s *step, c byte) {
	if len(p.c.word) == 0 && isSpace(c) {
		return
	}
	p.c.word = append(p.c.word, c)
	switch w, more := s.find(p.c.word); {
	case more:
	case w != nil:
		p.follow(w)
	case s.end:
		p.leaveCalls()
	case s.other > 0 && len(p.c.word) == 1:
		p.enter(s.other)
		p.inText(&p.syntax.steps[s.other], c)
	default:
		p.fail(p.c.word...)
	}
}

// inText: a name, a key or a value, up to one of the words.
func (p *Parser) inText(s *step, c byte) {
	p.c.word = append(p.c.word, c)
	for len(p.c.word) > 0 {
		w, more := s.find(p.c.word)
		switch {
		case more:
			return
		case w != nil && w.text == "\n" && len(p.c.text) == 0: // before the name
			p.c.word = p.c.word[:0]
			return
		case w != nil:
			p.follow(w)
			return
		}
		c := p.c.word[0]
		if s.kind == stepValue {
			p.addValue(c)
		} else if !p.addText(s.kind, c) {
			p.fail(p.c.word...)
			return
		}
		p.c.word = append(p.c.word[:0], p.c.word[1:]...)
	}
}

// addText takes a byte of a name or key, or refuses it. White space around names is
// not part of them.
func (p *Parser) addText(kind stepKind, c byte) bool {
	t := p.c.text
	switch {
	case len(t) == 0 && isSpace(c):
		return true
	case len(t) >= maxName || c == '<' || c == '>' || c < 0x20 && (kind == stepKey || !isSpace(c)):
		return false
	case kind == stepName && bytes.IndexByte([]byte("{}[]()\"'`,;="), c) >= 0:
		return false
	case kind == stepName && !isSpace(c) && len(t) > 0 && isSpace(t[len(t)-1]):
		return false
	}
	p.c.text = append(t, c)
	return true
}

// follow goes where a word leads.
func (p *Parser) follow(w *lead) {
	text := string(bytes.TrimSpace(p.c.text))
	if w.do&doValue != 0 {
		p.endValue()
	}
	if w.do&doName != 0 && text != "" {
		p.c.name = text
	}
	if w.do&doKey != 0 {
		p.c.key = text
	}
	if w.do&doID != 0 {
		p.c.id = text
	}
	if w.do&doString != 0 {
		p.c.quoted = true
	}
	if w.do&doAnnounce != 0 && !p.c.announced {
		if p.c.name == "" {
			p.fail(w.text[len(w.text)-1])
			return
		}
		p.announceNamed()
	}
	if w.do&doFinish != 0 {
		p.endMembers()
		p.finishCall()
	}
	if w.to == 0 {
		p.closeCalls()
		return
	}
	p.enter(w.to)
	if w.do&doFeed != 0 {
		s := &p.syntax.steps[w.to]
		if c := w.text[len(w.text)-1]; s.kind == stepObject {
			p.inObject(c, s.next)
		} else {
			p.inArguments(c, s.next)
		}
	}
}

// inArguments reads a byte of arguments that are a JSON object.
func (p *Parser) inArguments(c byte, next int) {
	j := &p.c.json
	if !j.next(c) {
		p.fail(c)
		return
	}
	if j.raw(c) {
		p.arguments(escapeControl(c)...)
	} else {
		p.arguments(c)
	}
	if j.ended() {
		p.finishCall()
		p.enter(next)
	}
}

// fail: what was read is no call, or the rest of it is none. Text that was held
// stays text; the bytes in again have not been looked at as text.
func (p *Parser) fail(again ...byte) {
	again = append([]byte(nil), again...)
	switch r := &p.c; {
	case len(p.draft) > 0:
		p.release(again)
	case r.announced:
		p.mode, p.stray = modeText, true
	default:
		p.mode = modeText
		for _, c := range bytes.TrimSuffix(r.raw, again) {
			p.text(c)
		}
	}
	p.c = callReader{}
	for _, c := range again {
		p.take(c)
	}
}

// closeCalls: a word ended the calls.
func (p *Parser) closeCalls() {
	p.c, p.mode = callReader{}, modeText
	if len(p.draft) > 0 {
		p.mode = modeDraft
	}
}

// leaveCalls: other text ended the calls. It has to be read as text.
func (p *Parser) leaveCalls() {
	again := p.c.raw
	if len(p.draft) > 0 {
		again = p.c.word
		p.draft = p.draft[:len(p.draft)-len(again)]
	}
	p.closeCalls()
	for _, c := range again {
		p.take(c)
	}
}

// endInCall: the answer is over inside a call.
func (p *Parser) endInCall() {
	r := &p.c
	between := p.syntax.steps[r.step].end
	switch {
	case len(p.draft) > 0 && between:
		p.promote()
	case len(p.draft) > 0:
		p.release(nil)
	case between: // white space and a part of the end marker
		p.mode = modeText
	case !r.announced:
		raw := r.raw
		p.mode = modeText
		for _, c := range raw {
			p.text(c)
		}
	default:
		p.mode = modeText
	}
}
