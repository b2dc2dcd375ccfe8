package gpuexec_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/schemas"
)

// spell writes spans in milliseconds.
func spell(spans []schemas.StageSpan) string {
	var b []string
	for _, s := range spans {
		b = append(b, fmt.Sprintf("%s@%s %d-%d", s.Stage, s.On, s.From/int64(ms), s.To/int64(ms)))
	}
	return strings.Join(b, ", ")
}

// TestSpans: the stages of a turn follow each other without a gap, whatever way it
// takes. An operation of the fake engine takes 1 ms; 10 ms lie between being placed
// and arriving.
func TestSpans(t *testing.T) {
	start := func(role schemas.Role) *host {
		h := newHost(t, nil)
		h.pass(ms)
		h.assign(1, role)
		return h
	}
	take := func(h *host, stage schemas.Stage, n int, change func(*schemas.Job)) {
		j := job("u1", stage, 1, n, 4)
		j.Ready.AdmittedNS = int64(h.now - 20*ms)
		j.PlacedNS = int64(h.now - 10*ms)
		j.Spans = []schemas.StageSpan{{Stage: schemas.SpanQueue, From: 0, To: int64(10 * ms)}}
		change(j)
		h.job(j)
	}
	t.Run("prefill here, decode elsewhere", func(t *testing.T) {
		h := start(schemas.RolePrefill)
		take(h, schemas.StagePrefill, 300, func(j *schemas.Job) { j.DecodeOn = "e9" })
		h.run()
		next, done := h.take(schemas.KindJob), h.take(schemas.KindDone)
		const stages = "queue@ 0-10, prefill_wait@e0 10-20, prefill@e0 20-23"
		want(t, "job", spell(next[0].Job.Spans), stages)
		want(t, "done", spell(done[0].Done.Spans), stages)
		d := start(schemas.RoleDecode)
		d.eng.resid[next[0].Job.Ready.Job] = 4
		d.now = schemas.Time(next[0].Job.PlacedNS) + 5*ms
		d.job(next[0].Job)
		d.run()
		want(t, "result", spell(d.results[0].Result.Timing.Spans), stages+", decode_wait@e0 23-28, decode@e0 28-31")
	})
	t.Run("all in one place", func(t *testing.T) {
		h := start(schemas.RoleMixed)
		take(h, schemas.StageDecode, 300, func(j *schemas.Job) { j.Local = true })
		h.run()
		want(t, "result", spell(h.results[0].Result.Timing.Spans), "queue@ 0-10, decode_wait@e0 10-20, prefill@e0 20-22, decode@e0 22-25")
	})
	t.Run("returned before it began", func(t *testing.T) {
		h := start(schemas.RoleStandby)
		take(h, schemas.StageDecode, 30, func(*schemas.Job) {})
		want(t, "done", spell(h.take(schemas.KindDone)[0].Done.Spans), "queue@ 0-10, decode_wait@e0 10-20")
	})
	t.Run("a clock that is behind", func(t *testing.T) {
		h := start(schemas.RoleMixed)
		take(h, schemas.StageDecode, 30, func(j *schemas.Job) {
			j.Ready.AdmittedNS, j.PlacedNS, j.Spans = int64(h.now+1000*ms), int64(h.now+1010*ms), nil
		})
		h.run()
		for _, s := range h.results[0].Result.Timing.Spans {
			if s.From < 0 || s.To < s.From {
				t.Errorf("span %+v", s)
			}
		}
	})
	t.Run("many attempts", func(t *testing.T) {
		h := start(schemas.RoleMixed)
		take(h, schemas.StageDecode, 30, func(j *schemas.Job) {
			for i := range int64(schemas.MaxSpans) {
				j.Spans = schemas.AddSpan(j.Spans, schemas.StageSpan{Stage: schemas.SpanQueue, From: i, To: i})
			}
		})
		h.run()
		got := h.results[0].Result.Timing.Spans
		if len(got) != schemas.MaxSpans || got[len(got)-1].Stage != schemas.SpanDecode || got[0].From != 2 {
			t.Errorf("%d spans: %s", len(got), spell(got))
		}
	})
}

// TestMiss: lineage's reason stands unless a block is missing that had been computed;
// then the tier says why. What the prefill stage found is what the result says.
func TestMiss(t *testing.T) {
	text := &schemas.Miss{Cause: schemas.MissNewText, Message: 3, Byte: 7, Known: 257, Lost: 9}
	for _, c := range []struct {
		name     string
		resident int // blocks
		known    int // tokens
		gone     *schemas.Gone
		want     schemas.Miss
	}{
		{"all known blocks are there", 4, 257, nil, *text},
		{"the last known token was never fed", 3, 256, nil, schemas.Miss{Cause: schemas.MissNewText, Message: 3, Byte: 7, Known: 256, Lost: 9}},
		{"evicted", 2, 257, &schemas.Gone{AtNS: 5, Rule: "lru"}, schemas.Miss{Cause: schemas.MissEvicted, Message: -1, Known: 257, Lost: 9, AtNS: 5, Rule: "lru"}},
		{"never kept", 2, 257, &schemas.Gone{}, schemas.Miss{Cause: schemas.MissNotKept, Message: -1, Known: 257, Lost: 9}},
		{"nobody knows", 2, 257, nil, schemas.Miss{Cause: schemas.MissEvicted, Message: -1, Known: 257, Lost: 9, Rule: "unknown"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t, nil)
			h.pass(ms)
			h.assign(1, schemas.RoleMixed)
			h.eng.gone = c.gone
			j := job("u1", schemas.StagePrefill, 1, 400, 4)
			miss := *text
			miss.Known = c.known
			j.DecodeOn, j.Ready.Miss = "e0", &miss
			h.eng.resid[j.Ready.Job] = c.resident
			h.job(j)
			h.run()
			d := h.take(schemas.KindDone)[0].Done
			if d.Miss == nil || *d.Miss != c.want {
				t.Fatalf("prefilled: %+v, want %+v", d.Miss, c.want)
			}
			h.eng.gone = &schemas.Gone{Rule: "something else"}
			h.job(h.take(schemas.KindJob)[0].Job)
			h.run()
			if m := h.results[0].Result.Miss; m == nil || *m != c.want {
				t.Errorf("result: %+v, want %+v", m, c.want)
			}
		})
	}
	h := newHost(t, nil)
	h.pass(ms)
	h.assign(1, schemas.RoleMixed)
	h.eng.gone = &schemas.Gone{AtNS: 5, Rule: "lru"}
	j := job("u1", schemas.StageDecode, 1, 300, 4)
	j.Ready.Miss, j.Local = text, true
	h.job(j)
	h.run()
	if m := h.results[0].Result.Miss; m == nil || m.Cause != schemas.MissEvicted || m.Rule != "lru" {
		t.Errorf("a turn without a prefill stage: %+v", m)
	}
	if *text != (schemas.Miss{Cause: schemas.MissNewText, Message: 3, Byte: 7, Known: 257, Lost: 9}) {
		t.Error("lineage's message was changed")
	}
	for _, c := range []struct{ from, known, want int }{{0, 0, 0}, {128, 0, 2}, {0, 64, 0}, {0, 65, 1}, {128, 300, 4}} {
		r := &schemas.Ready{Prompt: schemas.Prompt{TailFrom: c.from}, Miss: &schemas.Miss{Known: c.known}}
		if got := gpuexec.KnownBlocks(r); got != c.want {
			t.Errorf("%+v: %d blocks", c, got)
		}
	}
}
