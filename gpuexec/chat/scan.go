package chat

// scanner checks JSON (RFC 8259) as it comes, byte by byte: whether what was seen is
// the beginning of one value, and where the value ends. Bytes that are not ASCII are
// taken inside strings only. White space around the value is part of no value.
type scanner struct {
	state scanState
	open  []byte // '{' and '[' that are open
	key   bool   // the string is a key
	left  int    // hex digits to come, or bytes of the literal
	word  string // the literal that is read
	// lenient takes the control characters that models write into strings instead of
	// their escapes.
	lenient bool
}

type scanState uint8

const (
	scanValue    scanState = iota // a value must come
	scanFirst                     // a value or ]
	scanKeyOrEnd                  // a key or }
	scanKey                       // a key
	scanColon
	scanString
	scanEscape
	scanHex
	scanWord  // inside true, false, null
	scanMinus // digits must come
	scanZero
	scanInt
	scanPoint // digits must come
	scanFrac
	scanExp  // sign or digits must come
	scanSign // digits must come
	scanPower
	scanAfter // , or the end of an object or array; or, with none open, the value is over
)

// maxJSONDepth bounds what is open at once in the arguments of a call.
const maxJSONDepth = 256

// next takes a byte and tells whether the text can still become a value. After
// false the scanner is where it was.
func (s *scanner) next(c byte) bool {
	switch s.state {
	case scanString:
		return s.inString(c)
	case scanEscape, scanHex:
		return s.inEscape(c)
	case scanWord:
		if c != s.word[len(s.word)-s.left] {
			return false
		}
		if s.left--; s.left == 0 {
			s.state = scanAfter
		}
		return true
	case scanMinus, scanZero, scanInt, scanPoint, scanFrac, scanExp, scanSign, scanPower:
		return s.inNumber(c)
	}
	if isSpace(c) {
		return true
	}
	switch s.state {
	case scanFirst:
		if c == ']' {
			return s.close('[')
		}
		return s.begin(c)
	case scanKeyOrEnd, scanKey:
		if c == '}' && s.state == scanKeyOrEnd {
			return s.close('{')
		}
		if c != '"' {
			return false
		}
		s.state, s.key = scanString, true
		return true
	case scanColon:
		if c != ':' {
			return false
		}
		s.state = scanValue
		return true
	case scanAfter:
		return s.after(c)
	}
	return s.begin(c)
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

// begin takes the first byte of a value.
func (s *scanner) begin(c byte) bool {
	switch {
	case c == '{' || c == '[':
		if len(s.open) >= maxJSONDepth {
			return false
		}
		s.open = append(s.open, c)
		s.state = scanFirst
		if c == '{' {
			s.state = scanKeyOrEnd
		}
	case c == '"':
		s.state, s.key = scanString, false
	case c == '-':
		s.state = scanMinus
	case c == '0':
		s.state = scanZero
	case c >= '1' && c <= '9':
		s.state = scanInt
	case c == 't' || c == 'f' || c == 'n':
		s.word = map[byte]string{'t': "true", 'f': "false", 'n': "null"}[c]
		s.state, s.left = scanWord, len(s.word)-1
	default:
		return false
	}
	return true
}

// after takes a byte behind a value.
func (s *scanner) after(c byte) bool {
	if len(s.open) == 0 {
		return false
	}
	switch in := s.open[len(s.open)-1]; {
	case c == ',' && in == '{':
		s.state = scanKey
	case c == ',':
		s.state = scanValue
	case c == '}':
		return s.close('{')
	case c == ']':
		return s.close('[')
	default:
		return false
	}
	return true
}

func (s *scanner) close(open byte) bool {
	if len(s.open) == 0 || s.open[len(s.open)-1] != open {
		return false
	}
	s.open = s.open[:len(s.open)-1]
	s.state = scanAfter
	return true
}

func (s *scanner) inString(c byte) bool {
	switch {
	case c == '"' && s.key:
		s.state = scanColon
	case c == '"':
		s.state = scanAfter
	case c == '\\':
		s.state = scanEscape
	case c < 0x20:
		return s.lenient
	}
	return true
}

func (s *scanner) inEscape(c byte) bool {
	if s.state == scanHex {
		if !isHex(c) {
			return false
		}
		if s.left--; s.left == 0 {
			s.state = scanString
		}
		return true
	}
	switch c {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.state = scanString
	case 'u':
		s.state, s.left = scanHex, 4
	default:
		return false
	}
	return true
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func (s *scanner) inNumber(c byte) bool {
	digit := c >= '0' && c <= '9'
	switch st := s.state; {
	case digit && st == scanMinus && c == '0':
		s.state = scanZero
	case digit && (st == scanMinus || st == scanInt):
		s.state = scanInt
	case digit && (st == scanPoint || st == scanFrac):
		s.state = scanFrac
	case digit && (st == scanExp || st == scanSign || st == scanPower):
		s.state = scanPower
	case c == '.' && (st == scanZero || st == scanInt):
		s.state = scanPoint
	case (c == 'e' || c == 'E') && (st == scanZero || st == scanInt || st == scanFrac):
		s.state = scanExp
	case (c == '+' || c == '-') && st == scanExp:
		s.state = scanSign
	case s.numberMayEnd() && isSpace(c):
		s.state = scanAfter
	case s.numberMayEnd():
		return s.after(c)
	default:
		return false
	}
	return true
}

func (s *scanner) numberMayEnd() bool {
	return s.state == scanZero || s.state == scanInt || s.state == scanFrac || s.state == scanPower
}

// whole tells whether what was seen is a value. A number is whole although digits
// may follow.
func (s *scanner) whole() bool {
	return len(s.open) == 0 && (s.state == scanAfter || s.numberMayEnd())
}

// ended tells whether the value is over for certain.
func (s *scanner) ended() bool { return len(s.open) == 0 && s.state == scanAfter }

// raw tells whether c, which was taken inside a string, is a control character that
// needs an escape.
func (s *scanner) raw(c byte) bool { return s.state == scanString && c < 0x20 }
