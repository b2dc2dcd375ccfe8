package gateway

import (
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of the gateway. Names of the GenAI conventions are used where they exist.
type metrics struct {
	requests *prometheus.CounterVec   // by endpoint, status
	errors   *prometheus.CounterVec   // by code
	ttft     *prometheus.HistogramVec // by endpoint
	duration *prometheus.HistogramVec // by endpoint
	inFlight prometheus.Gauge
	tokens   *prometheus.CounterVec // by kind: input, cached, output
}

// latency has the boundaries in seconds that the GenAI conventions advise.
var latency = []float64{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 30, 60, 120}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_gateway_requests_total", Help: "HTTP requests for turns by endpoint and status; 499 is a client that went away."}, []string{"endpoint", "status"}),
		errors:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_gateway_errors_total", Help: "Requests that ended with an error, by its code."}, []string{"code"}),
		ttft:     prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "gen_ai_server_time_to_first_token_seconds", Help: "From the request to the first token.", Buckets: latency}, []string{"endpoint"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "gen_ai_server_request_duration_seconds", Help: "From the request to the end of the answer.", Buckets: latency}, []string{"endpoint"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_gateway_in_flight", Help: "Requests that wait for an answer."}),
		tokens:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_gateway_tokens_total", Help: "Tokens of answered requests by kind."}, []string{"kind"}),
	}
	if r == nil {
		return m, nil
	}
	var errs []error
	for _, c := range [...]prometheus.Collector{m.requests, m.errors, m.ttft, m.duration, m.inFlight, m.tokens} {
		errs = append(errs, r.Register(c))
	}
	return m, errors.Join(errs...)
}

// done counts a request.
func (m *metrics) done(endpoint string, status int, code string, began, first time.Time) {
	m.requests.WithLabelValues(endpoint, strconv.Itoa(status)).Inc()
	if code != "" {
		m.errors.WithLabelValues(code).Inc()
	}
	m.duration.WithLabelValues(endpoint).Observe(time.Since(began).Seconds())
	if !first.IsZero() {
		m.ttft.WithLabelValues(endpoint).Observe(first.Sub(began).Seconds())
	}
}
