package chat

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/nikolalohinski/gonja/v2/builtins"
	"github.com/nikolalohinski/gonja/v2/exec"
)

// filters are gonja's without those that are random or pad without bound, with
// ordered items and dictsort, and with tojson as transformers defines it.
func filters() *exec.FilterSet {
	out := map[string]exec.FilterFunction{}
	for _, name := range []string{
		"abs", "attr", "batch", "capitalize", "e", "escape", "first", "float", "format", "groupby",
		"indent", "int", "join", "last", "length", "count", "list", "lower", "map", "max", "min", "rejectattr", "reject",
		"replace", "round", "safe", "selectattr", "select", "slice", "sort", "string", "sum", "trim",
		"truncate", "unique", "upper", "wordcount",
	} {
		if f, ok := builtins.Filters.Get(name); ok {
			out[name] = func(e *exec.Evaluator, in *exec.Value, va *exec.VarArgs) *exec.Value {
				return normalize(f(e, in, va))
			}
		}
	}
	out["default"] = func(_ *exec.Evaluator, in *exec.Value, va *exec.VarArgs) *exec.Value {
		a := arguments{va}
		falsy := a.value(1, "boolean")
		if !in.Val.IsValid() || (falsy != nil && falsy.IsTrue() && !in.IsTrue()) {
			if v := a.value(0, "default_value"); v != nil {
				return v
			}
			return exec.AsValue("")
		}
		return in
	}
	out["d"] = out["default"]
	out["reverse"] = filterReverse
	out["title"] = func(_ *exec.Evaluator, in *exec.Value, _ *exec.VarArgs) *exec.Value {
		return exec.AsValue(title(in.String()))
	}
	out["items"] = func(_ *exec.Evaluator, in *exec.Value, _ *exec.VarArgs) *exec.Value {
		if in.IsNil() {
			return exec.AsValue(list{})
		}
		if !in.IsDict() {
			return exec.AsValue(fmt.Errorf("items needs a mapping"))
		}
		return exec.AsValue(pairsOf(in, func(k, v *exec.Value) any { return list{unwrap(k), unwrap(v)} }))
	}
	out["dictsort"] = func(e *exec.Evaluator, in *exec.Value, va *exec.VarArgs) *exec.Value {
		v := out["items"](e, in, &exec.VarArgs{})
		if items, ok := v.Interface().(list); ok {
			dictsort(items, arguments{va})
		}
		return v
	}
	out["tojson"] = filterToJSON
	for name, f := range out {
		switch name {
		case "length", "count", "first", "last", "default", "d": // do not read it all
			continue
		}
		out[name] = func(e *exec.Evaluator, in *exec.Value, va *exec.VarArgs) *exec.Value {
			if err := charge(e, size(in)); err != nil {
				return exec.AsValue(err)
			}
			return f(e, in, va)
		}
	}
	return exec.NewFilterSet(out)
}

// dictsort sorts pairs by their key, or with by='value' by their value: strings
// without regard to case unless case_sensitive, numbers before strings.
func dictsort(pairs list, a arguments) {
	at := 0
	if a.text(1, "by", "key") == "value" {
		at = 1
	}
	on := func(i int, name string) bool { v := a.value(i, name); return v != nil && v.IsTrue() }
	sensitive, reverse := on(0, "case_sensitive"), on(2, "reverse")
	slices.SortStableFunc(pairs, func(x, y any) int {
		v, w := exec.ToValue(x.(list)[at]), exec.ToValue(y.(list)[at])
		order := 0
		switch {
		case v.IsNumber() && w.IsNumber():
			order = cmp.Compare(v.Float(), w.Float())
		case v.IsNumber() != w.IsNumber():
			order = 1
			if v.IsNumber() {
				order = -1
			}
		case sensitive:
			order = strings.Compare(v.String(), w.String())
		default:
			order = strings.Compare(strings.ToLower(v.String()), strings.ToLower(w.String()))
		}
		if reverse {
			order = -order
		}
		return order
	})
}

