package telemetry

import (
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/weir-dev/weir/schemas"
)

// flipTraces bounds the assignments whose traces are remembered.
const flipTraces = 8

// Flips traces the role changes of one executor, each below the assignment that asked
// for it, with its stages. In and Out are called from the actor's goroutine.
type Flips struct {
	t      *Tracer
	epochs []uint64 // of remembered assignments, oldest first
	traces map[uint64]schemas.Trace
	last   uint64 // role changes that were traced
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
	if f == nil || m.Kind != schemas.KindReport || m.Report.Flip == nil || m.Report.Flips <= f.last {
		return
	}
	f.last = m.Report.Flips
	c := m.Report.Flip
	at := time.Unix(0, c.AtNS)
	span := f.t.start(f.traces[c.Epoch], "flip", trace.SpanKindInternal, at, trace.WithAttributes(
		keyExecutor.String(m.Report.Executor), keyFrom.String(string(c.From)), keyRole.String(string(c.To)), keyPlan.String(c.Plan)))
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
