package telemetry

import (
	"net/http"
	"runtime"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weir-dev/weir/schemas"
)

// Boundaries in seconds. Those of the time to first token are the ones of the
// GenAI conventions; a whole turn of an agent may take minutes.
var (
	ttftBuckets     = []float64{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 30}
	durationBuckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640}
)

// Metrics are those of one process. Labels name services, executors, roles,
// codes: never sessions or turns, so that their number stays bounded.
type Metrics struct {
	reg *prometheus.Registry

	turns    *prometheus.CounterVec
	outcomes map[string]prometheus.Counter // of turns, by code; "" is success
	ttft     prometheus.Histogram
	duration prometheus.Histogram
	prompt   prometheus.Counter
	cached   prometheus.Counter
	output   prometheus.Counter

	runners *runners
	conns   *conns
	actors  *actors
}

// failureCodes are the failure codes that get a label of their own.
func failureCodes() []string {
	return []string{
		schemas.CodeInvalid, schemas.CodeTooLong, schemas.CodeModel, schemas.CodeSession, schemas.CodeNeedFull, schemas.CodeConflict,
		schemas.CodeBusy, schemas.CodeDeadline, schemas.CodeCancelled, schemas.CodePoison, schemas.CodeEngine, schemas.CodeInternal,
	}
}

// NewMetrics makes the metrics of a process, those of the Go runtime included.
func NewMetrics(version string) *Metrics {
	m := &Metrics{
		reg: prometheus.NewRegistry(), runners: newRunners(), conns: newConns(), actors: newActors(),
		turns: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_turns_total", Help: "Turns that ended in this cell, by status and failure code.",
		}, []string{"status", "code"}),
		ttft: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "weir_turn_time_to_first_token_seconds", Help: "From the admission of a turn to its first token, as the executor saw it.", Buckets: ttftBuckets,
		}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "weir_turn_duration_seconds", Help: "From the admission of a turn to its result, failures included.", Buckets: durationBuckets,
		}),
	}
	tokens := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_turn_tokens_total", Help: "Tokens of ended turns: prompt, those of it that were cached, completion.",
	}, []string{"kind"})
	m.prompt, m.cached, m.output = tokens.WithLabelValues("prompt"), tokens.WithLabelValues("cached"), tokens.WithLabelValues("completion")
	m.outcomes = map[string]prometheus.Counter{
		"": m.turns.WithLabelValues(string(schemas.StatusOK), ""), "other": m.turns.WithLabelValues(string(schemas.StatusFailed), "other"),
	}
	for _, c := range failureCodes() {
		m.outcomes[c] = m.turns.WithLabelValues(string(schemas.StatusFailed), c)
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "weir_build_info", Help: "1, with the build as labels.", ConstLabels: prometheus.Labels{"version": version, "go": runtime.Version()},
	})
	build.Set(1)
	m.reg.MustRegister(m.turns, m.ttft, m.duration, tokens, build, m.runners, m.conns, m.actors,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Registry takes more collectors of the same process.
func (m *Metrics) Registry() *prometheus.Registry { return m.reg }

// Handler serves the metrics in Prometheus's formats.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.reg, promhttp.HandlerOpts{Registry: m.reg, MaxRequestsInFlight: 4})
}

// Turn counts the end of a turn. Every turn has one result, and the active router
// of its cell sees it once.
func (m *Metrics) Turn(r *schemas.Result) {
	code := ""
	if r.Failure != nil {
		code = r.Failure.Code
	}
	c, ok := m.outcomes[code]
	if !ok || r.Status == schemas.StatusFailed && code == "" {
		c = m.outcomes["other"]
	}
	c.Inc()
	if r.Timing.TTFTNS > 0 {
		m.ttft.Observe(float64(r.Timing.TTFTNS) / 1e9)
	}
	if r.Timing.TotalNS > 0 {
		m.duration.Observe(float64(r.Timing.TotalNS) / 1e9)
	}
	m.prompt.Add(float64(max(0, r.Usage.Prompt)))
	m.cached.Add(float64(max(0, r.Usage.Cached)))
	m.output.Add(float64(max(0, r.Usage.Completion)))
}

// named is a set of sources by name: the newest of a name counts.
type named[T any] struct {
	mu sync.Mutex
	m  map[string]T
}

func (n *named[T]) set(name string, v T) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.m == nil {
		n.m = map[string]T{}
	}
	n.m[name] = v
}

func (n *named[T]) each(f func(name string, v T)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for k, v := range n.m {
		f(k, v)
	}
}

// desc describes a metric weir_<name>.
func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("weir_"+name, help, labels, nil)
}

func counter(ch chan<- prometheus.Metric, d *prometheus.Desc, v uint64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

func gauge(ch chan<- prometheus.Metric, d *prometheus.Desc, v float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}