// filterReverse turns a list or a string around. gonja's sorts.
func filterReverse(_ *exec.Evaluator, in *exec.Value, _ *exec.VarArgs) *exec.Value {
	if in.IsString() {
		runes := []rune(in.String())
		slices.Reverse(runes)
		return exec.AsValue(string(runes))
	}
	items, ok := normalize(in).Interface().(list)
	if !ok {
		return exec.AsValue(fmt.Errorf("reverse needs a list or a string"))
	}
	items = slices.Clone(items)
	slices.Reverse(items)
	return exec.AsValue(items)
}

// title is Jinja's filter: words begin behind white space and -({[<, not behind
// other signs as with Python's method of that name.
func title(s string) string {
	begins := true
	return strings.Map(func(r rune) rune {
		first := begins
		begins = unicode.IsSpace(r) || strings.ContainsRune("-({[<", r)
		if first {
			return unicode.ToUpper(r)
		}
		return unicode.ToLower(r)
	}, s)
}

func filterToJSON(e *exec.Evaluator, in *exec.Value, va *exec.VarArgs) *exec.Value {
	style, a := pythonJSON, arguments{va}
	flag := func(name string) bool { v := va.KwArgs[name]; return v != nil && v.IsTrue() }
	style.ascii, style.sortKeys = flag("ensure_ascii"), flag("sort_keys")
	if n := a.integer(0, "indent", -1); n >= 0 {
		style.indent, style.item = min(n, 16), ","
	}
	if v := va.KwArgs["separators"]; v != nil && v.IsList() && v.Len() == 2 {
		style.item, style.pair = v.Index(0).String(), v.Index(1).String()
	}
	text, err := toJSON(in, style)
	if err == nil {
		err = charge(e, jsonWork*len(text))
	}
	if err != nil {
		return exec.AsValue(err)
	}
	return exec.AsSafeValue(text)
}

// tests are gonja's, with none and undefined told apart as Jinja does, and with
// Python's idea of a sequence.
func tests() *exec.TestSet {
	defined := func(in *exec.Value) bool { return in.Val.IsValid() && !in.IsError() }
	out := exec.NewTestSet(map[string]exec.TestFunction{}).Update(builtins.Tests)
	for name, f := range map[string]func(in *exec.Value) bool{
		"defined":   defined,
		"none":      func(in *exec.Value) bool { return in.Val.IsValid() && in.IsNil() },
		"undefined": func(in *exec.Value) bool { return !defined(in) },
		"lower":     func(in *exec.Value) bool { return in.IsString() && cased(in.String(), strings.ToLower) },
		"upper":     func(in *exec.Value) bool { return in.IsString() && cased(in.String(), strings.ToUpper) },
		"odd":       func(in *exec.Value) bool { return in.IsInteger() && in.Integer()%2 != 0 },
		"sequence":  func(in *exec.Value) bool { return in.IsList() || in.IsString() || in.IsDict() },
		"true":      func(in *exec.Value) bool { return in.IsBool() && in.Bool() },
		"false":     func(in *exec.Value) bool { return in.IsBool() && !in.Bool() },
	} {
		// The name exists and the type is right, so Replace does not fail.
		_ = out.Replace(name, func(_ *exec.Context, in *exec.Value, _ *exec.VarArgs) (bool, error) { return f(in), nil })
	}
	return out
}

// cased tells whether s has letters with case and is already in the given one.
func cased(s string, to func(string) string) bool {
	return to(s) == s && strings.ToLower(s) != strings.ToUpper(s)
}

