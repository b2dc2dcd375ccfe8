package telemetry

import (
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-dev/weir/schemas"
)

// Bounds of what is remembered of executors.
const (
	fleetMax   = 1024
	fleetStale = 15 * time.Second // seven reports; then the executor is not shown
)

// fleet shows the executors of a cell, so that one scrape sees them all: what
// they report and what their heartbeats say.
type fleet struct {
	subs []*nats.Subscription

	mu    sync.Mutex
	seen  map[string]*member
	nodes map[string]*nodeCount
	now   func() time.Time

	tokens, busy, ratio, jobs, queued, slots, credit, flip, blocks, role, rates, notices, unfit *prometheus.Desc
}

// member is one executor.
type member struct {
	at        time.Time
	report    schemas.Report
	ratio     float64
	heartbeat schemas.Heartbeat
	prefills  int
	decodes   int
}

type nodeCount struct{ stored, evicted, cleared uint64 }

// Fleet shows the executors and tier nodes of a cell, from what they publish.
// close ends the subscriptions.
func (m *Metrics) Fleet(nc *nats.Conn, cell string) (closeFn func(), err error) {
	f := newFleet(time.Now)
	for subject, take := range map[string]func(*schemas.Msg){
		schemas.HBSubject(cell, "*"):     func(m *schemas.Msg) { f.beat(m.Heartbeat) },
		schemas.ReportSubject(cell, "*"): func(m *schemas.Msg) { f.reported(m.Report) },
		schemas.KVSubject(cell, "*"):     func(m *schemas.Msg) { f.noticed(m.KV) },
	} {
		sub, err := nc.Subscribe(subject, func(m *nats.Msg) {
			// What cannot be read is counted by those who must act on it.
			if msg, err := schemas.DecodeMsg(m.Subject, m.Data); err == nil {
				take(&msg)
			}
		})
		if err != nil {
			f.close()
			return nil, err
		}
		f.subs = append(f.subs, sub)
	}
	if err := m.reg.Register(f); err != nil {
		f.close()
		return nil, err
	}
	return func() { m.reg.Unregister(f); f.close() }, nil
}

func newFleet(now func() time.Time) *fleet {
	return &fleet{
		seen: map[string]*member{}, nodes: map[string]*nodeCount{}, now: now,
		tokens:  desc("executor_tokens_total", "Tokens by what the executor did: prefill, decode, cached (found in the tier).", "executor", "kind"),
		busy:    desc("executor_busy_seconds_total", "Time spent in the engine.", "executor"),
		ratio:   desc("executor_busy_ratio", "Share of the time between the last two reports spent in the engine.", "executor"),
		jobs:    desc("executor_jobs", "Jobs in the executor's hands.", "executor", "stage"),
		queued:  desc("executor_queued", "Jobs that wait for a sequence of the engine.", "executor"),
		slots:   desc("executor_slots", "Sequences that the engine can hold, and those that are free.", "executor", "state"),
		credit:  desc("executor_decode_credit", "Decode jobs that the executor can still take.", "executor"),
		flip:    desc("executor_flip_seconds", "Duration of the last role change.", "executor"),
		unfit:   desc("executor_unfit", "1 while the executor's devices are unfit for work.", "executor"),
		blocks:  desc("executor_kv_blocks", "KV blocks that the executor knows of, by medium.", "executor", "medium"),
		role:    desc("executor_role", "1 for the role in force.", "executor", "role"),
		rates:   desc("executor_tokens_per_second", "Measured speed: of prefill, and of decode per sequence.", "executor", "stage"),
		notices: desc("kv_extents_total", "Extents in the notices of a tier node.", "node", "change"),
	}
}

func (f *fleet) close() {
	var errs []error
	for _, s := range f.subs {
		errs = append(errs, s.Unsubscribe())
	}
	_ = errors.Join(errs...) // the connection closes next
}

