package grammar

import (
	"slices"
	"strconv"
	"strings"
)

// repetition reads * + ? or {m,n} and writes it out as llama.cpp does:
//
//	x*      R        with R  ::= x R |
//	x{2,4}  x x R1   with R1 ::= x R2 | , R2 ::= x |
func (p *parser) repetition(item []element) ([]element, error) {
	if len(item) == 0 {
		return nil, p.fail("an empty string cannot be repeated")
	}
	least, most, err := p.bounds()
	if err != nil {
		return nil, err
	}
	if err := p.countRule(); err != nil {
		return nil, err
	}
	if err := p.grow(least * len(item)); err != nil {
		return nil, err
	}
	var out []element
	for range least {
		out = append(out, item...)
	}
	if most < 0 {
		r := p.anonymous(nil)
		p.rules[r].alts = [][]element{append(slices.Clone(item), element{rule: r}), nil}
		return append(out, element{rule: r}), p.grow(len(item) + 2)
	}
	if err := p.grow((most - least) * (len(item) + 2)); err != nil {
		return nil, err
	}
	var tail []element
	for range most - least {
		tail = []element{{rule: p.anonymous([][]element{append(slices.Clone(item), tail...), nil})}}
	}
	return append(out, tail...), nil
}

// bounds reads a repetition sign; most is -1 when there is no upper bound.
func (p *parser) bounds() (least, most int, err error) {
	sign := p.peek()
	p.pos++
	switch sign {
	case '*':
		return 0, -1, nil
	case '+':
		return 1, -1, nil
	case '?':
		return 0, 1, nil
	}
	end := strings.IndexByte(p.src[p.pos:], '}')
	if end < 0 {
		return 0, 0, p.fail("'{' without '}'")
	}
	text := p.src[p.pos : p.pos+end]
	low, high, two := strings.Cut(text, ",")
	if least, err = p.count(low); err != nil {
		return 0, 0, err
	}
	most = least
	if high = strings.Trim(high, " \t"); two && high == "" {
		most = -1
	} else if two {
		if most, err = p.count(high); err != nil {
			return 0, 0, err
		}
	}
	if most >= 0 && most < least {
		return 0, 0, p.fail("repetition {%s} ends before it starts", text)
	}
	p.pos += end + 1
	return least, most, nil
}

func (p *parser) count(text string) (int, error) {
	text = strings.Trim(text, " \t")
	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			return 0, p.fail("%q is no number of repetitions", text)
		}
	}
	n, err := strconv.Atoi(text)
	if err != nil || n > maxRepeat {
		return 0, p.fail("%q repetitions, allowed are 0 to %d", text, maxRepeat)
	}
	return n, nil
}
