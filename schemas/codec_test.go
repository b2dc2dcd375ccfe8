package schemas_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/weir-dev/weir/schemas"
)

// TestDecodeRefusals runs testdata/refused.txt: bodies that must not get in, with
// the text that their sender reads, and what the JSON Schema says about them.
func TestDecodeRefusals(t *testing.T) {
	datadriven.RunTest(t, "testdata/refused.txt", func(t *testing.T, d *datadriven.TestData) string {
		var name string
		d.ScanArgs(t, "type", &name)
		var pad int
		d.MaybeScanArgs(t, "pad", &pad)
		body := []byte(d.Input + strings.Repeat(" ", pad))
		err := schemas.Decode(body, messageNamed(t, name).new())
		verdict := "refuses"
		if validate(t, name, body) == nil {
			verdict = "accepts"
		}
		return fmt.Sprintf("%v\nschema: %s\n", err, verdict)
	})
}

// TestRefusalsAreSentinels: callers tell refusals apart by errors.Is, not by text.
func TestRefusalsAreSentinels(t *testing.T) {
	tests := map[string]struct {
		body string
		want error
	}{
		"syntax":    {`{"v":1,`, schemas.ErrMessage},
		"trailing":  {`{"v":1,"job":"j","attempt":1} {}`, schemas.ErrMessage},
		"unknown":   {`{"v":1,"job":"j","attempt":1,"surprise":0}`, schemas.ErrMessage},
		"type":      {`{"v":1,"job":7}`, schemas.ErrMessage},
		"version":   {`{"v":2,"job":"j","attempt":1}`, schemas.ErrVersion},
		"unmarked":  {`{"job":"j","attempt":1}`, schemas.ErrVersion},
		"id":        {`{"v":1,"job":"a.b","attempt":1}`, schemas.ErrID},
		"too large": {`{"v":1}` + strings.Repeat(" ", schemas.MaxMessage), schemas.ErrTooLarge},
		"empty":     {``, schemas.ErrMessage},
		"array":     {`[]`, schemas.ErrMessage},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := schemas.Decode([]byte(tt.body), new(schemas.Cancel))
			if !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

func TestEncodeRefuses(t *testing.T) {
	large := schemas.Frame{Header: schemas.H(), Attempt: 1, Text: strings.Repeat("x", schemas.MaxMessage)}
	tests := map[string]struct {
		m    schemas.Message
		want error
	}{
		"no version":   {&schemas.Cancel{Job: "j"}, schemas.ErrVersion},
		"bad id":       {&schemas.Cancel{Header: schemas.H(), Job: "j k"}, schemas.ErrID},
		"out of range": {&schemas.Frame{Header: schemas.H()}, schemas.ErrMessage},
		"invalid raw":  {&schemas.RenderRequest{Header: schemas.H(), Messages: []json.RawMessage{[]byte("{")}}, schemas.ErrMessage},
		"too large":    {&large, schemas.ErrTooLarge},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if b, err := schemas.Encode(tt.m); !errors.Is(err, tt.want) || b != nil {
				t.Errorf("got %d bytes and %v, want %v", len(b), err, tt.want)
			}
		})
	}
}

// TestSizeBoundIsExact: a body of MaxMessage bytes is read, one more is not.
func TestSizeBoundIsExact(t *testing.T) {
	frame := `{"v":1,"a":1,"i":0,"t":[],"x":"`
	body := frame + strings.Repeat("x", schemas.MaxMessage-len(frame)-2) + `"}`
	var f schemas.Frame
	if err := schemas.Decode([]byte(body), &f); err != nil {
		t.Fatal(err)
	}
	b, err := schemas.Encode(&f)
	if err != nil || len(b) != schemas.MaxMessage {
		t.Fatalf("encoded %d bytes, %v; want %d", len(b), err, schemas.MaxMessage)
	}
	if err := schemas.Decode([]byte(body+" "), &f); !errors.Is(err, schemas.ErrTooLarge) {
		t.Errorf("one byte more: %v", err)
	}
}

