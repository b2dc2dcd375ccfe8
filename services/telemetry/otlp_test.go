package telemetry

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
)

// TestOTLPOverHTTP: the default protocol and headers, and a flush at the end.
func TestOTLPOverHTTP(t *testing.T) {
	got := make(chan *collector.ExportTraceServiceRequest, 8)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		req := new(collector.ExportTraceServiceRequest)
		if err != nil || proto.Unmarshal(b, req) != nil || r.URL.Path != "/v1/traces" || r.Header.Get("X-Key") != "k1" {
			t.Errorf("%s with header %q: %v", r.URL.Path, r.Header.Get("X-Key"), err)
		}
		got <- req
	}))
	defer srv.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", srv.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "X-Key=k1")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=lab,service.name=ignored")
	tel, err := New(t.Context(), Config{Version: "1"})
	if err != nil {
		t.Fatal(err)
	}
	tr := tel.Tracer("router")
	tr.process(turnMsg(parentOf("01")), time.Now()).End()
	if err := tel.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	res := map[string]string{}
	for _, kv := range (<-got).ResourceSpans[0].Resource.Attributes {
		res[kv.Key] = kv.Value.GetStringValue()
	}
	if res["service.name"] != "weir-router" || res["deployment.environment.name"] != "lab" {
		t.Errorf("resource %v", res)
	}
}

// TestCollectorAway: neither start nor spans nor the end wait for a collector that
// is not there.
func TestCollectorAway(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, proto := range []string{"grpc", "http/protobuf"} {
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+addr)
		t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", proto)
		began := time.Now()
		tel, err := New(t.Context(), Config{Getenv: os.Getenv})
		if err != nil {
			t.Fatal(err)
		}
		tr := tel.Tracer("x")
		for range 5000 { // more than the queue holds
			tr.process(turnMsg(parentOf("01")), time.Now()).End()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		_ = tel.Shutdown(ctx) // the spans are lost, and that is said in the log
		cancel()
		if d := time.Since(began); d > 9*time.Second {
			t.Errorf("%s: took %s", proto, d)
		}
	}
}
