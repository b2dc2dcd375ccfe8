package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
)

// Model is a model that is served, as /v1/models lists it.
type Model struct {
	Name    string
	Created int64 // Unix time in seconds
}

// Options of the gateway. Conn is needed.
type Options struct {
	Conn   *nats.Conn
	Tenant string // default
	Cell   string // whose executors decide readiness; c0
	// Models are listed besides those that executors' heartbeats name. The first
	// one answers requests that name no model.
	Models []Model
	// Fingerprint is the response's system_fingerprint: what produced the answer.
	Fingerprint string
	// Context is the model's context in tokens, which /tokenize tells. 0: unknown.
	Context int
	// EnableThinking: the model's template knows the option enable_thinking, so
	// requests of other APIs may switch reasoning on and off.
	EnableThinking bool
	// KeepBillingHeader leaves a system block of Claude Code in the prompt that names
	// its build and differs from request to request. It is removed otherwise.
	KeepBillingHeader bool

	// MaxInFlight bounds requests that wait for an answer, 2,048: each holds a
	// connection, two goroutines and about 50 KiB. More get 429.
	MaxInFlight int
	// MaxBodies bounds the bytes of request bodies in memory, 256 MiB; more get 429.
	MaxBodies int64
	// Deadline of a turn that has none, 10 min.
	Deadline time.Duration
	// KeepAlive is the pause after which a comment is sent on a silent stream, 10 s.
	KeepAlive time.Duration
	// WriteTimeout ends a connection whose client does not read, 30 s.
	WriteTimeout time.Duration
	// BodyTimeout bounds the time in which a body must arrive, 60 s.
	BodyTimeout time.Duration

	// Registerer takes the gateway's metrics, Metrics serves /metrics. Both may be nil.
	Registerer prometheus.Registerer
	Metrics    http.Handler
	// Span, when set, begins the gateway's span of a request, a child of in when
	// that is set. It returns the context that goes on with the turn, and a
	// function that ends the span.
	Span func(endpoint string, in schemas.Trace) (schemas.Trace, func(Answered))
	// Erase removes a session and tells what was removed, for encoding/json. When it
	// is nil, DELETE /v1/sessions/{id} is refused.
	Erase  func(ctx context.Context, tenant, session string) (any, error)
	Logger *slog.Logger
	Turns  turns.Options
}

// Answered says how a request ended, as far as it came.
type Answered struct {
	Status  int    // HTTP
	Code    string // of an error
	Model   string
	Session string
	Stream  bool
	First   time.Time // when the first token was there
	Result  *schemas.Result
}

func (o *Options) defaults() {
	for _, s := range [...]struct {
		v *string
		d string
	}{{&o.Tenant, schemas.DefaultTenant}, {&o.Cell, schemas.DefaultCell}, {&o.Fingerprint, "weir"}} {
		if *s.v == "" {
			*s.v = s.d
		}
	}
	for _, d := range [...]struct {
		v *time.Duration
		d time.Duration
	}{
		{&o.Deadline, 10 * time.Minute}, {&o.KeepAlive, 10 * time.Second}, {&o.WriteTimeout, 30 * time.Second}, {&o.BodyTimeout, time.Minute},
	} {
		if *d.v <= 0 {
			*d.v = d.d
		}
	}
	if o.MaxInFlight <= 0 {
		o.MaxInFlight = 2048
	}
	if o.MaxBodies <= 0 {
		o.MaxBodies = 256 << 20
	}
	if o.Span == nil {
		o.Span = func(_ string, in schemas.Trace) (schemas.Trace, func(Answered)) { return in, func(Answered) {} }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Turns.Deadline <= 0 {
		o.Turns.Deadline = o.Deadline
	}
}

// Gateway answers HTTP requests by turns.
type Gateway struct {
	o       Options
	turns   *turns.Client
	metrics *metrics
	fleet   *fleet
	slots   chan struct{}
	bodies  atomic.Int64 // bytes of request bodies in memory
	srv     *http.Server
	// stopping ends requests that outlive a graceful shutdown.
	stopping context.Context
	stop     context.CancelFunc
}

// New makes a gateway. It subscribes to heartbeats; Close ends that.
func New(o Options) (*Gateway, error) {
	o.defaults()
	if err := schemas.CheckID("tenant", o.Tenant); err != nil {
		return nil, err
	}
	c, err := turns.New(o.Conn, o.Turns)
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	g := &Gateway{o: o, turns: c, slots: make(chan struct{}, o.MaxInFlight)}
	if g.metrics, err = newMetrics(o.Registerer); err != nil {
		c.Close()
		return nil, fmt.Errorf("gateway: metrics: %w", err)
	}
	if g.fleet, err = newFleet(o.Conn, o.Cell, o.Models); err != nil {
		c.Close()
		return nil, fmt.Errorf("gateway: heartbeats: %w", err)
	}
	g.stopping, g.stop = context.WithCancel(context.Background())
	g.srv = &http.Server{
		Handler: g.Handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 128 << 10, // Codex describes its workspaces in a header
		ErrorLog: slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
	}
	return g, nil
}

// Turns is the gateway's client of the turn path.
func (g *Gateway) Turns() *turns.Client { return g.turns }

// Handler has all routes. Each response begins with the write deadline of short
// answers: one that an earlier response set would break a connection that is used
// again.
func (g *Gateway) Handler() http.Handler {
	routes := g.routes()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(g.o.BodyTimeout + g.o.WriteTimeout))
		if e := encoded(r); e != nil {
			refuse(w, r, e)
			return
		}
		routes.ServeHTTP(w, r)
	})
}