// member finds or makes an entry within the bound; nil when there is no room.
func (f *fleet) member(id string) *member {
	m := f.seen[id]
	if m != nil {
		return m
	}
	if len(f.seen) >= fleetMax {
		for k, old := range f.seen {
			if f.now().Sub(old.at) > fleetStale {
				delete(f.seen, k)
			}
		}
		if len(f.seen) >= fleetMax {
			return nil
		}
	}
	m = &member{}
	f.seen[id] = m
	return m
}

func (f *fleet) beat(h *schemas.Heartbeat) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if h.Dead {
		delete(f.seen, h.Executor)
		return
	}
	m := f.member(h.Executor)
	if m == nil {
		return
	}
	m.at, m.heartbeat, m.prefills, m.decodes = f.now(), *h, 0, 0
	for _, j := range h.Held {
		if j.Stage == schemas.StagePrefill {
			m.prefills++
		} else {
			m.decodes++
		}
	}
	m.heartbeat.Held = nil
}

func (f *fleet) reported(r *schemas.Report) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.member(r.Executor)
	if m == nil {
		return
	}
	if d := r.AtNS - m.report.AtNS; m.report.AtNS > 0 && d > 0 && r.BusyNS >= m.report.BusyNS {
		m.ratio = min(1, float64(r.BusyNS-m.report.BusyNS)/float64(d))
	}
	m.at, m.report = f.now(), *r
}

func (f *fleet) noticed(n *schemas.KVNotice) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.nodes[n.Node]
	if c == nil {
		if len(f.nodes) >= fleetMax {
			return
		}
		c = &nodeCount{}
		f.nodes[n.Node] = c
	}
	c.stored += uint64(len(n.Stored))
	c.evicted += uint64(len(n.Evicted))
	if n.Cleared {
		c.cleared++
	}
}

// Describe sends nothing: what there is depends on the executors that live.
func (f *fleet) Describe(chan<- *prometheus.Desc) {}

// Collect shows the executors that were heard lately.
func (f *fleet) Collect(ch chan<- prometheus.Metric) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	for id, m := range f.seen {
		if now.Sub(m.at) > fleetStale {
			continue
		}
		if m.report.AtNS > 0 {
			f.collectReport(ch, id, m)
		}
		if h := &m.heartbeat; h.Executor != "" {
			gauge(ch, f.jobs, float64(m.prefills), id, "prefill")
			gauge(ch, f.jobs, float64(m.decodes), id, "decode")
			gauge(ch, f.slots, float64(h.Slots), id, "total")
			credit := 0
			if h.Role.Takes(schemas.StageDecode) {
				credit = max(0, h.Slots-m.decodes)
			}
			gauge(ch, f.credit, float64(credit), id)
			gauge(ch, f.role, 1, id, string(h.Role))
			gauge(ch, f.rates, h.PrefillTPS, id, "prefill")
			gauge(ch, f.rates, h.DecodeTPS, id, "decode")
		}
	}
	for node, c := range f.nodes {
		counter(ch, f.notices, c.stored, node, "stored")
		counter(ch, f.notices, c.evicted, node, "evicted")
		counter(ch, f.notices, c.cleared, node, "cleared")
	}
}

func (f *fleet) collectReport(ch chan<- prometheus.Metric, id string, m *member) {
	r := &m.report
	counter(ch, f.tokens, r.PrefillTokens, id, "prefill")
	counter(ch, f.tokens, r.DecodeTokens, id, "decode")
	counter(ch, f.tokens, r.CachedTokens, id, "cached")
	ch <- prometheus.MustNewConstMetric(f.busy, prometheus.CounterValue, float64(r.BusyNS)/1e9, id)
	gauge(ch, f.ratio, m.ratio, id)
	gauge(ch, f.queued, float64(r.Queued), id)
	gauge(ch, f.slots, float64(r.SlotsFree), id, "free")
	gauge(ch, f.flip, float64(r.FlipNS)/1e9, id)
	sick := 0.0
	if r.Unfit != "" {
		sick = 1
	}
	gauge(ch, f.unfit, sick, id)
	gauge(ch, f.blocks, float64(r.DeviceBlocks), id, string(schemas.MediumDevice))
}
