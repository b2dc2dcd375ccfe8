package chat

import (
	"bytes"
	"strings"
)

// valueReader reads an argument that is written between markers, without quotes
// where it is a string. What is JSON is taken as JSON, unless the parameter is known
// to be a string. Text flows on as soon as it can be no JSON any more.
type valueReader struct {
	skip bool // a line feed at the beginning
	text bool // the parameter is a string
	open bool // a string is being written
	json scanner
	held []byte // may be JSON
}

// pythonWords are values as templates write them that print what they are given.
var pythonWords = map[string]string{"True": "true", "False": "false", "None": "null"}

// addValue takes a byte of a value.
func (p *Parser) addValue(c byte) {
	v := &p.c.value
	if v.skip {
		v.skip = false
		if c == '\n' {
			return
		}
	}
	if !v.open && !v.text && len(v.held) < maxHeld && (v.json.next(c) || p.python(c)) {
		v.held = append(v.held, c)
		return
	}
	if !v.open {
		v.open = true
		p.writeKey()
		p.arguments('"')
		for _, c := range v.held {
			p.arguments(escapeByte(c)...)
		}
		v.held = nil
	}
	p.arguments(escapeByte(c)...)
}

// python tells whether the value may become one of Python's words. They count only
// where the strings among the parameters are known.
func (p *Parser) python(c byte) bool {
	if len(p.strings) == 0 {
		return false
	}
	for w := range pythonWords {
		if strings.HasPrefix(w, string(p.c.value.held)+string(c)) {
			return true
		}
	}
	return false
}

// endValue ends a value and its member of the arguments.
func (p *Parser) endValue() {
	v := &p.c.value
	if v.open {
		p.arguments('"')
		return
	}
	p.writeKey()
	word, isWord := pythonWords[string(v.held)]
	switch {
	case isWord:
		p.arguments([]byte(word)...)
	case v.json.whole():
		p.arguments(bytes.TrimSpace(v.held)...)
	default:
		p.arguments(quoteBytes(v.held)...)
	}
}

// writeKey begins a member of the arguments.
func (p *Parser) writeKey() {
	sep := byte(',')
	if p.c.members == 0 {
		sep = '{'
	}
	p.c.members++
	p.arguments(sep)
	p.arguments(quoteBytes([]byte(p.c.key))...)
	p.arguments(':')
}

// endMembers completes arguments that were written one by one.
func (p *Parser) endMembers() {
	if p.c.members == 0 {
		p.arguments('{')
	}
	p.arguments('}')
}

// announceNamed begins a call whose name was written as text.
func (p *Parser) announceNamed() {
	id, name := "", p.c.name
	if p.syntax.kimi {
		// functions.NAME:INDEX, where the name may have points, too.
		id, name = name, strings.TrimPrefix(name, "functions.")
		if at := strings.LastIndexByte(name, ':'); at > 0 && strings.Trim(name[at+1:], "0123456789") == "" {
			name = name[:at]
		}
		p.c.name = name
	} else {
		id = p.callID(p.c.id)
	}
	p.announce(id, name)
}
