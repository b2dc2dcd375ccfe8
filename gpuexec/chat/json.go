package chat

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/nikolalohinski/gonja/v2/exec"
)

// jsonStyle is the part of Python's json.dumps that templates use.
type jsonStyle struct {
	indent     int // -1: on one line
	ascii      bool
	sortKeys   bool
	item, pair string // separators
}

// pythonJSON is json.dumps(v, ensure_ascii=False), the default of transformers.
var pythonJSON = jsonStyle{indent: -1, item: ", ", pair: ": "}

// write appends v. Values that JSON has no word for are an error.
func (s jsonStyle) write(b *strings.Builder, v any, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("tojson: nested deeper than %d", maxDepth)
	}
	switch t := unwrap(v).(type) {
	case nil, *null:
		b.WriteString("null")
	case bool:
		b.WriteString(strconv.FormatBool(t))
	case string:
		s.quote(b, t)
	case int:
		b.WriteString(strconv.Itoa(t))
	case float64:
		b.WriteString(pythonFloat(t))
	case *exec.Dict:
		return s.object(b, t.Pairs, depth)
	case map[string]any: // a namespace; it has no order, so sorted
		var pairs []*exec.Pair
		for k, item := range t {
			pairs = append(pairs, &exec.Pair{Key: exec.AsValue(k), Value: exec.ToValue(item)})
		}
		s.sortKeys = true
		return s.object(b, pairs, depth)
	default:
		value := exec.ToValue(v)
		if !value.IsList() {
			return fmt.Errorf("tojson: a %T has no JSON form", t)
		}
		return s.array(b, normalize(value).Interface().(list), depth)
	}
	return nil
}

func (s jsonStyle) array(b *strings.Builder, items list, depth int) error {
	b.WriteByte('[')
	for i, item := range items {
		s.separate(b, i, depth+1)
		if err := s.write(b, item, depth+1); err != nil {
			return err
		}
	}
	s.end(b, len(items), depth, ']')
	return nil
}

func (s jsonStyle) object(b *strings.Builder, pairs []*exec.Pair, depth int) error {
	if s.sortKeys {
		pairs = slices.Clone(pairs)
		slices.SortFunc(pairs, func(x, y *exec.Pair) int { return strings.Compare(x.Key.String(), y.Key.String()) })
	}
	b.WriteByte('{')
	for i, p := range pairs {
		s.separate(b, i, depth+1)
		s.quote(b, p.Key.String())
		b.WriteString(s.pair)
		if err := s.write(b, p.Value, depth+1); err != nil {
			return err
		}
	}
	s.end(b, len(pairs), depth, '}')
	return nil
}

func (s jsonStyle) separate(b *strings.Builder, i, depth int) {
	if i > 0 {
		b.WriteString(s.item)
	}
	if s.indent >= 0 {
		b.WriteByte('\n')
		b.WriteString(strings.Repeat(" ", s.indent*depth))
	}
}

func (s jsonStyle) end(b *strings.Builder, n, depth int, closing byte) {
	if n > 0 && s.indent >= 0 {
		b.WriteByte('\n')
		b.WriteString(strings.Repeat(" ", s.indent*depth))
	}
	b.WriteByte(closing)
}

func (s jsonStyle) quote(b *strings.Builder, text string) {
	b.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\b':
			b.WriteString(`\b`)
		case r == '\f':
			b.WriteString(`\f`)
		case r < 0x20 || (s.ascii && r == 0x7f):
			fmt.Fprintf(b, `\u%04x`, r)
		case s.ascii && r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			fmt.Fprintf(b, `\u%04x\u%04x`, hi, lo)
		case s.ascii && r > 0x7e:
			fmt.Fprintf(b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
}

// pythonFloat is repr(float): shortest digits, exponent form outside 1e-4 … 1e16.
func pythonFloat(f float64) string {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return "null"
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	out := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(out, ".") {
		out += ".0"
	}
	return out
}

// toJSON is v as transformers' tojson prints it.
func toJSON(v any, s jsonStyle) (string, error) {
	var b strings.Builder
	err := s.write(&b, v, 0)
	return b.String(), err
}
