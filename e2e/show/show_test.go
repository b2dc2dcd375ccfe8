package show

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
)

func TestShow(t *testing.T) {
	bad := errors.New("no engine")
	ps := []Part{
		{"good", []string{"a.b"}, func(_ context.Context, out *Printer) error { out.Figure("a.b", 1.5, "s"); return nil }},
		{"bad", nil, func(context.Context, *Printer) error { return bad }},
		{"silent", []string{"c"}, func(context.Context, *Printer) error { return nil }},
		{"late", nil, func(_ context.Context, out *Printer) error { out.Line(map[string]int{"case": 1}); return nil }},
	}
	var out, progress bytes.Buffer
	err := run(t.Context(), "test", ps, &out, &progress)
	if !errors.Is(err, bad) || !strings.Contains(err.Error(), "silent: figure c is missing") || strings.Contains(err.Error(), "good") {
		t.Errorf("error is %v", err)
	}
	if want := "{\"name\":\"a.b\",\"value\":1.5,\"unit\":\"s\"}\n{\"case\":1}\n"; out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}

func TestShowStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ran := 0
	ps := []Part{
		{"first", nil, func(context.Context, *Printer) error { ran++; cancel(); return nil }},
		{"second", nil, func(context.Context, *Printer) error { ran++; return nil }},
	}
	if err := run(ctx, "test", ps, &bytes.Buffer{}, &bytes.Buffer{}); !errors.Is(err, context.Canceled) || ran != 1 {
		t.Errorf("%d parts ran, error %v", ran, err)
	}
}

func TestPick(t *testing.T) {
	all := []Part{{Name: "cache"}, {Name: "exact"}, {Name: "kv"}}
	for only, want := range map[string]int{"": len(all), "cache": 1, "cache,exact": 2, "nothing": -1} {
		got, err := Pick(all, only)
		if want < 0 {
			if err == nil {
				t.Errorf("%q was accepted", only)
			}
			continue
		}
		if err != nil || len(got) != want {
			t.Errorf("%q: %d parts, %v", only, len(got), err)
		}
	}
}

func TestTwice(t *testing.T) {
	ps := []Part{{Figures: []string{"a", "b"}}, {Figures: []string{"c", "a"}}}
	if got := Twice(ps); len(got) != 1 || got[0] != "a" {
		t.Errorf("got %v", got)
	}
}
