package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// DefaultRatio is the share of turns without a traceparent that are sampled.
const DefaultRatio = 0.01

// scope names this instrumentation in spans.
const scope = "github.com/weir-dev/weir/services/telemetry"

// Config of a process's traces. The zero value exports what the standard
// variables (OTEL_EXPORTER_OTLP_ENDPOINT and so on) ask for, else nothing.
type Config struct {
	Instance  string // service.instance.id
	Version   string
	TraceFile string // finished spans are appended as JSON lines; empty for none
	Logger    *slog.Logger
	// Always samples what has no parent, whatever the environment says: a person
	// who runs one command with an exporter wants to see its trace.
	Always bool
	// Getenv is os.Getenv by default. The exporters and the sampler read the
	// process's own environment whatever it is.
	Getenv func(string) string
	// Processor, when set, gets the spans too; tests read them there.
	Processor sdktrace.SpanProcessor
}

// Telemetry exports the spans of one process.
type Telemetry struct {
	cfg        Config
	processors []sdktrace.SpanProcessor
	providers  []*sdktrace.TracerProvider
	file       *traceFile
}

// New prepares the exporters. A collector that is not there is no error: spans are
// dropped then, and the log says so once a minute.
func New(ctx context.Context, cfg Config) (*Telemetry, error) {
	if cfg.Getenv == nil {
		cfg.Getenv = os.Getenv
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	t := &Telemetry{cfg: cfg}
	if strings.EqualFold(cfg.Getenv("OTEL_SDK_DISABLED"), "true") {
		return t, nil
	}
	if cfg.Processor != nil {
		t.processors = append(t.processors, cfg.Processor)
	}
	if cfg.TraceFile != "" {
		f, err := openTraceFile(cfg.TraceFile)
		if err != nil {
			return nil, err
		}
		t.file = f
		// A person waits for the file, and writing is cheap.
		t.processors = append(t.processors, sdktrace.NewBatchSpanProcessor(f, sdktrace.WithBatchTimeout(200*time.Millisecond)))
	}
	exp, err := otlp(ctx, cfg.Getenv)
	if err != nil {
		return nil, errors.Join(err, t.Shutdown(ctx))
	}
	if exp != nil {
		var opts []sdktrace.BatchSpanProcessorOption
		if cfg.Getenv("OTEL_BSP_SCHEDULE_DELAY") == "" {
			opts = append(opts, sdktrace.WithBatchTimeout(time.Second))
		}
		t.processors = append(t.processors, sdktrace.NewBatchSpanProcessor(exp, opts...))
		otel.SetErrorHandler(&quietly{log: cfg.Logger})
	}
	return t, nil
}

// otlp makes the exporter that the standard variables ask for; nil when none.
func otlp(ctx context.Context, getenv func(string) string) (sdktrace.SpanExporter, error) {
	first := func(names ...string) string {
		for _, n := range names {
			if v := strings.TrimSpace(getenv(n)); v != "" {
				return v
			}
		}
		return ""
	}
	kind := first("OTEL_TRACES_EXPORTER")
	switch kind {
	case "", "otlp":
	case "none":
		return nil, nil
	default:
		return nil, fmt.Errorf("telemetry: OTEL_TRACES_EXPORTER is %q, allowed are otlp and none; for a file use --trace-file", kind)
	}
	if kind == "" && first("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT") == "" {
		return nil, nil
	}
	var exp sdktrace.SpanExporter
	var err error
	switch proto := first("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"); proto {
	case "grpc":
		exp, err = otlptracegrpc.New(ctx)
	case "", "http/protobuf":
		exp, err = otlptracehttp.New(ctx)
	default:
		return nil, fmt.Errorf("telemetry: OTEL_EXPORTER_OTLP_PROTOCOL is %q, allowed are grpc and http/protobuf", proto)
	}
	if err != nil {
		return nil, fmt.Errorf("telemetry: OTLP exporter: %w", err)
	}
	return exp, nil
}

// Enabled reports whether spans go anywhere.
func (t *Telemetry) Enabled() bool { return t != nil && len(t.processors) > 0 }

// Tracer makes spans of the service weir-<target>. Services of one process share
// exporters and queue. Call it while the process starts: it is not safe beside
// other calls of Tracer or Shutdown.
func (t *Telemetry) Tracer(target string) *Tracer {
	if !t.Enabled() {
		return nil
	}
	opts := []sdktrace.TracerProviderOption{sdktrace.WithResource(t.resource(target))}
	switch {
	case t.cfg.Always:
		opts = append(opts, sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.AlwaysSample())))
	case t.cfg.Getenv("OTEL_TRACES_SAMPLER") == "": // else the SDK reads the standard variables
		opts = append(opts, sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(DefaultRatio))))
	}
	for _, p := range t.processors {
		opts = append(opts, sdktrace.WithSpanProcessor(p))
	}
	p := sdktrace.NewTracerProvider(opts...)
	t.providers = append(t.providers, p)
	return &Tracer{t: p.Tracer(scope, trace.WithInstrumentationVersion(t.cfg.Version)), began: time.Now()}
}

func (t *Telemetry) resource(target string) *resource.Resource {
	own := []attribute.KeyValue{
		attribute.String("service.name", "weir-"+target), attribute.String("service.version", t.cfg.Version),
		attribute.Int("process.pid", os.Getpid()),
	}
	if t.cfg.Instance != "" {
		own = append(own, attribute.String("service.instance.id", t.cfg.Instance))
	}
	// A part that cannot be merged leaves the others valid.
	r, _ := resource.Merge(resource.Environment(), resource.NewSchemaless(own...))
	return r
}

// Shutdown sends what is queued, until ctx ends.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	if t == nil {
		return nil
	}
	var errs []error
	for _, p := range t.processors {
		errs = append(errs, p.Shutdown(ctx)) // also closes its exporter
	}
	for _, p := range t.providers {
		errs = append(errs, p.Shutdown(ctx))
	}
	t.processors = nil
	return errors.Join(errs...)
}

// quietly logs export errors, one a minute: a collector that is away must not
// fill the log.
type quietly struct {
	log  *slog.Logger
	next atomic.Int64 // Unix time in seconds
}

// Handle takes an error of the SDK.
func (q *quietly) Handle(err error) {
	now := time.Now().Unix()
	if next := q.next.Load(); now >= next && q.next.CompareAndSwap(next, now+60) {
		q.log.Warn("spans not exported", "error", err)
	}
}
