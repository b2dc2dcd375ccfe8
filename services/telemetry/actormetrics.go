package telemetry

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-dev/weir/kvtier/lineage"
	"github.com/weir-dev/weir/planner/route"
	"github.com/weir-dev/weir/schemas"
)

// sampleEvery bounds how often an actor's counters are copied.
const sampleEvery = 100 * time.Millisecond

// Actor copies the counters of an actor; it must be called from the goroutine
// that owns it. Heartbeats, which every service hears, keep the copy fresh.
func (m *Metrics) Actor(_ string, a schemas.Actor) {
	now := time.Now()
	switch a := a.(type) {
	case *route.Router:
		if m.actors.router.due(now) {
			s := routerSample{counts: a.Counts()}
			s.waiting, s.placed = a.Load()
			m.actors.router.set(s)
		}
	case *lineage.Lineage:
		if m.actors.lineage.due(now) {
			s := lineageSample{counts: a.Counts()}
			s.sessions, s.tokens = a.Load()
			m.actors.lineage.set(s)
		}
	}
}

type routerSample struct {
	counts          route.Counts
	waiting, placed int
}

type lineageSample struct {
	counts           lineage.Counts
	sessions, tokens int
}

// sampled counters of one actor.
type sample[T any] struct {
	next atomic.Int64 // Unix nanoseconds

	mu  sync.Mutex
	v   T
	has bool
}

func (s *sample[T]) due(now time.Time) bool {
	n := now.UnixNano()
	if n < s.next.Load() {
		return false
	}
	s.next.Store(n + int64(sampleEvery))
	return true
}

func (s *sample[T]) set(v T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.v, s.has = v, true
}

func (s *sample[T]) get() (T, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.v, s.has
}

// actors collects the counters of router and lineage.
type actors struct {
	router  sample[routerSample]
	lineage sample[lineageSample]

	turns, events, admission, tokens, sessions, remembered, rewrites, said *prometheus.Desc
}

func newActors() *actors {
	return &actors{
		turns:      desc("router_turns", "Turns without a result, by state.", "state"),
		events:     desc("router_events_total", "What happened to turns and executors in the router.", "event"),
		admission:  desc("lineage_turns_total", "Published turns by what lineage did with them.", "how"),
		tokens:     desc("lineage_prompt_tokens_total", "Prompt tokens spliced from earlier turns, or made by the tokenizer.", "how"),
		sessions:   desc("lineage_sessions", "Sessions that lineage remembers."),
		remembered: desc("lineage_tokens", "Tokens of branches that lineage remembers."),
		rewrites:   desc("lineage_rewrites_total", "Answers that a template gave back otherwise than they were generated, by what it changed.", "cause"),
		said:       desc("lineage_events_total", "What agents said of their branches, and what became of it.", "how"),
	}
}

// Describe sends nothing, see runners.
func (a *actors) Describe(chan<- *prometheus.Desc) {}

// Collect shows the newest copies.
func (a *actors) Collect(ch chan<- prometheus.Metric) {
	if s, ok := a.router.get(); ok {
		gauge(ch, a.turns, float64(s.waiting), "waiting")
		gauge(ch, a.turns, float64(s.placed), "placed")
		for _, e := range [...]struct {
			name string
			n    uint64
		}{
			{"placed", s.counts.Placed},
			{"replaced", s.counts.Replaced},
			{"returned", s.counts.Returned},
			{"poisoned", s.counts.Poisoned},
			{"failed", s.counts.Failed},
			{"finished", s.counts.Finished},
			{"executor_death", s.counts.Deaths},
			{"executor_silent", s.counts.Silent},
			{"job_lost", s.counts.Lost},
			{"kv_gap", s.counts.Gaps},
			{"kv_sync", s.counts.Syncs},
			{"kv_sync_failed", s.counts.SyncsFailed},
			{"kv_brought", s.counts.Brought},
			{"kv_broken", s.counts.Broken},
		} {
			counter(ch, a.events, e.n, e.name)
		}
	}
	if s, ok := a.lineage.get(); ok {
		for _, e := range [...]struct {
			name string
			n    uint64
		}{
			{"admitted", s.counts.Admitted},
			{"refused", s.counts.Refused},
			{"duplicate", s.counts.Duplicates},
			{"conflict", s.counts.Conflicts},
			{"forgotten", s.counts.Forgotten},
		} {
			counter(ch, a.admission, e.n, e.name)
		}
		a.lineageEvents(ch, &s.counts)
		counter(ch, a.tokens, s.counts.Spliced, "spliced")
		counter(ch, a.tokens, s.counts.Tokenized, "tokenized")
		gauge(ch, a.sessions, float64(s.sessions))
		gauge(ch, a.remembered, float64(s.tokens))
	}
}

// lineageEvents shows what became of events, and of answers that came back.
func (a *actors) lineageEvents(ch chan<- prometheus.Metric, c *lineage.Counts) {
	for _, e := range [...]struct {
		name string
		n    uint64
	}{
		{"reasoning", c.Rewrites.Reasoning},
		{"text", c.Rewrites.Text},
		{"tool_calls", c.Rewrites.Calls},
		{"white_space", c.Rewrites.Space},
	} {
		counter(ch, a.rewrites, e.n, e.name)
	}
	d := &c.Dropped
	for _, e := range [...]struct {
		name string
		n    uint64
	}{
		{"taken", c.Events},
		{"repeated", c.Repeated},
		{"decayed", c.Decayed},
		{"revived", c.Revived},
		{"unknown_session", d.Session},
		{"unknown_branch", d.Branch},
		{"unknown_parent", d.Parent},
		{"cycle", d.Cycle},
		{"exists", d.Exists},
		{"ended", d.Ended},
		{"late", d.Late},
		{"full", d.Full},
	} {
		counter(ch, a.said, e.n, e.name)
	}
}
