package route

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-dev/weir/schemas"
)

func spell(spans []schemas.StageSpan) string {
	var b []string
	for _, s := range spans {
		b = append(b, fmt.Sprintf("%s@%s %d-%d", s.Stage, s.On, s.From/1e6, s.To/1e6))
	}
	return strings.Join(b, ", ")
}

// TestSpans: a job carries the stages that are over: rendering, each wait here, what
// executors told, and what one did that ended. All of it comes back with a failure.
func TestSpans(t *testing.T) {
	const ms = second / 1000
	now := 1000 * second
	r := New(Config{Cell: "c0", MaxAttempts: 4})
	var job *schemas.Job
	var result *schemas.Result
	tell := func(m *schemas.Msg) {
		for _, o := range r.Step(now, m, nil) {
			switch o.Kind {
			case schemas.KindJob:
				job = o.Job
			case schemas.KindResult:
				result = o.Result
			default:
			}
		}
	}
	beat := func(id string, boot string, role schemas.Role) {
		tell(&schemas.Msg{Kind: schemas.KindHeartbeat, Heartbeat: &schemas.Heartbeat{Header: schemas.H(), Executor: id, Boot: boot, Pool: "m", Role: role, Slots: 1, Context: 10_000}})
	}
	check := func(what, spans string) {
		t.Helper()
		if job == nil || spell(job.Spans) != spans || job.PlacedNS != int64(now) {
			t.Fatalf("%s: got %+v\nspans %s\nwant  %s", what, job, spell(job.Spans), spans)
		}
	}
	tell(&schemas.Msg{Kind: schemas.KindTick})
	ready := turnReady("u1", 3000, 0)
	ready.AdmittedNS = int64(now)
	now += 20 * ms
	ready.ReadyNS = int64(now)
	tell(&schemas.Msg{Kind: schemas.KindReady, Seq: 1, Ready: ready})
	now += 30 * ms
	beat("p", "b1", schemas.RolePrefill)
	const first = "render@ 0-20, queue@ 20-50"
	check("first job", first)

	told := schemas.AddSpan(job.Spans, schemas.StageSpan{Stage: schemas.SpanPrefill, On: "p", From: 50e6, To: 60e6})
	now += 10 * ms
	done := &schemas.Done{
		Header: schemas.H(), Job: ready.Job, Attempt: job.Attempt, Stage: schemas.StagePrefill, Executor: "p", Outcome: schemas.OutcomePrefilled,
		Spans: told, Miss: &schemas.Miss{Cause: schemas.MissEvicted, Rule: "lru"},
	}
	tell(&schemas.Msg{Kind: schemas.KindDone, Done: done})
	now += 5 * ms
	beat("d", "b1", schemas.RoleDecode)
	check("handed over", first+", prefill@p 50-60")
	if job.Miss == nil || job.Miss.Rule != "lru" {
		t.Errorf("what the prefill stage found: %+v", job.Miss)
	}

	// The decode executor ends; the wait for the next one begins then.
	now += 15 * ms
	tell(&schemas.Msg{Kind: schemas.KindHeartbeat, Heartbeat: &schemas.Heartbeat{Header: schemas.H(), Executor: "d", Boot: "b1", Dead: true, Outside: true}})
	now += 20 * ms
	beat("d", "b2", schemas.RoleDecode)
	check("second attempt", first+", prefill@p 50-60, decode@d 65-80, queue@ 80-100")
	if job.Miss == nil {
		t.Error("the second attempt lost why blocks were missed")
	}
	// It gives the turn back after its first token; the next one hears of that.
	tell(&schemas.Msg{Kind: schemas.KindDone, Done: &schemas.Done{
		Header: schemas.H(), Job: ready.Job, Attempt: job.Attempt, Stage: schemas.StageDecode, Executor: "d", Outcome: schemas.OutcomeReturned,
		Reason: "role changes", Spans: job.Spans, FirstNS: int64(now),
	}})
	gaveBack := int64(now)
	now += 5 * ms
	beat("d", "b2", schemas.RoleDecode)
	if job.FirstNS != gaveBack {
		t.Errorf("the first token was computed at %d, the job says %d", gaveBack, job.FirstNS)
	}
	tell(&schemas.Msg{Kind: schemas.KindReady, Seq: 2, Ready: &schemas.Ready{
		Header: schemas.H(), Tenant: "t", Session: "s", Turn: "u1", Job: ready.Job, Cancel: true, Reason: "gone",
	}})
	if result == nil || spell(result.Timing.Spans) != spell(job.Spans) || result.Miss == nil {
		t.Errorf("the failure: %+v", result)
	}
}

// TestUncached: a turn whose blocks have no names is computed in one place.
func TestUncached(t *testing.T) {
	r := New(Config{Cell: "c0"})
	ready := turnReady("u1", 3000, 0)
	ready.Prompt.Uncached, ready.AdmittedNS = true, int64(1000*second)
	var jobs []string
	for _, m := range []*schemas.Msg{
		{Kind: schemas.KindHeartbeat, Heartbeat: &schemas.Heartbeat{Header: schemas.H(), Executor: "p", Boot: "b", Pool: "m", Role: schemas.RolePrefill, Slots: 1, Context: 10_000}},
		{Kind: schemas.KindReady, Seq: 1, Ready: ready},
		{Kind: schemas.KindHeartbeat, Heartbeat: &schemas.Heartbeat{Header: schemas.H(), Executor: "d", Boot: "b", Pool: "m", Role: schemas.RoleDecode, Slots: 1, Context: 10_000}},
	} {
		for _, o := range r.Step(1000*second, m, nil) {
			if o.Kind == schemas.KindJob {
				jobs = append(jobs, short(&o))
			}
		}
	}
	if want := "job u1 attempt 1: decode on d local"; strings.Join(jobs, "; ") != want {
		t.Errorf("%v, want %s", jobs, want)
	}
}
