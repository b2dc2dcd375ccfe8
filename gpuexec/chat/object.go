package chat

import (
	"encoding/json"
	"fmt"
	"strings"
)

// objectReader reads a call that is a JSON object, such as
// {"name": "f", "arguments": {"x": 1}}. The members may come in any order; the
// arguments may be called parameters, be an object or JSON in a string, be null or
// missing. Other members are skipped.
type objectReader struct {
	json  scanner
	part  part
	field member
	text  []byte // the key or value that is read
	flows bool   // the value goes to the call's arguments byte by byte

	name, id string
	args     []byte // complete, but the name is missing
	given    bool   // there were arguments
}

type part uint8

const (
	partNone part = iota
	partKey
	partValue
)

// member is a member of a call.
type member uint8

const (
	fieldOther member = iota
	fieldName
	fieldArguments
	fieldID
)

// inObject reads a byte of a call that is an object.
func (p *Parser) inObject(c byte, next int) {
	o := &p.c.object
	before, depth := o.json.state, len(o.json.open)
	number := o.part == partValue && depth == 1 && o.json.numberMayEnd()
	if !o.json.next(c) {
		p.fail(c)
		return
	}
	switch {
	case depth == 1 && (before == scanKey || before == scanKeyOrEnd) && c == '"':
		o.part, o.text = partKey, append(o.text[:0], c)
	case o.part == partKey:
		o.add(c)
		if o.json.state == scanColon {
			o.part = partNone
			o.field = fieldOf(o.text, o)
		}
	case depth == 1 && before == scanValue && !isSpace(c):
		if !p.beginMember(c) {
			return
		}
	case o.part == partValue && number && (isSpace(c) || c == ',' || c == '}'):
		if !p.endMember() {
			return
		}
	case o.part == partValue:
		p.addMember(c)
		if len(o.json.open) == 1 && o.json.state == scanAfter && !p.endMember() {
			return
		}
	}
	if o.json.ended() {
		p.endObject(next)
	}
}

// add keeps a byte of a key or value.
func (o *objectReader) add(c byte) {
	if o.json.raw(c) {
		o.text = append(o.text, escapeControl(c)...)
	} else {
		o.text = append(o.text, c)
	}
}

// fieldOf is the member that a key names; only the first one of a kind counts.
func fieldOf(key []byte, o *objectReader) member {
	name, _ := decodeString(key)
	switch {
	case (name == "name" || name == "function") && o.name == "":
		return fieldName
	case (name == "arguments" || name == "parameters") && !o.given:
		return fieldArguments
	case name == "id":
		return fieldID
	}
	return fieldOther
}

// beginMember takes the first byte of a value. It reports false when that shows
// that there is no call.
func (p *Parser) beginMember(c byte) bool {
	o := &p.c.object
	o.part, o.text, o.flows = partValue, o.text[:0], false
	if o.field == fieldArguments {
		o.given = true
		if p.c.bare && c != '{' && c != '"' {
			p.fail(c)
			return false
		}
		if c == '{' && o.name != "" {
			o.flows = true
			p.announce(p.callID(o.id), o.name)
		}
	}
	p.addMember(c)
	return true
}

func (p *Parser) addMember(c byte) {
	o := &p.c.object
	switch {
	case o.flows && o.json.raw(c):
		p.arguments(escapeControl(c)...)
	case o.flows:
		p.arguments(c)
	case o.field != fieldOther:
		o.add(c)
	}
}

// endMember takes a complete value. It reports false when there is no call.
func (p *Parser) endMember() bool {
	o := &p.c.object
	o.part = partNone
	switch o.field {
	case fieldName:
		name, ok := decodeString(o.text)
		if !ok || name == "" || len(name) > maxName {
			p.fail()
			return false
		}
		o.name = name
	case fieldID:
		o.id, _ = decodeString(o.text)
	case fieldArguments:
		if o.flows {
			return true
		}
		args, ok := plainArguments(o.text)
		if !ok && p.c.bare {
			p.fail()
			return false
		}
		o.args = args
	}
	if o.name != "" && o.args != nil && !p.c.announced {
		p.announce(p.callID(o.id), o.name)
		p.arguments(o.args...)
		o.args = nil
	}
	return true
}

// plainArguments are arguments that did not come as an object; ok is false when they
// are neither an object nor nothing.
func plainArguments(text []byte) (args []byte, ok bool) {
	text = append([]byte(nil), text...)
	switch text[0] {
	case '{':
		return text, true
	case 'n':
		return []byte("{}"), true
	case '"':
		inner, _ := decodeString(text)
		inner = strings.TrimSpace(inner)
		if inner == "" {
			return []byte("{}"), true
		}
		if inner[0] == '{' && json.Valid([]byte(inner)) {
			return []byte(inner), true
		}
	}
	return text, false
}

// endObject: the object is over.
func (p *Parser) endObject(next int) {
	o := &p.c.object
	if !p.c.announced {
		if o.name == "" || p.c.bare {
			p.fail()
			return
		}
		p.announce(p.callID(o.id), o.name)
		p.arguments('{', '}')
	}
	p.finishCall()
	p.enter(next)
}

// callID is an id that the model wrote, where the family's templates take it.
func (p *Parser) callID(id string) string {
	if p.spec.Family != Mistral || len(id) != 9 || strings.Trim(id, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") != "" {
		return ""
	}
	return id
}

func decodeString(text []byte) (string, bool) {
	var s string
	err := json.Unmarshal(text, &s)
	return s, err == nil
}

// escapeControl is a control character as JSON writes it inside a string.
func escapeControl(c byte) []byte {
	switch c {
	case '\n':
		return []byte(`\n`)
	case '\r':
		return []byte(`\r`)
	case '\t':
		return []byte(`\t`)
	}
	return fmt.Appendf(nil, `\u%04x`, c)
}

// escapeByte is a byte of text inside a JSON string.
func escapeByte(c byte) []byte {
	switch {
	case c == '"' || c == '\\':
		return []byte{'\\', c}
	case c < 0x20:
		return escapeControl(c)
	}
	return []byte{c}
}

func quoteBytes(text []byte) []byte {
	out := []byte{'"'}
	for _, c := range text {
		out = append(out, escapeByte(c)...)
	}
	return append(out, '"')
}
