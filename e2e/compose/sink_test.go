package compose

import (
	"bytes"
	"context"
	"net/http"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// export sends one span as an exporter does.
func export(t *testing.T, s *Sink, service string, id, parent byte) {
	t.Helper()
	body, err := proto.Marshal(&collector.ExportTraceServiceRequest{ResourceSpans: []*trace.ResourceSpans{{
		Resource: &resource.Resource{Attributes: []*common.KeyValue{{
			Key: "service.name", Value: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: service}},
		}}},
		ScopeSpans: []*trace.ScopeSpans{{Spans: []*trace.Span{{TraceId: []byte{1}, SpanId: []byte{id}, ParentSpanId: []byte{parent}, Name: service}}}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	post(t, s, body, http.StatusOK)
}

func post(t *testing.T, s *Sink, body []byte, want int) {
	t.Helper()
	r, err := http.Post(s.URL+"/v1/traces", "application/x-protobuf", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Body.Close()
	if r.StatusCode != want {
		t.Errorf("status %d, want %d", r.StatusCode, want)
	}
}

// TestSink: a trace counts as whole when all services are in it and all parents.
func TestSink(t *testing.T) {
	s, err := NewSink("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	whole := func(want bool) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if !want {
			ctx, cancel = context.WithTimeout(t.Context(), 10*time.Millisecond)
		}
		defer cancel()
		if spans, err := s.Wait(ctx, "01", "09", []string{"a", "b"}); (err == nil) != want {
			t.Errorf("%v, %v", spans, err)
		}
	}
	export(t, s, "a", 1, 9)
	whole(false) // b is missing
	export(t, s, "b", 3, 2)
	whole(false) // the parent of b is missing
	export(t, s, "a", 2, 1)
	whole(true)
	post(t, s, []byte("not protobuf"), http.StatusBadRequest)
	whole(false) // a request that is not OTLP is a failure of the test
}
