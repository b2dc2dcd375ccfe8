package telemetry

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/weir-dev/weir/schemas"
)

// Planner shows what a planner decides, and traces its role changes. In and Out are
// called from the actor's goroutine. A nil Planner does nothing.
type Planner struct {
	t *Tracer // nil: no spans

	mu    sync.Mutex
	now   func() time.Time
	pools map[string]schemas.Plan // last decision, by pool
	mode  schemas.Mode
	seen  map[string]heard // executors, by id
	decided, changed,
	advised *prometheus.CounterVec
	refused prometheus.Counter
	flips   *prometheus.HistogramVec
	failed  prometheus.Counter

	decision      schemas.Trace // of the last decision with changes
	decisionID    string
	split, demand *prometheus.Desc
	flying, gain  *prometheus.Desc
	modes, age    *prometheus.Desc
	sick          *prometheus.Desc
}

// heard is what reports said of an executor.
type heard struct {
	at    time.Time
	flips uint64
	boot  bool // the first report of a life was seen: flips before it are not counted
	unfit string
}

// flipBuckets are seconds; the goal for a role change is below half a second.
var flipBuckets = []float64{.001, .005, .01, .025, .05, .1, .25, .5, .75, 1, 2.5, 5, 10, 20}

// Planner registers the metrics of the planner in this process. t may be nil.
func (m *Metrics) Planner(t *Tracer) (*Planner, error) {
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_" + name, Help: help}, labels)
	}
	p := &Planner{
		t: t, now: time.Now, pools: map[string]schemas.Plan{}, seen: map[string]heard{},
		decided: vec("planner_decisions_total", "Published decisions, by pool and rule.", "pool", "rule"),
		changed: vec("planner_changes_total", "Assignments that the planner published, by the roles they lead from and to.", "from", "to"),
		advised: vec("planner_advised_changes_total", "Assignments that it only advised.", "from", "to"),
		refused: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_planner_refused_total", Help: "Assignments that the stream refused, because somebody else had written first."}),
		flips: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "weir_flip_stage_seconds", Help: "Role changes that came into force, by stage, as executors report them.", Buckets: flipBuckets,
		}, []string{"stage"}),
		failed: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_flips_rolled_back_total", Help: "Role changes after which the old role came back."}),
		split:  desc("planner_size", "Size of the executors by what they do, at the last decision.", "pool", "role"),
		demand: desc("planner_demand_seconds_per_second", "Work that arrives, in worker seconds per second, at the last decision.", "pool", "phase"),
		flying: desc("planner_flips_in_flight", "Role changes under way, at the last decision.", "pool"),
		gain:   desc("planner_predicted_gain_seconds", "Worker seconds that the best split was predicted to bring over the present one, at the last decision.", "pool"),
		modes:  desc("planner_mode", "1 for the planner's mode.", "mode"),
		age:    desc("planner_report_age_seconds", "Age of the oldest report of an executor that was heard in the last minute."),
		sick:   desc("planner_quarantined", "Executors that are out of work because their devices are unfit."),
	}
	for _, c := range []prometheus.Collector{p.decided, p.changed, p.advised, p.refused, p.flips, p.failed, p} {
		if err := m.reg.Register(c); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// In takes note of what the planner hears.
func (p *Planner) In(m *schemas.Msg) {
	switch {
	case p == nil:
	case m.Kind == schemas.KindReport:
		p.report(m.Report)
	case m.Kind == schemas.KindPublished && m.Err == schemas.ErrTextConflict:
		p.refused.Inc()
	case m.Kind == schemas.KindMode:
		p.mu.Lock()
		defer p.mu.Unlock()
		p.mode = m.Mode.Mode
	}
}

func (p *Planner) report(r *schemas.Report) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h, known := p.seen[r.Executor]
	if !known && len(p.seen) >= fleetMax {
		p.forget()
		if len(p.seen) >= fleetMax {
			return
		}
	}
	if f := r.Flip; f != nil && h.boot && r.Flips > h.flips {
		if f.Back != "" {
			p.failed.Inc()
		} else {
			p.flips.WithLabelValues("return").Observe(float64(f.ReturnNS) / 1e9)
			p.flips.WithLabelValues("hand_over").Observe(float64(f.HandNS) / 1e9)
			p.flips.WithLabelValues("verify").Observe(float64(f.VerifyNS) / 1e9)
			p.flips.WithLabelValues("all").Observe(float64(f.ReturnNS+f.HandNS+f.VerifyNS) / 1e9)
		}
	}
	p.seen[r.Executor] = heard{at: p.now(), flips: r.Flips, boot: true, unfit: r.Unfit}
}

