package llamacpp

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Bounds of a grammar. The library's parser and its rule walk recurse on the C
// stack, and repetitions are expanded when a grammar is compiled.
const (
	maxGrammarBytes = 256 << 10
	maxGrammarRules = 8192 // groups and repetitions count as rules
	maxGroupDepth   = 64
	maxRepeat       = 1000
	maxExpanded     = 20_000 // elements after repetitions are written out
)

// terminal stands for a character or class in an alternative.
const terminal = -1

// gbnfRule is a named rule, a group or a repetition.
type gbnfRule struct {
	name    string  // "" for groups and repetitions
	defined bool    // a definition was read
	alts    [][]int // each a sequence of rule indexes or terminal
	empty   bool    // may match nothing
}

// gbnfParser reads GBNF as the library does, and keeps what is needed to find
// left recursion.
type gbnfParser struct {
	src      string
	at       int
	rules    []gbnfRule
	byName   map[string]int
	expanded int
}

// checkGBNF refuses every grammar that the library would refuse, crash on or loop
// on, and says where. Token literals (<name>, !<name>) are outside the supported
// subset. Errors wrap ErrGrammar.
func checkGBNF(src string) error {
	p := &gbnfParser{src: src, byName: map[string]int{}}
	if len(src) > maxGrammarBytes {
		return fmt.Errorf("%w: %d bytes, at most %d are accepted", ErrGrammar, len(src), maxGrammarBytes)
	}
	if i := strings.IndexByte(src, 0); i >= 0 {
		return p.fail(i, "a NUL byte")
	}
	if !utf8.ValidString(src) {
		return p.fail(0, "text that is not UTF-8")
	}
	p.space(true)
	for p.at < len(src) {
		if err := p.definition(); err != nil {
			return err
		}
		p.space(true)
	}
	return p.validate()
}

// fail makes an error at byte offset at, told as line and column.
func (p *gbnfParser) fail(at int, format string, args ...any) error {
	line, col := 1, 1
	for _, c := range []byte(p.src[:min(at, len(p.src))]) {
		col++
		if c == '\n' {
			line, col = line+1, 1
		}
	}
	return fmt.Errorf("%w: line %d, column %d: %s", ErrGrammar, line, col, fmt.Sprintf(format, args...))
}

// peek is the next byte, 0 at the end.
func (p *gbnfParser) peek() byte {
	if p.at < len(p.src) {
		return p.src[p.at]
	}
	return 0
}

// space skips blanks and comments, and line ends where newline is set.
func (p *gbnfParser) space(newline bool) {
	for p.at < len(p.src) {
		switch c := p.src[p.at]; {
		case c == ' ' || c == '\t' || newline && (c == '\r' || c == '\n'):
			p.at++
		case c == '#':
			for p.at < len(p.src) && p.src[p.at] != '\r' && p.src[p.at] != '\n' {
				p.at++
			}
		default:
			return
		}
	}
}

func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-'
}

func (p *gbnfParser) word() string {
	from := p.at
	for isWord(p.peek()) {
		p.at++
	}
	return p.src[from:p.at]
}

// rule gives the index of the named rule; it may be defined later.
func (p *gbnfParser) rule(name string) int {
	if i, ok := p.byName[name]; ok {
		return i
	}
	i := p.add(gbnfRule{name: name})
	p.byName[name] = i
	return i
}

func (p *gbnfParser) add(r gbnfRule) int {
	p.rules = append(p.rules, r)
	return len(p.rules) - 1
}

// definition reads `name ::= alternatives` up to the end of the line.
func (p *gbnfParser) definition() error {
	from := p.at
	name := p.word()
	if name == "" {
		return p.fail(from, "expected the name of a rule, found %q", p.rest())
	}
	p.space(false)
	if len(p.src)-p.at < 3 || p.src[p.at:p.at+3] != "::=" {
		return p.fail(p.at, "expected ::= after %q, found %q", name, p.rest())
	}
	p.at += 3
	p.space(true)
	i := p.rule(name)
	if p.rules[i].defined {
		return p.fail(from, "rule %q is defined twice", name)
	}
	alts, err := p.alternatives(0)
	if err != nil {
		return err
	}
	p.rules[i].defined, p.rules[i].alts = true, alts
	if c := p.peek(); p.at < len(p.src) && c != '\r' && c != '\n' {
		return p.fail(p.at, "expected the end of the rule, found %q", p.rest())
	}
	return nil
}

