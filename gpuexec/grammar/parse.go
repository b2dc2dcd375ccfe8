package grammar

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ErrGrammar: a GBNF text is not acceptable. The text names line and reason.
var ErrGrammar = errors.New("grammar: bad GBNF")

// Bounds of one grammar.
const (
	maxSource   = 256 << 10 // bytes of text
	maxRepeat   = 1000      // m and n of {m,n}; llama.cpp refuses above 2,000
	maxNesting  = 64        // groups inside one another: they are parsed recursively
	maxElements = 20_000    // elements and rules after repetitions are written out
	maxRules    = 8192      // named rules, groups and repetitions; the library walks them recursively
)

// element is one step of a sequence: a character of a set, or a rule.
type element struct {
	rule  int // index of a rule; -1: chars
	chars charSet
}

// charSet is a set of characters, or the rest when negated.
type charSet struct {
	ranges  [][2]rune
	negated bool
}

func (c charSet) has(r rune) bool {
	for _, x := range c.ranges {
		if x[0] <= r && r <= x[1] {
			return !c.negated
		}
	}
	return c.negated
}

// rule is a list of alternatives; repetitions have become rules of their own.
type rule struct {
	name    string
	defined bool
	line    int // of the definition or else of the first use
	alts    [][]element
}

// Grammar is a parsed and checked GBNF grammar.
type Grammar struct {
	rules []rule
	root  int
}

// Check reports why a grammar is not acceptable: syntax, undefined rules, no
// rule "root", left recursion, rules that can never end, absurd sizes. The error
// wraps ErrGrammar.
func Check(gbnf string) error {
	_, err := Parse(gbnf)
	return err
}

// Parse is Check that keeps the grammar, for a Matcher.
func Parse(gbnf string) (*Grammar, error) {
	if len(gbnf) > maxSource {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrGrammar, len(gbnf), maxSource)
	}
	if !utf8.ValidString(gbnf) {
		return nil, fmt.Errorf("%w: not valid UTF-8", ErrGrammar)
	}
	if strings.IndexByte(gbnf, 0) >= 0 {
		return nil, fmt.Errorf("%w: contains a zero byte", ErrGrammar)
	}
	p := &parser{src: gbnf, names: map[string]int{}}
	p.space(true)
	for p.pos < len(p.src) {
		if err := p.definition(); err != nil {
			return nil, err
		}
	}
	root, ok := p.names["root"]
	if !ok || !p.rules[root].defined {
		return nil, fmt.Errorf("%w: there is no rule \"root\"", ErrGrammar)
	}
	g := &Grammar{rules: p.rules, root: root}
	return g, g.check()
}

type parser struct {
	src   string
	pos   int
	rules []rule
	names map[string]int
	size  int // elements and rules so far
	total int // named rules, groups and repetitions so far
}

func (p *parser) fail(format string, args ...any) error {
	line := 1 + strings.Count(p.src[:min(p.pos, len(p.src))], "\n")
	return fmt.Errorf("%w: line %d: %s", ErrGrammar, line, fmt.Sprintf(format, args...))
}

// space skips blanks and comments, and line ends where they do not end a rule.
func (p *parser) space(lines bool) {
	for p.pos < len(p.src) {
		switch c := p.src[p.pos]; {
		case c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r')):
			p.pos++
		case c == '#':
			end := strings.IndexAny(p.src[p.pos:], "\r\n")
			if end < 0 {
				end = len(p.src) - p.pos
			}
			p.pos += end
		default:
			return
		}
	}
}

func (p *parser) peek() byte {
	if p.pos < len(p.src) {
		return p.src[p.pos]
	}
	return 0
}

func isWord(c byte) bool {
	return c == '-' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')
}

func (p *parser) name() (string, error) {
	start := p.pos
	for isWord(p.peek()) {
		p.pos++
	}
	if p.pos == start {
		return "", p.fail("expected a rule name (letters, digits, '-') at %s", p.here())
	}
	return p.src[start:p.pos], nil
}

// here is the next few characters, for errors.
func (p *parser) here() string {
	if p.pos >= len(p.src) {
		return "the end"
	}
	rest := p.src[p.pos:]
	return strconv.Quote(strings.ToValidUTF8(rest[:min(len(rest), 12)], ""))
}

// grow accounts for n more elements or rules.
func (p *parser) grow(n int) error {
	if p.size += n; p.size > maxElements {
		return p.fail("more than %d elements when repetitions are written out", maxElements)
	}
	return nil
}

// countRule accounts for a named rule, group or repetition.
func (p *parser) countRule() error {
	if p.total++; p.total > maxRules {
		return p.fail("more than %d rules, groups and repetitions", maxRules)
	}
	return p.grow(1)
}

// ruleIndex is the index of a named rule, which may be defined later.
func (p *parser) ruleIndex(name string) int {
	at, ok := p.names[name]
	if !ok {
		at = len(p.rules)
		p.names[name] = at
		p.rules = append(p.rules, rule{name: name, line: 1 + strings.Count(p.src[:p.pos], "\n")})
	}
	return at
}

// anonymous adds a rule that a group or a repetition needs.
func (p *parser) anonymous(alts [][]element) int {
	p.rules = append(p.rules, rule{defined: true, line: 1 + strings.Count(p.src[:p.pos], "\n"), alts: alts})
	return len(p.rules) - 1
}

