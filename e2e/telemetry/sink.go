package telemetry

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"sync"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// Span is a received span.
type Span struct {
	Trace, ID, Parent string // hex
	Name, Service     string
	Kind              tracepb.Span_SpanKind
	PID               int64
	Attrs             map[string]string
	Events            []string
	Links             []string // span ids
}

// Sink is an OTLP receiver over gRPC that keeps what it gets.
type Sink struct {
	collector.UnimplementedTraceServiceServer
	server *grpc.Server
	Addr   string

	mu      sync.Mutex
	spans   []Span
	changed chan struct{} // closed and replaced when spans arrive
}

// NewSink listens on a free port.
func NewSink() (*Sink, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Sink{server: grpc.NewServer(), Addr: l.Addr().String(), changed: make(chan struct{})}
	collector.RegisterTraceServiceServer(s.server, s)
	go func() { _ = s.server.Serve(l) }() // ends with Stop
	return s, nil
}

// Stop ends the receiver.
func (s *Sink) Stop() { s.server.Stop() }

// Env are the variables that make a process export to the sink.
func (s *Sink) Env() []string {
	return []string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + s.Addr, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_BSP_SCHEDULE_DELAY=100",
	}
}

// Export takes spans.
func (s *Sink) Export(_ context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, rs := range r.ResourceSpans {
		res := attrs(rs.Resource.GetAttributes())
		for _, ss := range rs.ScopeSpans {
			for _, p := range ss.Spans {
				sp := Span{
					Trace: hex.EncodeToString(p.TraceId), ID: hex.EncodeToString(p.SpanId), Parent: hex.EncodeToString(p.ParentSpanId),
					Name: p.Name, Service: res["service.name"], Kind: p.Kind, Attrs: attrs(p.Attributes),
				}
				_, _ = fmt.Sscan(res["process.pid"], &sp.PID) // 0 when absent, which tests see
				for _, e := range p.Events {
					sp.Events = append(sp.Events, e.Name)
				}
				for _, l := range p.Links {
					sp.Links = append(sp.Links, hex.EncodeToString(l.SpanId))
				}
				s.spans = append(s.spans, sp)
			}
		}
	}
	close(s.changed)
	s.changed = make(chan struct{})
	return &collector.ExportTraceServiceResponse{}, nil
}

// Wait returns all spans once they satisfy ok.
func (s *Sink) Wait(ctx context.Context, what string, ok func([]Span) bool) ([]Span, error) {
	for {
		s.mu.Lock()
		spans, changed := append([]Span(nil), s.spans...), s.changed
		s.mu.Unlock()
		if ok(spans) {
			return spans, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return spans, fmt.Errorf("telemetry: %d spans came, but not %s: %w", len(spans), what, context.Cause(ctx))
		}
	}
}

func attrs(kvs []*common.KeyValue) map[string]string {
	m := map[string]string{}
	for _, kv := range kvs {
		switch v := kv.Value.GetValue().(type) {
		case *common.AnyValue_StringValue:
			m[kv.Key] = v.StringValue
		case *common.AnyValue_IntValue:
			m[kv.Key] = fmt.Sprint(v.IntValue)
		default:
			m[kv.Key] = kv.Value.String()
		}
	}
	return m
}