// rest is the beginning of what is left, for messages.
func (p *gbnfParser) rest() string {
	return p.src[p.at:min(len(p.src), p.at+12)]
}

func (p *gbnfParser) alternatives(depth int) ([][]int, error) {
	if depth > maxGroupDepth {
		return nil, p.fail(p.at, "more than %d nested groups", maxGroupDepth)
	}
	var alts [][]int
	for {
		seq, err := p.sequence(depth)
		if err != nil {
			return nil, err
		}
		alts = append(alts, seq)
		p.space(depth > 0)
		if p.peek() != '|' {
			return alts, nil
		}
		p.at++
		p.space(true)
	}
}

// sequence reads symbols up to something that is none.
func (p *gbnfParser) sequence(depth int) ([]int, error) {
	var seq []int
	last := -1 // where the last symbol begins in seq
	for {
		var symbol []int
		var err error
		switch c := p.peek(); {
		case c == '"':
			symbol, err = p.literal()
		case c == '[':
			symbol, err = p.class()
		case c == '.':
			p.at++
			symbol = []int{terminal}
		case isWord(c):
			symbol = []int{p.rule(p.word())}
		case c == '(':
			symbol, err = p.group(depth)
		case c == '*' || c == '+' || c == '?' || c == '{':
			if last < 0 || last == len(seq) {
				return nil, p.fail(p.at, "%q has nothing before it", string(c))
			}
			symbol, err = p.repeat(seq[last:])
			seq = seq[:last]
		case c == '<' || c == '!':
			return nil, p.fail(p.at, "token literals are not supported")
		default:
			return seq, nil
		}
		if err != nil {
			return nil, err
		}
		last = len(seq)
		seq = append(seq, symbol...)
		p.expanded += len(symbol)
		if p.expanded > maxExpanded || len(p.rules) > maxGrammarRules {
			return nil, p.fail(p.at, "the grammar is too large: at most %d elements and %d rules", maxExpanded, maxGrammarRules)
		}
		p.space(depth > 0)
	}
}

func (p *gbnfParser) group(depth int) ([]int, error) {
	from := p.at
	p.at++
	p.space(true)
	alts, err := p.alternatives(depth + 1)
	if err != nil {
		return nil, err
	}
	if p.peek() != ')' {
		return nil, p.fail(from, "this group is not closed")
	}
	p.at++
	return []int{p.add(gbnfRule{defined: true, alts: alts})}, nil
}

// literal reads "text": one terminal per character.
func (p *gbnfParser) literal() ([]int, error) {
	from := p.at
	p.at++
	var seq []int
	for p.peek() != '"' {
		if p.at >= len(p.src) {
			return nil, p.fail(from, "this text is not closed")
		}
		at := p.at
		r, err := p.char()
		if err != nil {
			return nil, err
		}
		if r == 0 {
			return nil, p.fail(at, "no text contains the character U+0000")
		}
		seq = append(seq, terminal)
	}
	p.at++
	return seq, nil
}

// class reads [a-z] or [^a-z].
func (p *gbnfParser) class() ([]int, error) {
	from := p.at
	p.at++
	if p.peek() == '^' {
		p.at++
	}
	first := p.at
	for p.peek() != ']' {
		if p.at >= len(p.src) {
			return nil, p.fail(from, "this class is not closed")
		}
		low, err := p.char()
		if err != nil {
			return nil, err
		}
		if p.peek() != '-' || p.at+1 >= len(p.src) || p.src[p.at+1] == ']' {
			continue
		}
		p.at++
		high, err := p.char()
		if err != nil {
			return nil, err
		}
		if high < low {
			return nil, p.fail(from, "the range %q-%q is backwards", low, high)
		}
	}
	if p.at == first {
		return nil, p.fail(from, "an empty class matches nothing")
	}
	p.at++
	p.expanded += p.at - from
	return []int{terminal}, nil
}