func (p *parser) definition() error {
	name, err := p.name()
	if err != nil {
		return err
	}
	p.space(false)
	if !strings.HasPrefix(p.src[p.pos:], "::=") {
		return p.fail("expected ::= after %q, found %s", name, p.here())
	}
	p.pos += len("::=")
	p.space(true)
	at := p.ruleIndex(name)
	if p.rules[at].defined {
		return p.fail("rule %q is defined twice", name)
	}
	p.rules[at].defined = true
	p.rules[at].line = 1 + strings.Count(p.src[:p.pos], "\n")
	alts, err := p.alternatives(0)
	if err != nil {
		return err
	}
	p.rules[at].alts = alts
	if c := p.peek(); p.pos < len(p.src) && c != '\n' && c != '\r' {
		return p.fail("expected the end of rule %q, found %s", name, p.here())
	}
	p.space(true)
	return p.countRule()
}

func (p *parser) alternatives(depth int) ([][]element, error) {
	if depth > maxNesting {
		return nil, p.fail("groups nest deeper than %d", maxNesting)
	}
	var alts [][]element
	for {
		seq, err := p.sequence(depth)
		if err != nil {
			return nil, err
		}
		alts = append(alts, seq)
		if p.peek() != '|' {
			return alts, nil
		}
		p.pos++
		p.space(true)
		if err := p.grow(1); err != nil {
			return nil, err
		}
	}
}

func (p *parser) sequence(depth int) ([]element, error) {
	var seq []element
	for {
		item, ok, err := p.item(depth)
		if err != nil {
			return nil, err
		}
		if !ok {
			return seq, nil
		}
		p.space(depth > 0)
		for strings.IndexByte("*+?{", p.peek()) >= 0 && p.pos < len(p.src) {
			if item, err = p.repetition(item); err != nil {
				return nil, err
			}
			p.space(depth > 0)
		}
		if err := p.grow(len(item)); err != nil {
			return nil, err
		}
		seq = append(seq, item...)
	}
}

// item parses one literal, class, reference or group; ok is false at the end of
// the sequence.
func (p *parser) item(depth int) (item []element, ok bool, err error) {
	switch c := p.peek(); {
	case c == '"':
		item, err = p.literal()
		return item, true, err
	case c == '[':
		set, err := p.class()
		return []element{{rule: -1, chars: set}}, true, err
	case c == '.':
		p.pos++
		return []element{{rule: -1, chars: charSet{negated: true}}}, true, nil
	case c == '(':
		p.pos++
		p.space(true)
		alts, err := p.alternatives(depth + 1)
		if err != nil {
			return nil, false, err
		}
		if p.peek() != ')' {
			return nil, false, p.fail("expected ')', found %s", p.here())
		}
		p.pos++
		return []element{{rule: p.anonymous(alts)}}, true, p.countRule()
	case isWord(c):
		name, err := p.name()
		if err != nil {
			return nil, false, err
		}
		return []element{{rule: p.ruleIndex(name)}}, true, nil
	case strings.IndexByte("*+?{", c) >= 0 && c != 0:
		return nil, false, p.fail("nothing before %q to repeat", string(c))
	default:
		return nil, false, nil
	}
}

func (p *parser) literal() ([]element, error) {
	p.pos++
	var item []element
	for p.peek() != '"' || p.pos >= len(p.src) {
		r, err := p.char("string")
		if err != nil {
			return nil, err
		}
		item = append(item, element{rule: -1, chars: charSet{ranges: [][2]rune{{r, r}}}})
	}
	p.pos++
	return item, nil
}

func (p *parser) class() (charSet, error) {
	p.pos++
	set := charSet{}
	if p.peek() == '^' {
		set.negated = true
		p.pos++
	}
	for p.peek() != ']' || p.pos >= len(p.src) {
		lo, err := p.char("class")
		if err != nil {
			return set, err
		}
		hi := lo
		if p.peek() == '-' && p.pos+1 < len(p.src) && p.src[p.pos+1] != ']' {
			p.pos++
			if hi, err = p.char("class"); err != nil {
				return set, err
			}
			if hi < lo {
				return set, p.fail("range %q-%q is reversed", lo, hi)
			}
		}
		set.ranges = append(set.ranges, [2]rune{lo, hi})
		if err := p.grow(1); err != nil {
			return set, err
		}
	}
	p.pos++
	if len(set.ranges) == 0 {
		return set, p.fail("empty character class")
	}
	return set, nil
}

// char reads one character of a string or class.
func (p *parser) char(where string) (rune, error) {
	if p.pos >= len(p.src) {
		return 0, p.fail("%s without end", where)
	}
	if p.src[p.pos] != '\\' {
		r, n := utf8.DecodeRuneInString(p.src[p.pos:])
		p.pos += n
		return r, nil
	}
	p.pos++
	c := p.peek()
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
	if digits == 0 {
		p.pos++
		switch c {
		case 't':
			return '\t', nil
		case 'r':
			return '\r', nil
		case 'n':
			return '\n', nil
		case '\\', '"', '[', ']':
			return rune(c), nil
		}
		return 0, p.fail(`unknown escape "\%c"`, c)
	}
	p.pos++
	if p.pos+digits > len(p.src) {
		return 0, p.fail(`\%c needs %d hex digits`, c, digits)
	}
	v, err := strconv.ParseUint(p.src[p.pos:p.pos+digits], 16, 32)
	if err != nil || v > utf8.MaxRune {
		return 0, p.fail(`\%c%s is no character`, c, p.src[p.pos:p.pos+digits])
	}
	p.pos += digits
	return rune(v), nil
}
