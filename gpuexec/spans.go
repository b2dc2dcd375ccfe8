package gpuexec

import "github.com/weir-dev/weir/schemas"

// spans are the stages of a job that are over now, those of earlier stages and
// attempts before them:
//
//	prefill job:  placed --prefill_wait--> begun --prefill--> sealed
//	decode job:   prefilled, or placed --decode_wait--> begun [--prefill--> ready] [--rebuild--> resumed] --decode--> last token
//
// A decode job that finds blocks missing computes them here. A decode that goes on
// elsewhere is rebuilt first: what its reader sees as a pause lasts from the end of the
// decode span before it to the end of the rebuild span.
func (e *Executor) spans(j *job) []schemas.StageSpan {
	now := e.now
	if j.ended != 0 {
		now = j.ended
	}
	wait, work := schemas.SpanPrefillWait, schemas.SpanPrefill
	from := schemas.Time(j.PlacedNS)
	if from == 0 {
		from = j.arrived
	}
	out := j.Spans
	if j.Stage == schemas.StageDecode {
		wait, work = schemas.SpanDecodeWait, schemas.SpanDecode
		if n := len(out); n > 0 && out[n-1].Stage == schemas.SpanPrefill {
			from = schemas.Time(out[n-1].To + j.Ready.AdmittedNS) // since its blocks were there
		}
	}
	if j.begun == 0 {
		return e.span(j, out, wait, from, now)
	}
	out = e.span(j, out, wait, from, j.begun)
	begun := j.begun
	if j.Stage == schemas.StageDecode && j.filled != 0 {
		out = e.span(j, out, schemas.SpanPrefill, begun, j.filled)
		begun = j.filled
	}
	if len(j.delivered)+len(j.forced) > 0 {
		until := j.resumed
		if until == 0 {
			until = now
		}
		out = e.span(j, out, schemas.SpanRebuild, begun, until)
		begun = until
	}
	return e.span(j, out, work, begun, now)
}

// span adds one stage. Clocks of two hosts may differ by more than a stage took.
func (e *Executor) span(j *job, out []schemas.StageSpan, stage string, from, to schemas.Time) []schemas.StageSpan {
	base := schemas.Time(j.Ready.AdmittedNS)
	from = max(from, base)
	return schemas.AddSpan(out, schemas.StageSpan{Stage: stage, On: e.cfg.Executor, From: int64(from - base), To: int64(max(from, to) - base)})
}
