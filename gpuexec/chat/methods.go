package chat

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/nikolalohinski/gonja/v2/builtins"
	"github.com/nikolalohinski/gonja/v2/exec"
)

// arguments reads the arguments of a Python method.
type arguments struct {
	*exec.VarArgs
}

func (a arguments) value(i int, name string) *exec.Value {
	if i < len(a.Args) {
		return a.Args[i]
	}
	return a.KwArgs[name] // nil when absent
}

// text is argument i, or fallback when it is absent or none.
func (a arguments) text(i int, name, fallback string) string {
	if v := a.value(i, name); v != nil && !v.IsNil() {
		return v.String()
	}
	return fallback
}

func (a arguments) integer(i int, name string, fallback int) int {
	if v := a.value(i, name); v != nil && v.IsInteger() {
		return v.Integer()
	}
	return fallback
}

// texts is argument i as one string or a list of them.
func (a arguments) texts(i int) []string {
	v := a.value(i, "")
	if v == nil {
		return nil
	}
	if !v.IsList() {
		return []string{v.String()}
	}
	var out []string
	v.Iterate(func(_, _ int, item, _ *exec.Value) bool {
		out = append(out, item.String())
		return true
	}, func() {})
	return out
}

// stringMethods are Python's. gonja's own ask for optional arguments (replace,
// split, strip) or pad without bound (center, ljust, zfill); those are left out.
func stringMethods() *exec.MethodSet[string] {
	out := map[string]exec.Method[string]{}
	for _, name := range []string{
		"upper", "lower", "title", "capitalize", "swapcase", "isalnum", "isalpha", "isascii", "isdecimal",
		"isdigit", "islower", "isnumeric", "isprintable", "isspace", "istitle", "isupper", "format",
	} {
		if m, ok := builtins.Methods.Str.Get(name); ok {
			out[name] = m
		}
	}
	for name, f := range map[string]func(s string, a arguments) (any, error){
		"strip":  func(s string, a arguments) (any, error) { return trim(trim(s, a, true), a, false), nil },
		"lstrip": func(s string, a arguments) (any, error) { return trim(s, a, true), nil },
		"rstrip": func(s string, a arguments) (any, error) { return trim(s, a, false), nil },
		"split":  func(s string, a arguments) (any, error) { return split(s, a, false) },
		"rsplit": func(s string, a arguments) (any, error) { return split(s, a, true) },
		"splitlines": func(s string, _ arguments) (any, error) {
			s = strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\r", "\n")
			return asList(strings.Split(strings.TrimSuffix(s, "\n"), "\n")), nil
		},
		"replace": func(s string, a arguments) (any, error) {
			return replace(s, a.text(0, "old", ""), a.text(1, "new", ""), a.integer(2, "count", -1))
		},
		"startswith": func(s string, a arguments) (any, error) { return hasAny(s, a.texts(0), strings.HasPrefix), nil },
		"endswith":   func(s string, a arguments) (any, error) { return hasAny(s, a.texts(0), strings.HasSuffix), nil },
		"removeprefix": func(s string, a arguments) (any, error) {
			return strings.TrimPrefix(s, a.text(0, "prefix", "")), nil
		},
		"removesuffix": func(s string, a arguments) (any, error) {
			return strings.TrimSuffix(s, a.text(0, "suffix", "")), nil
		},
		"find": func(s string, a arguments) (any, error) {
			return runeIndex(s, strings.Index(s, a.text(0, "sub", ""))), nil
		},
		"rfind": func(s string, a arguments) (any, error) {
			return runeIndex(s, strings.LastIndex(s, a.text(0, "sub", ""))), nil
		},
		"index": func(s string, a arguments) (any, error) {
			if at := strings.Index(s, a.text(0, "sub", "")); at >= 0 {
				return runeIndex(s, at), nil
			}
			return nil, fmt.Errorf("index: substring not found")
		},
		"count": func(s string, a arguments) (any, error) { return strings.Count(s, a.text(0, "sub", "")), nil },
		"join":  func(s string, a arguments) (any, error) { return strings.Join(a.texts(0), s), nil },
		"partition": func(s string, a arguments) (any, error) {
			if before, after, ok := strings.Cut(s, a.text(0, "sep", " ")); ok {
				return list{before, a.text(0, "sep", " "), after}, nil
			}
			return list{s, "", ""}, nil
		},
		"rpartition": func(s string, a arguments) (any, error) {
			sep := a.text(0, "sep", " ")
			if at := strings.LastIndex(s, sep); at >= 0 {
				return list{s[:at], sep, s[at+len(sep):]}, nil
			}
			return list{"", "", s}, nil
		},
	} {
		out[name] = func(s string, _ *exec.Value, va *exec.VarArgs) (any, error) { return f(s, arguments{va}) }
	}
	return exec.NewMethodSet(out)
}

