package telemetry

import (
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/weir-dev/weir/schemas"
)

// flipTraces bounds the assignments whose traces are remembered, flipLinks the turns that
// the span of one role change names.
const (
	flipTraces = 8
	flipLinks  = 64
)

// Flips traces the role changes of one executor, each below the assignment that asked
// for it, with its stages, and links to the turns that it sent away. In and Out are called from the actor's goroutine.
type Flips struct {
	t      *Tracer
	epochs []uint64 // of remembered assignments, oldest first
	traces map[uint64]schemas.Trace
	last   uint64       // role changes that were traced
	away   []trace.Link // sampled turns that were returned since then
}

// NewFlips returns nil for a nil tracer; the hooks of nil Flips do nothing.
func NewFlips(t *Tracer) *Flips {
	if t == nil {
		return nil
	}
	return &Flips{t: t, traces: map[uint64]schemas.Trace{}}
}

// In remembers whose trace an assignment belongs to.
func (f *Flips) In(m *schemas.Msg) {
	if f == nil || m.Kind != schemas.KindAssignment || m.Trace.Parent == "" {
		return
	}
	if f.epochs = append(f.epochs, m.Seq); len(f.epochs) > flipTraces {
		delete(f.traces, f.epochs[0])
		f.epochs = f.epochs[1:]
	}
	f.traces[m.Seq] = m.Trace
}

// Out makes the spans of a role change from the first report that tells of it.
func (f *Flips) Out(_, m *schemas.Msg) {
	if f != nil && m.Kind == schemas.KindDone {
		f.returned(m)
		return
	}
	if f == nil || m.Kind != schemas.KindReport || m.Report.Flip == nil || m.Report.Flips <= f.last {
		return
	}
	f.last = m.Report.Flips
	c := m.Report.Flip
	at := time.Unix(0, c.AtNS)
	span := f.t.start(f.traces[c.Epoch], "flip", trace.SpanKindInternal, at, trace.WithLinks(f.away...), trace.WithAttributes(
		keyExecutor.String(m.Report.Executor), keyFrom.String(string(c.From)), keyRole.String(string(c.To)), keyPlan.String(c.Plan),
		attribute.Int("weir.jobs_returned", c.Returned), attribute.Int("weir.jobs_handed_over", c.Handed), attribute.Int("weir.jobs_kept", c.Kept)))
	f.away = nil
	if c.Back != "" {
		span.SetStatus(codes.Error, "rolled back")
	}
	own := traceOf(span.SpanContext())
	from := at
	for _, s := range [...]struct {
		name string
		ns   int64
	}{{"return jobs", c.ReturnNS}, {"hand jobs over", c.HandNS}, {"verify", c.VerifyNS}} {
		to := from.Add(time.Duration(s.ns))
		if s.ns > 0 {
			f.t.child(own, s.name, from, to, "")
		}
		from = to
	}
	span.End(trace.WithTimestamp(from))
}

// returned notes a turn that a role change may have sent away.
func (f *Flips) returned(m *schemas.Msg) {
	if m.Done.Outcome == schemas.OutcomeReturned && sampled(m.Trace.Parent) && len(f.away) < flipLinks {
		f.away = append(f.away, trace.Link{SpanContext: contextOf(m.Trace)})
	}
}
