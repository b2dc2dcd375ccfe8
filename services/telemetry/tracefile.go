package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// traceFile appends finished spans as JSON lines. Several processes may write to
// one file: it is opened for appending and every batch is one write.
type traceFile struct {
	mu sync.Mutex
	f  *os.File
}

// Span is one line of a trace file. Times are Unix nanoseconds; Parent is empty
// for a root; attributes are strings, numbers, booleans or lists of strings.
type Span struct {
	TraceID    string         `json:"trace_id"`
	SpanID     string         `json:"span_id"`
	Parent     string         `json:"parent,omitempty"`
	Name       string         `json:"name"`
	Kind       string         `json:"kind"` // server, client, producer, consumer, internal
	StartNS    int64          `json:"start_ns"`
	EndNS      int64          `json:"end_ns"`
	Status     string         `json:"status,omitempty"` // error, or nothing
	Message    string         `json:"message,omitempty"`
	Attributes map[string]any `json:"attributes,omitempty"`
	Events     []SpanEvent    `json:"events,omitempty"`
	Links      []SpanLink     `json:"links,omitempty"`
	Service    string         `json:"service.name"`
	Instance   string         `json:"service.instance.id,omitempty"`
	Version    string         `json:"service.version,omitempty"`
	PID        int64          `json:"pid"`
}

// SpanEvent is a moment in a span.
type SpanEvent struct {
	Name       string         `json:"name"`
	AtNS       int64          `json:"at_ns"`
	Attributes map[string]any `json:"attributes,omitempty"`
}

// SpanLink names another span.
type SpanLink struct {
	TraceID string `json:"trace_id"`
	SpanID  string `json:"span_id"`
}

func openTraceFile(path string) (*traceFile, error) {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		return nil, fmt.Errorf("telemetry: --trace-file: %w", err)
	}
	return &traceFile{f: f}, nil
}

// ExportSpans writes a batch.
func (t *traceFile) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	for _, s := range spans {
		if err := enc.Encode(lineOf(s)); err != nil {
			return fmt.Errorf("telemetry: span %q: %w", s.Name(), err)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, err := t.f.Write(b.Bytes()); err != nil {
		return fmt.Errorf("telemetry: --trace-file: %w", err)
	}
	return nil
}

// Shutdown closes the file.
func (t *traceFile) Shutdown(context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.f.Close()
}

func lineOf(s sdktrace.ReadOnlySpan) *Span {
	sc := s.SpanContext()
	l := &Span{
		TraceID: sc.TraceID().String(), SpanID: sc.SpanID().String(), Name: s.Name(), Kind: strings.ToLower(s.SpanKind().String()),
		StartNS: s.StartTime().UnixNano(), EndNS: s.EndTime().UnixNano(), Attributes: mapOf(s.Attributes()),
	}
	if p := s.Parent(); p.HasSpanID() {
		l.Parent = p.SpanID().String()
	}
	if st := s.Status(); st.Code == codes.Error {
		l.Status, l.Message = "error", st.Description
	}
	for _, e := range s.Events() {
		l.Events = append(l.Events, SpanEvent{Name: e.Name, AtNS: e.Time.UnixNano(), Attributes: mapOf(e.Attributes)})
	}
	for _, k := range s.Links() {
		l.Links = append(l.Links, SpanLink{TraceID: k.SpanContext.TraceID().String(), SpanID: k.SpanContext.SpanID().String()})
	}
	for _, a := range s.Resource().Attributes() {
		switch a.Key {
		case "service.name":
			l.Service = a.Value.AsString()
		case "service.instance.id":
			l.Instance = a.Value.AsString()
		case "service.version":
			l.Version = a.Value.AsString()
		case "process.pid":
			l.PID = a.Value.AsInt64()
		}
	}
	return l
}

func mapOf(kvs []attribute.KeyValue) map[string]any {
	if len(kvs) == 0 {
		return nil
	}
	m := make(map[string]any, len(kvs))
	for _, kv := range kvs {
		m[string(kv.Key)] = kv.Value.AsInterface()
	}
	return m
}
