package connect

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weir-dev/weir/e2e/node"
	"github.com/weir-dev/weir/e2e/stack"
)

// TestConnect: whatever the way to connect, an agent's context stays cached.
func TestConnect(t *testing.T) {
	if stack.Libraries() == "" {
		t.Skip("the llama.cpp libraries are not installed; `make engine` installs them")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Minute)
	defer cancel()
	size := Size{Sessions: 2, Steps: 3}
	out, err := Run(ctx, size, func(o *Outcome) {
		line, err := json.Marshal(o)
		t.Logf("%s %v", line, err)
		// A call finds all but the end of a block of what the session had computed.
		if most := o.Calls * 64; o.Recomputed > most {
			t.Errorf("level %s: %d tokens were computed again, at most %d may be", o.Level, o.Recomputed, most)
		}
	})
	if errors.Is(err, node.ErrAbsent) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(out) != len(Levels()) || out[0].Lines != 0 {
		t.Fatalf("outcomes: %+v", out)
	}
	for i, o := range out[1:] {
		if o.Lines <= out[i].Lines {
			t.Errorf("level %s changes %d lines, the one before %d", o.Level, o.Lines, out[i].Lines)
		}
	}
	if last := out[len(out)-1]; last.Bytes >= out[0].Bytes {
		t.Errorf("delta turns sent %d bytes, full ones %d", last.Bytes, out[0].Bytes)
	}
}

// TestProxy: the proxy does what the level is named for.
func TestProxy(t *testing.T) {
	var header http.Header
	var body string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		header, body = r.Header, string(b)
		_, _ = io.WriteString(w, "data: {}\n\n")
	}))
	defer server.Close()
	p, err := startProxy(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	sent := `{"b":1.50,"a":[{"arguments":"{\"y\":1,\"x\":\"\\ud55c\"}"}]}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.URL+"/v1/chat/completions", strings.NewReader(sent))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Weir-Session", "s")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if got, err := io.ReadAll(resp.Body); string(got) != "data: {}\n\n" || err != nil {
		t.Errorf("answer %q, %v", got, err)
	}
	if header.Get("X-Weir-Session") != "" {
		t.Error("the header came through")
	}
	want := "{\n \"a\": [\n  {\n   \"arguments\": \"{\\n\\t\\\"x\\\": \\\"한\\\",\\n\\t\\\"y\\\": 1\\n}\"\n  }\n ],\n \"b\": 1.50\n}"
	if body != want {
		t.Errorf("body %s\nwant %s", body, want)
	}
}

func TestChanged(t *testing.T) {
	a := []string{"one", "two", "three"}
	for want, b := range [][]string{{"one", "three"}, {"one", "2", "three"}, {"one", "two", "x", "three", "y"}} {
		if got := changed(a, b); got != want {
			t.Errorf("%q: %d lines, want %d", b, got, want)
		}
	}
}
