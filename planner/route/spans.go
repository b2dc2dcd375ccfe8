package route

import "github.com/weir-dev/weir/schemas"

// rendered notes the stage that is over when a turn is ready.
func (t *turn) rendered() {
	m := t.ready
	t.since = schemas.Time(m.AdmittedNS)
	if m.ReadyNS > 0 {
		t.since = schemas.Time(m.ReadyNS)
		t.span(schemas.SpanRender, "", schemas.Time(m.AdmittedNS), t.since)
	}
}

// placed notes that the turn has waited here until now.
func (t *turn) placed(now schemas.Time) { t.span(schemas.SpanQueue, "", t.since, now) }

// lostOn notes a stage whose executor will not tell of it.
func (t *turn) lostOn(x *executor, now schemas.Time) {
	stage := schemas.SpanPrefill
	if t.stage == schemas.StageDecode {
		stage = schemas.SpanDecode
	}
	t.span(stage, x.id, t.placedAt, now)
}

// span adds one stage. Clocks of two hosts may differ by more than a stage took.
func (t *turn) span(stage, on string, from, to schemas.Time) {
	base := schemas.Time(t.ready.AdmittedNS)
	from = max(from, base)
	t.spans = schemas.AddSpan(t.spans, schemas.StageSpan{Stage: stage, On: on, From: int64(from - base), To: int64(max(from, to) - base)})
}