// reportGone: an executor that has not reported for so long has gone, and is not shown
// as one whose reports are late.
const reportGone = time.Minute

func (p *Planner) forget() {
	for id, h := range p.seen {
		if p.now().Sub(h.at) > reportGone {
			delete(p.seen, id)
		}
	}
}

// Out takes note of what the planner decides, and traces its assignments below their
// decision.
func (p *Planner) Out(_, m *schemas.Msg) {
	switch {
	case p == nil:
	case m.Kind == schemas.KindPlan:
		p.plan(m.Plan)
	case m.Kind == schemas.KindAssignment && p.t != nil:
		a := m.Assignment
		if a.Plan == p.decisionID {
			m.Trace = p.decision
		}
		s, err := schemas.ParseSubject(m.Subject)
		if err != nil {
			return
		}
		p.t.send(m, p.now(), keyExecutor.String(s.Get("executor")), keyRole.String(string(a.Role)), keyPlan.String(a.Plan))
	}
}

// Keys of role changes.
const (
	keyRole = attribute.Key("weir.role")
	keyFrom = attribute.Key("weir.role.from")
	keyPlan = attribute.Key("weir.plan")
	keyRule = attribute.Key("weir.plan.rule")
	keyPool = attribute.Key("weir.pool")
)

func (p *Planner) plan(d *schemas.Plan) {
	p.decided.WithLabelValues(d.Pool, d.Rule).Inc()
	vec := p.changed
	if d.Mode != schemas.ModeAct {
		vec = p.advised
	}
	for _, c := range d.Changes {
		vec.WithLabelValues(string(c.From), string(c.To)).Inc()
	}
	if len(d.Changes) > 0 && p.t != nil {
		now := p.now()
		span := p.t.start(schemas.Trace{}, "decide", trace.SpanKindInternal, now, trace.WithAttributes(
			keyPlan.String(d.ID), keyRule.String(d.Rule), keyPool.String(d.Pool), keyOutcome.String(string(d.Mode))))
		p.decision, p.decisionID = traceOf(span.SpanContext()), d.ID
		span.End(trace.WithTimestamp(now))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = d.Mode
	if _, known := p.pools[d.Pool]; known || len(p.pools) < schemas.MaxPools {
		p.pools[d.Pool] = *d
	}
}

// Describe sends nothing: what there is depends on what was decided.
func (p *Planner) Describe(chan<- *prometheus.Desc) {}

// Collect shows the last decisions and what reports say.
func (p *Planner) Collect(ch chan<- prometheus.Metric) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for pool, d := range p.pools {
		in := &d.Inputs
		gauge(ch, p.split, in.Prefill, pool, string(schemas.RolePrefill))
		gauge(ch, p.split, in.Decode, pool, string(schemas.RoleDecode))
		gauge(ch, p.split, in.Mixed, pool, string(schemas.RoleMixed))
		gauge(ch, p.demand, in.DemandP, pool, string(schemas.StagePrefill))
		gauge(ch, p.demand, in.DemandD, pool, string(schemas.StageDecode))
		gauge(ch, p.flying, float64(in.InFlight), pool)
		gauge(ch, p.gain, predicted(&d), pool)
	}
	if p.mode != "" {
		for _, m := range [...]schemas.Mode{schemas.ModeAct, schemas.ModeAdvise, schemas.ModePaused} {
			v := 0.0
			if m == p.mode {
				v = 1
			}
			gauge(ch, p.modes, v, string(m))
		}
	}
	now, age, sick := p.now(), time.Duration(0), 0
	for _, h := range p.seen {
		d := now.Sub(h.at)
		if d > reportGone {
			continue
		}
		age = max(age, d)
		if h.unfit != "" {
			sick++
		}
	}
	if len(p.seen) > 0 {
		gauge(ch, p.age, age.Seconds())
	}
	gauge(ch, p.sick, float64(sick))
}

// predicted is what the best split brings over the one in force.
func predicted(d *schemas.Plan) float64 {
	for _, c := range d.Candidates {
		if c.Flips == 0 {
			return max(0, d.Candidates[0].Value-c.Value)
		}
	}
	return 0
}
