package compose

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Span is what the sink keeps of a span.
type Span struct{ Service, Name, ID, Parent string }

// Sink takes spans by OTLP over HTTP.
type Sink struct {
	URL string

	srv *http.Server

	mu      sync.Mutex
	spans   map[string][]Span // by trace id in hex
	bad     error             // the first request that was not OTLP
	changed chan struct{}     // closed and replaced when spans arrive
}

// sinkBody bounds one request, far above what an exporter sends.
const sinkBody = 16 << 20

// NewSink listens on a free port of the address.
func NewSink(host string) (*Sink, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return nil, err
	}
	s := &Sink{URL: "http://" + l.Addr().String(), spans: map[string][]Span{}, changed: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", s.take)
	s.srv = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = s.srv.Serve(l) }() // ends at Close
	return s, nil
}

// Close ends the sink.
func (s *Sink) Close() error { return s.srv.Close() }

func (s *Sink) take(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, sinkBody))
	var q collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &q)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.bad = errors.Join(s.bad, err)
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	for _, rs := range q.GetResourceSpans() {
		service := serviceName(rs)
		for _, ss := range rs.GetScopeSpans() {
			for _, sp := range ss.GetSpans() {
				id := hex.EncodeToString(sp.GetTraceId())
				s.spans[id] = append(s.spans[id], Span{service, sp.GetName(), hex.EncodeToString(sp.GetSpanId()), hex.EncodeToString(sp.GetParentSpanId())})
			}
		}
	}
	close(s.changed)
	s.changed = make(chan struct{})
	w.Header().Set("Content-Type", "application/x-protobuf") // an empty body is an empty answer
}

func serviceName(rs *trace.ResourceSpans) string {
	for _, a := range rs.GetResource().GetAttributes() {
		if a.GetKey() == "service.name" {
			return a.GetValue().GetStringValue()
		}
	}
	return ""
}

// Wait waits until a trace has spans of all these services, every one of them
// joined to the trace: its parent is another span of it, or the caller's.
func (s *Sink) Wait(ctx context.Context, traceID, caller string, services []string) ([]Span, error) {
	for {
		s.mu.Lock()
		spans, changed, bad := slices.Clone(s.spans[traceID]), s.changed, s.bad
		s.mu.Unlock()
		if bad != nil {
			return nil, bad
		}
		missing := incomplete(spans, caller, services)
		if missing == "" {
			return spans, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return spans, fmt.Errorf("trace %s: %s: %w", traceID, missing, ctx.Err())
		}
	}
}

// incomplete says what is missing from a trace, or "".
func incomplete(spans []Span, caller string, services []string) string {
	ids, seen := map[string]bool{caller: true}, map[string]bool{}
	for _, s := range spans {
		ids[s.ID], seen[s.Service] = true, true
	}
	var out []string
	for _, s := range services {
		if !seen[s] {
			out = append(out, "no span of "+s)
		}
	}
	for _, s := range spans {
		if !ids[s.Parent] {
			out = append(out, fmt.Sprintf("the parent of %q of %s did not arrive", s.Name, s.Service))
		}
	}
	return strings.Join(out, "; ")
}
