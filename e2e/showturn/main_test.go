package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
)

func TestShow(t *testing.T) {
	bad := errors.New("no engine")
	ps := []part{
		{"good", []string{"a.b"}, func(_ context.Context, out *printer) error { out.figure("a.b", 1.5, "s"); return nil }},
		{"bad", nil, func(context.Context, *printer) error { return bad }},
		{"silent", []string{"c"}, func(context.Context, *printer) error { return nil }},
		{"late", nil, func(_ context.Context, out *printer) error { out.line(map[string]int{"case": 1}); return nil }},
	}
	var out, progress bytes.Buffer
	err := show(t.Context(), ps, &out, &progress)
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
	ps := []part{
		{"first", nil, func(context.Context, *printer) error { ran++; cancel(); return nil }},
		{"second", nil, func(context.Context, *printer) error { ran++; return nil }},
	}
	if err := show(ctx, ps, &bytes.Buffer{}, &bytes.Buffer{}); !errors.Is(err, context.Canceled) || ran != 1 {
		t.Errorf("%d parts ran, error %v", ran, err)
	}
}

func TestPick(t *testing.T) {
	all := parts()
	for only, want := range map[string]int{"": len(all), "cache": 1, "cache,exact": 2, "nothing": -1} {
		got, err := pick(all, only)
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

// TestFiguresAreNamedOnce: two parts must not print the same figure.
func TestFiguresAreNamedOnce(t *testing.T) {
	from := map[string]string{}
	for _, p := range parts() {
		for _, f := range p.figures {
			if other := from[f]; other != "" {
				t.Errorf("%s is in %s and %s", f, other, p.name)
			}
			from[f] = p.name
		}
	}
}