func (g *Gateway) routes() http.Handler {
	mux := http.NewServeMux()
	for path, d := range map[string]dialect{
		"/v1/chat/completions": openai{},
		"/v1/completions":      openai{text: true},
		"/v1/messages":         anthropic{},
		"/v1/responses":        responses{},
	} {
		mux.HandleFunc(path, g.only(http.MethodPost, func(w http.ResponseWriter, r *http.Request) { g.complete(w, r, d) }))
	}
	mux.HandleFunc("/v1/sessions/{session}/events", g.only(http.MethodPost, g.postEvents))
	mux.HandleFunc("/v1/sessions/{session}", g.oneSession)
	mux.HandleFunc("/v1/messages/count_tokens", g.only(http.MethodPost, g.countMessages()))
	mux.HandleFunc("POST /v1/responses/input_tokens", g.countResponses())
	mux.HandleFunc("GET /v1/responses/{id}", g.oneResponse)
	mux.HandleFunc("/tokenize", g.only(http.MethodPost, g.tokenize()))
	mux.HandleFunc("/v1/models", g.only(http.MethodGet, g.listModels))
	mux.HandleFunc("/v1/models/{model...}", g.only(http.MethodGet, g.oneModel))
	mux.HandleFunc("/healthz", g.only(http.MethodGet, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, map[string]bool{"ok": true}) }))
	mux.HandleFunc("/readyz", g.only(http.MethodGet, g.ready))
	if g.o.Metrics != nil {
		mux.Handle("/metrics", g.o.Metrics)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, r, &apiError{Status: http.StatusNotFound, Type: typeInvalid, Code: "unknown_url", Message: fmt.Sprintf("Unknown request URL: %s %s", r.Method, r.URL.Path)})
	})
	return mux
}

// only refuses other methods.
func (g *Gateway) only(method string, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method == method || method == http.MethodGet && r.Method == http.MethodHead {
			h(w, r)
			return
		}
		w.Header().Set("Allow", method)
		refuse(w, r, &apiError{Status: http.StatusMethodNotAllowed, Type: typeInvalid, Code: "method_not_allowed", Message: fmt.Sprintf("%s is not allowed here, use %s", r.Method, method)})
	}
}

// Serve answers on a listener until Shutdown; it returns nil then.
func (g *Gateway) Serve(l net.Listener) error {
	if err := g.srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("gateway: %w", err)
	}
	return nil
}

// Shutdown takes no more connections and waits for the requests in work until
// ctx ends; those that are left then end with an error. It also closes the
// client of the turn path, but not the connection.
func (g *Gateway) Shutdown(ctx context.Context) error {
	err := g.srv.Shutdown(ctx)
	g.stop()
	if err != nil {
		// A moment for the handlers to say why they end.
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		err = g.srv.Shutdown(last)
	}
	if err != nil {
		err = g.srv.Close()
	}
	g.fleet.close()
	g.turns.Close()
	return err
}