// char reads one character, escaped or not.
func (p *gbnfParser) char() (rune, error) {
	r, n := utf8.DecodeRuneInString(p.src[p.at:])
	if r != '\\' {
		p.at += n
		return r, nil
	}
	from := p.at
	p.at += 2
	if from+1 >= len(p.src) {
		return 0, p.fail(from, "an escape without a character")
	}
	switch c := p.src[from+1]; c {
	case 'x':
		return p.hex(from, 2)
	case 'u':
		return p.hex(from, 4)
	case 'U':
		return p.hex(from, 8)
	case 't':
		return '\t', nil
	case 'r':
		return '\r', nil
	case 'n':
		return '\n', nil
	case '\\', '"', '[', ']':
		return rune(c), nil
	default:
		return 0, p.fail(from, "unknown escape \\%s", string(rune(c)))
	}
}

// hex reads n hexadecimal digits of a character's number.
func (p *gbnfParser) hex(from, n int) (rune, error) {
	var r rune
	for range n {
		c := p.peek()
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, p.fail(from, "an escape needs %d hexadecimal digits", n)
		}
		if r > utf8.MaxRune {
			return 0, p.fail(from, "a character beyond U+10FFFF")
		}
		p.at++
	}
	return r, nil
}

// repeat reads *, +, ? or {m,n} after symbol and makes a rule of both. Unbounded
// repetition becomes a rule that ends in itself, as in the library; so symbol that
// may be empty makes it left-recursive, and validate refuses it.
func (p *gbnfParser) repeat(symbol []int) ([]int, error) {
	low, high, err := p.bounds()
	if err != nil {
		return nil, err
	}
	p.expanded += len(symbol) * max(low, high)
	body := append([]int(nil), symbol...)
	r := gbnfRule{defined: true}
	if low == 0 {
		r.alts = append(r.alts, nil)
	}
	if high >= 0 {
		r.alts = append(r.alts, body)
		return []int{p.add(r)}, nil
	}
	i := p.add(r)
	if low > 0 {
		p.rules[i].alts = append(p.rules[i].alts, body)
	}
	p.rules[i].alts = append(p.rules[i].alts, append(body, i))
	return []int{i}, nil
}

// bounds reads a repetition; high is -1 when it has no upper end.
func (p *gbnfParser) bounds() (low, high int, err error) {
	from := p.at
	p.at++
	switch p.src[from] {
	case '*':
		return 0, -1, nil
	case '+':
		return 1, -1, nil
	case '?':
		return 0, 1, nil
	}
	p.space(false)
	if low, err = p.number(from); err != nil {
		return 0, 0, err
	}
	high = low
	p.space(false)
	if p.peek() == ',' {
		p.at++
		p.space(false)
		high = -1
		if p.peek() != '}' {
			if high, err = p.number(from); err != nil {
				return 0, 0, err
			}
			p.space(false)
		}
	}
	if p.peek() != '}' {
		return 0, 0, p.fail(from, "expected a repetition like {2}, {2,} or {2,5}")
	}
	p.at++
	if high == 0 || high > 0 && high < low {
		return 0, 0, p.fail(from, "a repetition of %d to %d times", low, high)
	}
	return low, high, nil
}

func (p *gbnfParser) number(from int) (int, error) {
	n, digits := 0, 0
	for c := p.peek(); c >= '0' && c <= '9'; c = p.peek() {
		n, digits = n*10+int(c-'0'), digits+1
		if n > maxRepeat {
			return 0, p.fail(from, "more than %d repetitions", maxRepeat)
		}
		p.at++
	}
	if digits == 0 {
		return 0, p.fail(from, "expected a repetition like {2}, {2,} or {2,5}")
	}
	return n, nil
}
