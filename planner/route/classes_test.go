package route

import (
	"testing"

	"github.com/weir-dev/weir/schemas"
)

// TestClasses: a prompt goes only to executors whose assignment allows its size,
// and where no one may prefill it, the decode side computes it.
func TestClasses(t *testing.T) {
	const second = schemas.Time(1_000_000_000)
	r := New(Config{Cell: "c0", DirectMax: -1})
	now := second
	step := func(m schemas.Msg) (jobs []*schemas.Job) {
		now += second / 1000
		for _, o := range r.Step(now, &m, nil) {
			if o.Kind == schemas.KindJob {
				jobs = append(jobs, o.Job)
			}
		}
		return jobs
	}
	beat := func(id string, role schemas.Role, classes ...schemas.SizeClass) {
		step(schemas.Msg{Kind: schemas.KindHeartbeat, Heartbeat: &schemas.Heartbeat{
			Header: schemas.H(), Executor: id, Boot: "b", Pool: "m", Role: role, Classes: classes, Slots: 8, Context: 1 << 20,
		}})
	}
	beat("small", schemas.RolePrefill, schemas.SizeS)
	beat("middle", schemas.RolePrefill, schemas.SizeM)
	beat("dec", schemas.RoleDecode)
	place := func(turn string, n int) *schemas.Job {
		jobs := step(schemas.Msg{Kind: schemas.KindReady, Seq: uint64(n), Ready: &schemas.Ready{
			Header: schemas.H(), Tenant: "t", Session: "s", Turn: turn, Branch: "main", Job: schemas.JobID("t", "s", turn), Pool: "m", MaxNew: 1,
			Prompt: schemas.Prompt{N: n, Tail: make(schemas.Tokens, n)}, AdmittedNS: int64(now) + 1,
		}})
		if len(jobs) != 1 {
			t.Fatalf("%d jobs for a prompt of %d tokens", len(jobs), n)
		}
		return jobs[0]
	}
	if j := place("a", 300); j.Stage != schemas.StagePrefill || !r.execs["small"].holds(j) {
		t.Errorf("300 tokens: %s, not on small", j.Stage)
	}
	if j := place("b", 3000); j.Stage != schemas.StagePrefill || !r.execs["middle"].holds(j) {
		t.Errorf("3,000 tokens: %s, not on middle", j.Stage)
	}
	if j := place("c", 9000); j.Stage != schemas.StageDecode || !j.Local {
		t.Errorf("9,000 tokens, which nobody may prefill: %s, local %v", j.Stage, j.Local)
	}
}

func (x *executor) holds(j *schemas.Job) bool { return x.prefills[j.Ready.Job] != nil }

// TestAloneSurvivesRouter: a router that starts learns from the heartbeats that a
// turn must run alone, and counts the executor that it ended.
func TestAloneSurvivesRouter(t *testing.T) {
	const second = schemas.Time(1_000_000_000)
	r := New(Config{Cell: "c0"})
	job := schemas.JobID("t", "s", "u")
	now := 100 * second
	var out []schemas.Msg
	step := func(m schemas.Msg) { out = r.Step(now, &m, out[:0]) }
	step(schemas.Msg{Kind: schemas.KindReady, Seq: 7, Ready: &schemas.Ready{
		Header: schemas.H(), Tenant: "t", Session: "s", Turn: "u", Branch: "main", Job: job, Pool: "m", MaxNew: 1,
		Prompt: schemas.Prompt{N: 10, Tail: make(schemas.Tokens, 10)}, AdmittedNS: int64(now - second),
	}})
	step(schemas.Msg{Kind: schemas.KindHeartbeat, Heartbeat: &schemas.Heartbeat{
		Header: schemas.H(), Executor: "d0", Boot: "b1", Pool: "m", Role: schemas.RoleDecode, Slots: 8, Context: 1000,
		Held: []schemas.Held{{Job: job, Attempt: 2, Stage: schemas.StageDecode, Alone: true}},
	}})
	step(schemas.Msg{Kind: schemas.KindHeartbeat, Heartbeat: &schemas.Heartbeat{Header: schemas.H(), Executor: "d0", Boot: "b1", Dead: true, Cause: "aborted"}})
	if r.counts.Poisoned != 1 {
		t.Errorf("after its second executor the turn is not given up: %+v", r.counts)
	}
}