func TestStopList(t *testing.T) {
	tests := map[string]struct {
		in   string
		want []string
		ok   bool
	}{
		"string": {`"END"`, []string{"END"}, true},
		"array":  {`["a","b"]`, []string{"a", "b"}, true},
		"null":   {`null`, nil, true},
		"empty":  {`[]`, nil, true},
		"blank":  {`""`, nil, false},
		"number": {`3`, nil, false},
		"nested": {`[["a"]]`, nil, false},
		"holes":  {`["a",null]`, nil, false},
		"many":   {`["` + strings.Repeat(`a","`, schemas.MaxStops) + `a"]`, nil, false},
		"long":   {`"` + strings.Repeat("a", schemas.MaxStopLen+1) + `"`, nil, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var turn schemas.Turn
			err := schemas.Decode([]byte(`{"stop":`+tt.in+`}`), &turn)
			if (err == nil) != tt.ok {
				t.Fatalf("%v, accepted should be %t", err, tt.ok)
			}
			if tt.ok && strings.Join(turn.Stop, "\x00") != strings.Join(tt.want, "\x00") {
				t.Errorf("got %q, want %q", turn.Stop, tt.want)
			}
		})
	}
}

// FuzzDecode: every body is either refused with one of the sentinels, or stands
// for a message that is written and read again without changing.
func FuzzDecode(f *testing.F) {
	for _, g := range goldens(f) {
		f.Add(g.of.name, []byte(g.body))
	}
	f.Add("turn", []byte(`{"stop":"x","max_tokens":null,"temperature":-0,"weir":{}}`))
	f.Add("turn", []byte(`{"messages":[null],"prompt":null,"TEMPERATURE":1e0}`))
	f.Add("snap", []byte(`{"v":1,"seqs":null,"at_ns":0,"state":"AA=="}`))
	f.Fuzz(func(t *testing.T, name string, body []byte) {
		for _, m := range messages() {
			if m.name == name {
				checkDecode(t, m, body)
				return
			}
		}
	})
}

func checkDecode(t *testing.T, m message, body []byte) {
	first := m.new()
	if err := schemas.Decode(body, first); err != nil {
		if !isSentinel(err) {
			t.Fatalf("%s: error without a sentinel: %v", m.name, err)
		}
		return
	}
	a, err := schemas.Encode(first)
	if errors.Is(err, schemas.ErrTooLarge) {
		return // escapes may make a body longer than it was
	}
	if err != nil {
		t.Fatalf("%s: was read but cannot be written: %v", m.name, err)
	}
	second := m.new()
	if err := schemas.Decode(a, second); err != nil {
		t.Fatalf("%s: cannot be read again: %v\n%s", m.name, err, a)
	}
	b, err := schemas.Encode(second)
	if err != nil || !bytes.Equal(a, b) {
		t.Fatalf("%s: changes when written again (%v):\n%s\n%s", m.name, err, a, b)
	}
}

func isSentinel(err error) bool {
	for _, s := range []error{schemas.ErrMessage, schemas.ErrVersion, schemas.ErrTooLarge, schemas.ErrID, schemas.ErrSubject} {
		if errors.Is(err, s) {
			return true
		}
	}
	return false
}

// TestMediaBounds: a medium lies within its prompt, also where its end is no int.
func TestMediaBounds(t *testing.T) {
	for _, c := range []struct {
		offset, length int
		ok             bool
	}{{0, 4, true}, {3, 1, true}, {0, 5, false}, {4, 1, false}, {-1, 2, false}, {0, 0, false}, {2, math.MaxInt, false}, {math.MaxInt, 1, false}} {
		r := &schemas.Ready{
			Header: schemas.H(), Tenant: "t", Session: "s", Turn: "u", Branch: "b", Job: schemas.JobID("t", "s", "u"), Pool: "p", MaxNew: 1,
			Keys:   schemas.KeySpec{Salt: "t", Model: "m", Template: "k", Vocab: "v"},
			Prompt: schemas.Prompt{N: 4, Tail: schemas.Tokens{1, 2, 3, 4}, Media: []schemas.MediaSpan{{Digest: "d", Offset: c.offset, Length: c.length}}},
		}
		err := r.Check()
		if (err == nil) != c.ok || err != nil && !strings.Contains(err.Error(), "prompt.media[0]") {
			t.Errorf("%d tokens from %d: %v", c.length, c.offset, err)
		}
	}
}