// globals are the functions that do not depend on the rendering.
func globals() *exec.Context {
	return exec.NewContext(map[string]any{
		noneName: (*null)(nil),
		groupName: func(e *exec.Evaluator, va *exec.VarArgs) *exec.Value {
			if len(va.Args) == 1 {
				if err := charge(e, size(va.Args[0])); err != nil {
					return exec.AsValue(err)
				}
				return normalize(va.Args[0])
			}
			return tuple(va)
		},
		pickName: func(_ *exec.Evaluator, va *exec.VarArgs) *exec.Value {
			if v := va.First(); v.IsList() && v.Len() == 1 {
				return normalize(v.Index(0))
			}
			return va.First()
		},
		itemName:  item,
		chainName: chain,
		tupleName: func(_ *exec.Evaluator, va *exec.VarArgs) *exec.Value { return tuple(va) },
		eachName: func(e *exec.Evaluator, va *exec.VarArgs) *exec.Value {
			v := va.First()
			if !v.IsString() {
				return normalize(v)
			}
			out := list{}
			for _, r := range v.String() {
				out = append(out, string(r))
			}
			if err := charge(e, itemWork*len(out)); err != nil {
				return exec.AsValue(err)
			}
			return exec.AsValue(out)
		},
		callName:  methodCall(stringMethods(), dictMethods()),
		emptyName: func() map[string]any { return map[string]any{} },
		"namespace": func(_ *exec.Evaluator, va *exec.VarArgs) map[string]any {
			out := map[string]any{}
			for k, v := range va.KwArgs {
				out[k] = unwrap(v)
			}
			return out
		},
		"dict": func(_ *exec.Evaluator, va *exec.VarArgs) map[string]any {
			out := map[string]any{}
			for k, v := range va.KwArgs {
				out[k] = unwrap(v)
			}
			return out
		},
		"range": rangeFunction,
	})
}

// tuple is the arguments as a list.
func tuple(va *exec.VarArgs) *exec.Value {
	out := list{}
	for _, v := range va.Args {
		out = append(out, unwrap(v))
	}
	return exec.AsValue(out)
}

// rangeFunction is Python's range. gonja's starts a goroutine and has no bound.
func rangeFunction(_ *exec.Evaluator, va *exec.VarArgs) (list, error) {
	bounds := []int{0, 0, 1}
	switch n := len(va.Args); n {
	case 1:
		bounds[1] = va.Args[0].Integer()
	case 2, 3:
		for i, v := range va.Args {
			bounds[i] = v.Integer()
		}
	default:
		return nil, fmt.Errorf("range takes 1 to 3 arguments, got %d", n)
	}
	start, stop, step := bounds[0], bounds[1], bounds[2]
	if step == 0 {
		return nil, fmt.Errorf("range: step is 0")
	}
	out := list{}
	for i := start; (step > 0 && i < stop) || (step < 0 && i > stop); i += step {
		if len(out) == maxRange {
			return nil, fmt.Errorf("range: more than %d elements", maxRange)
		}
		out = append(out, i)
	}
	return out, nil
}

// strftime is Python's, with English names and UTC, as templates use it.
func strftime(now time.Time, format string) string {
	layouts := map[byte]string{
		'Y': "2006", 'y': "06", 'm': "01", 'd': "02", 'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM",
		'B': "January", 'b': "Jan", 'h': "Jan", 'A': "Monday", 'a': "Mon", 'j': "002", 'Z': "MST", 'z': "-0700",
		'F': "2006-01-02", 'T': "15:04:05", 'D': "01/02/06", 'R': "15:04", 'e': "_2", 'c': "Mon Jan _2 15:04:05 2006",
	}
	short := map[byte]string{'d': "2", 'm': "1", 'I': "3", 'M': "4", 'S': "5"}
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		switch c := format[i]; {
		case c == '%':
			b.WriteByte('%')
		case c == '-' && i+1 < len(format) && short[format[i+1]] != "":
			i++
			b.WriteString(now.Format(short[format[i]]))
		case layouts[c] != "":
			b.WriteString(now.Format(layouts[c]))
		default: // as glibc: what it does not know stays
			b.WriteString("%" + string(c))
		}
	}
	return b.String()
}