// methodCall calls a method: of the value in the first argument, by the name in the
// second one. Lists have none: Python's are for changing them, which transformers
// forbids.
func methodCall(ofString *exec.MethodSet[string], ofDict *exec.MethodSet[map[string]any]) func(*exec.Evaluator, *exec.VarArgs) *exec.Value {
	return func(e *exec.Evaluator, va *exec.VarArgs) *exec.Value {
		v, name := va.Args[0], va.Args[1].String()
		if err := charge(e, size(v)); err != nil {
			return exec.AsValue(err)
		}
		rest := &exec.VarArgs{Args: va.Args[2:], KwArgs: va.KwArgs}
		var out any
		err := fmt.Errorf("a %T has no method %.40q", unwrap(v), name)
		switch {
		case v.IsString():
			if m, ok := ofString.Get(name); ok {
				out, err = m(v.String(), v, rest)
			}
		case v.IsDict():
			if m, ok := ofDict.Get(name); ok {
				out, err = m(nil, v, rest)
			}
		}
		if err != nil {
			return exec.AsValue(err)
		}
		value := exec.AsValue(unwrap(out))
		if value.IsString() { // gonja's own string type equals no string
			return exec.AsValue(value.String())
		}
		return value
	}
}

func trim(s string, a arguments, left bool) string {
	match := unicode.IsSpace
	if set := a.text(0, "chars", ""); set != "" {
		match = func(r rune) bool { return strings.ContainsRune(set, r) }
	}
	if left {
		return strings.TrimLeftFunc(s, match)
	}
	return strings.TrimRightFunc(s, match)
}

// split is str.split, or str.rsplit when fromRight.
func split(s string, a arguments, fromRight bool) (any, error) {
	sep, limit := a.text(0, "sep", ""), a.integer(1, "maxsplit", -1)
	if sep == "" {
		if v := a.value(0, "sep"); v != nil && v.IsString() {
			return nil, fmt.Errorf("split: empty separator")
		}
		if fields := strings.Fields(s); limit < 0 || len(fields) <= limit {
			return asList(fields), nil
		}
		return nil, fmt.Errorf("split: maxsplit needs a separator")
	}
	parts := strings.Split(s, sep)
	if limit < 0 || len(parts) <= limit+1 {
		return asList(parts), nil
	}
	if fromRight {
		n := len(parts) - limit
		return asList(append([]string{strings.Join(parts[:n], sep)}, parts[n:]...)), nil
	}
	return asList(append(parts[:limit:limit], strings.Join(parts[limit:], sep))), nil
}

// replace is str.replace; the result may not exceed the output bound.
func replace(s, old, with string, count int) (any, error) {
	n := strings.Count(s, old)
	if count >= 0 && count < n {
		n = count
	}
	if len(s)+n*len(with) > maxOutput {
		return nil, fmt.Errorf("replace: the result exceeds %d bytes", maxOutput)
	}
	return strings.Replace(s, old, with, count), nil
}

func hasAny(s string, parts []string, has func(s, part string) bool) bool {
	for _, p := range parts {
		if has(s, p) {
			return true
		}
	}
	return false
}

// runeIndex turns a byte offset into Python's character offset.
func runeIndex(s string, at int) int {
	if at < 0 {
		return -1
	}
	return len([]rune(s[:at]))
}

func asList(parts []string) list {
	out := make(list, len(parts))
	for i, p := range parts {
		out[i] = p
	}
	return out
}

// dictMethods read an object in the order of its keys. Methods that change it
// are left out: gonja hands a copy to a method.
func dictMethods() *exec.MethodSet[map[string]any] {
	each := func(pick func(k, v *exec.Value) any) exec.Method[map[string]any] {
		return func(_ map[string]any, self *exec.Value, _ *exec.VarArgs) (any, error) {
			return pairsOf(self, pick), nil
		}
	}
	return exec.NewMethodSet(map[string]exec.Method[map[string]any]{
		"items":  each(func(k, v *exec.Value) any { return list{unwrap(k), unwrap(v)} }),
		"keys":   each(func(k, _ *exec.Value) any { return unwrap(k) }),
		"values": each(func(_, v *exec.Value) any { return unwrap(v) }),
		"get": func(_ map[string]any, self *exec.Value, va *exec.VarArgs) (any, error) {
			if len(va.Args) == 0 {
				return nil, fmt.Errorf("get needs a key")
			}
			if v, ok := self.GetItem(va.Args[0].String()); ok {
				return unwrap(v), nil
			}
			if v := (arguments{va}).value(1, "default"); v != nil {
				return unwrap(v), nil
			}
			return (*null)(nil), nil
		},
	})
}

func pairsOf(v *exec.Value, pick func(k, v *exec.Value) any) list {
	out := list{}
	v.Iterate(func(_, _ int, key, value *exec.Value) bool {
		out = append(out, pick(key, value))
		return true
	}, func() {})
	return out
}
