package grammar

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Bounds of a schema.
const (
	maxSchema      = 256 << 10 // bytes
	maxSchemaDepth = 64        // it is walked recursively
)

// node is a JSON value whose objects keep the order of their keys: properties
// are generated in the order in which the schema lists them.
type node struct {
	kind   byte // '{' '[' '"' '0' 't' (bool) 'n'
	keys   []string
	items  []*node // of an object (parallel to keys) or array
	text   string  // of a string; the literal of a number
	truth  bool
	source string // compact JSON of the value
}

// get is the value of a key, nil when absent.
func (n *node) get(key string) *node {
	for i, k := range n.keys {
		if k == key {
			return n.items[i]
		}
	}
	return nil
}

// number is n as an integer of a bound.
func (n *node) number() (int, bool) {
	if n.kind != '0' {
		return 0, false
	}
	v, err := strconv.Atoi(n.text)
	return v, err == nil && v >= 0
}

func parseJSON(raw []byte) (*node, error) {
	if len(raw) > maxSchema {
		return nil, fmt.Errorf("%d bytes, at most %d", len(raw), maxSchema)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	n, err := parseNode(d, 0)
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("data after the JSON value")
	}
	return n, nil
}

func parseNode(d *json.Decoder, depth int) (*node, error) {
	if depth > maxSchemaDepth {
		return nil, fmt.Errorf("nested deeper than %d", maxSchemaDepth)
	}
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case json.Delim:
		n := &node{kind: byte(t)}
		if err := n.fill(d, depth); err != nil {
			return nil, err
		}
		return n, nil
	case string:
		return &node{kind: '"', text: t, source: quoteJSON(t)}, nil
	case json.Number:
		return &node{kind: '0', text: t.String(), source: t.String()}, nil
	case bool:
		return &node{kind: 't', truth: t, source: strconv.FormatBool(t)}, nil
	default:
		return &node{kind: 'n', source: "null"}, nil
	}
}

// fill reads the members of an object or array.
func (n *node) fill(d *json.Decoder, depth int) error {
	var parts []string
	for d.More() {
		prefix := ""
		if n.kind == '{' {
			token, err := d.Token()
			if err != nil {
				return err
			}
			key, _ := token.(string)
			if n.get(key) != nil {
				return fmt.Errorf("key %q occurs twice", key)
			}
			n.keys = append(n.keys, key)
			prefix = quoteJSON(key) + ":"
		}
		item, err := parseNode(d, depth+1)
		if err != nil {
			return err
		}
		n.items = append(n.items, item)
		parts = append(parts, prefix+item.source)
	}
	if _, err := d.Token(); err != nil {
		return err
	}
	closing := map[byte]string{'{': "}", '[': "]"}[n.kind]
	n.source = string(n.kind) + strings.Join(parts, ",") + closing
	return nil
}

// quoteJSON is the JSON string of s without HTML escapes.
func quoteJSON(s string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	// Encoding a string into memory cannot fail.
	_ = e.Encode(s)
	return strings.TrimSuffix(b.String(), "\n")
}
