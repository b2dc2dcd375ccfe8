package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/nikolalohinski/gonja/v2/exec"
)

// ErrMessage: a message, tool or option is not what Chat Completions allows.
var ErrMessage = errors.New("chat: bad message")

// maxDepth bounds the nesting of JSON values: they are walked recursively.
const maxDepth = 64

// null is JSON's null: none, but defined, unlike a missing value. gonja takes a
// nil pointer for none.
type null struct{}

// list is an array. gonja's own slices lose the index that equals minus the
// length, so that messages[-1] of one message is undefined.
type list []any

// GetItem implements exec.ItemGetter with Python's negative indices.
func (l list) GetItem(key any) (*exec.Value, bool) {
	i, ok := key.(int)
	if !ok {
		return exec.AsValue(nil), false
	}
	if i < 0 {
		i += len(l)
	}
	if i < 0 || i >= len(l) {
		return exec.AsValue(nil), false
	}
	return exec.ToValue(l[i]), true
}

// item is a subscript: a character of a string, an element of a list by Python's
// index rules, or a member of an object; undefined when there is none.
func item(e *exec.Evaluator, va *exec.VarArgs) *exec.Value {
	v, key := normalize(va.Args[0]), unwrap(va.Args[1])
	if v.IsString() {
		if err := charge(e, size(v)); err != nil {
			return exec.AsValue(err)
		}
		at, ok := key.(int)
		runes := []rune(v.String())
		if at < 0 {
			at += len(runes)
		}
		if !ok || at < 0 || at >= len(runes) {
			return exec.AsValue(nil)
		}
		return exec.AsValue(string(runes[at]))
	}
	name, isName := key.(string)
	if _, isInt := key.(int); !isInt && !isName {
		return exec.AsValue(fmt.Errorf("a subscript must be a string or an integer, not %.40v", key))
	}
	out, found := v.GetItem(key)
	if !found && isName {
		out, found = v.GetAttribute(name)
	}
	if !found && !out.IsError() {
		return exec.AsValue(nil)
	}
	return out
}

// normalize gives lists made by gonja the index rules of list.
func normalize(v *exec.Value) *exec.Value {
	if !v.IsList() {
		return v
	}
	if _, ok := v.Interface().(list); ok {
		return v
	}
	out := list{}
	v.Iterate(func(_, _ int, item, _ *exec.Value) bool {
		out = append(out, unwrap(item))
		return true
	}, func() {})
	return exec.AsValue(out)
}

// unwrap is the plain Go value inside gonja's value.
func unwrap(v any) any {
	for {
		inner, ok := v.(*exec.Value)
		if !ok {
			return v
		}
		if inner == nil {
			return nil
		}
		v = inner.Interface()
	}
}

// decode turns JSON into template values. Objects keep the order of their keys,
// which templates print; of a repeated key the last value counts.
func decode(raw json.RawMessage) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	v, err := decodeValue(d, 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("data after the JSON value")
	}
	return v, nil
}

func decodeValue(d *json.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("nested deeper than %d", maxDepth)
	}
	token, err := d.Token()
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	switch t := token.(type) {
	case json.Delim:
		if t == '[' {
			return decodeArray(d, depth)
		}
		return decodeObject(d, depth)
	case json.Number:
		return number(t), nil
	case nil:
		return (*null)(nil), nil
	default: // string, bool
		return t, nil
	}
}

func decodeArray(d *json.Decoder, depth int) (any, error) {
	out := list{}
	for d.More() {
		v, err := decodeValue(d, depth+1)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	_, err := d.Token()
	return out, err
}

func decodeObject(d *json.Decoder, depth int) (any, error) {
	out := exec.NewDict()
	at := map[string]int{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, err
		}
		key, _ := token.(string)
		v, err := decodeValue(d, depth+1)
		if err != nil {
			return nil, err
		}
		if i, ok := at[key]; ok {
			out.Pairs[i].Value = exec.AsValue(v)
			continue
		}
		at[key] = len(out.Pairs)
		out.Pairs = append(out.Pairs, &exec.Pair{Key: exec.AsValue(key), Value: exec.AsValue(v)})
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	if len(out.Pairs) == 0 {
		return map[string]any{}, nil // an empty exec.Dict would be true
	}
	return out, nil
}

// number is an int where it fits, else a float64, as Python's json module makes them.
func number(n json.Number) any {
	if i, err := strconv.Atoi(n.String()); err == nil {
		return i
	}
	f, err := n.Float64()
	if err != nil { // beyond float64: keep the digits
		return n.String()
	}
	return f
}

// object is v as an object, or nil.
func object(v any) *exec.Dict {
	switch t := unwrap(v).(type) {
	case *exec.Dict:
		return t
	case map[string]any:
		if len(t) == 0 {
			return exec.NewDict()
		}
	}
	return nil
}

// field is the value of a key, nil when absent.
func field(d *exec.Dict, key string) any {
	if d == nil {
		return nil
	}
	for _, p := range d.Pairs {
		if p.Key.String() == key {
			return unwrap(p.Value)
		}
	}
	return nil
}

// setField replaces the value of a key or appends it.
func setField(d *exec.Dict, key string, v any) {
	for _, p := range d.Pairs {
		if p.Key.String() == key {
			p.Value = exec.AsValue(v)
			return
		}
	}
	d.Pairs = append(d.Pairs, &exec.Pair{Key: exec.AsValue(key), Value: exec.AsValue(v)})
}
