// Package reword writes JSON anew as careless middle boxes and clients do: with
// other white space and the keys of objects in another order, also in the JSON that
// stands as a string in the arguments of tool calls. What it means stays the same.
package reword

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// JSON returns a document that says the same in other bytes.
func JSON(body []byte) ([]byte, error) {
	v, err := decode(body)
	if err != nil {
		return nil, fmt.Errorf("reword: %w", err)
	}
	arguments(v)
	return json.MarshalIndent(v, "", " ")
}

// decode keeps numbers as they are written.
func decode(b []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	err = d.Decode(&v)
	return v, err
}

func arguments(v any) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			arguments(e)
		}
	case map[string]any:
		for key, e := range v {
			s, ok := e.(string)
			if !ok || key != "arguments" {
				arguments(e)
				continue
			}
			inner, err := decode([]byte(s))
			if err != nil {
				continue // no JSON, so it stays
			}
			if b, err := json.MarshalIndent(inner, "", "\t"); err == nil {
				v[key] = string(b)
			}
		}
	}
}
