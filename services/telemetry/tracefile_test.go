package telemetry

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/weir-dev/weir/schemas"
)

// TestTraceFile: two processes append to one file, and every line is whole.
func TestTraceFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spans.jsonl")
	const each = 300
	var tels []*Telemetry
	for range 2 {
		tel, err := New(t.Context(), Config{Instance: "x", Version: "1.2.3", TraceFile: path, Getenv: func(string) string { return "" }})
		if err != nil {
			t.Fatal(err)
		}
		tels = append(tels, tel)
	}
	done := make(chan struct{})
	for _, tel := range tels {
		tr := tel.Tracer("part")
		go func() {
			for range each {
				m := turnMsg(parentOf("01"))
				s := tr.process(m, time.Unix(1, 2))
				s.AddEvent("e")
				failed(s, schemas.CodeBusy)
				s.End()
				tr.child(m.Trace, "c", time.Unix(1, 0), time.Unix(2, 0), "", attribute.StringSlice("list", []string{"a", "b"}))
			}
			done <- struct{}{}
		}()
	}
	for range tels {
		<-done
	}
	for _, tel := range tels {
		if err := tel.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // only read
	n := 0
	for sc := bufio.NewScanner(f); sc.Scan(); n++ {
		var l Span
		if err := json.Unmarshal(sc.Bytes(), &l); err != nil {
			t.Fatalf("%v: %s", err, sc.Text())
		}
		ok := l.TraceID == tid && l.Parent == sid && l.Service == "weir-part" && l.Instance == "x" && l.Version == "1.2.3" && l.PID == int64(os.Getpid())
		switch l.Kind {
		case "consumer":
			ok = ok && l.StartNS == 1e9+2 && l.Status == "error" && l.Message == schemas.CodeBusy && len(l.Events) == 1 && l.Links[0].SpanID == sid
		case "internal":
			ok = ok && l.EndNS == 2e9 && len(l.Attributes["list"].([]any)) == 2
		default:
			ok = false
		}
		if !ok {
			t.Fatalf("line %s", sc.Text())
		}
	}
	if n != 2*2*each {
		t.Errorf("%d lines, want %d", n, 2*2*each)
	}
}
