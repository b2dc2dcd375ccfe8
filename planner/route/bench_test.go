package route

import (
	"testing"

	"github.com/weir-dev/weir/schemas"
)

// BenchmarkTurn is what the router's actor itself costs for one turn that is
// prefilled and decoded, messages not encoded.
func BenchmarkTurn(b *testing.B) {
	r := New(Config{Cell: "c0"})
	now := 1000 * second
	var out []schemas.Msg
	step := func(m schemas.Msg) { out = r.Step(now, &m, out[:0]) }
	for id, role := range map[string]schemas.Role{"p": schemas.RolePrefill, "d": schemas.RoleDecode} {
		step(schemas.Msg{Kind: schemas.KindHeartbeat, Heartbeat: &schemas.Heartbeat{Header: schemas.H(), Executor: id, Boot: "b", Pool: "m", Role: role, Slots: 8, Context: 100_000}})
	}
	ready := turnReady("u1", 3000, 0)
	ready.AdmittedNS = int64(now)
	done := &schemas.Done{Header: schemas.H(), Job: ready.Job, Attempt: 1, Stage: schemas.StagePrefill, Executor: "p", Outcome: schemas.OutcomePrefilled, PassedTo: "d"}
	result := &schemas.Result{Header: schemas.H(), Tenant: "t", Session: "s", Turn: "u1"}
	b.ReportAllocs()
	for b.Loop() {
		step(schemas.Msg{Kind: schemas.KindReady, Seq: 1, Ready: ready})
		if len(out) != 1 || out[0].Job == nil {
			b.Fatalf("not placed: %+v", out)
		}
		step(schemas.Msg{Kind: schemas.KindDone, Done: done})
		step(schemas.Msg{Kind: schemas.KindResult, Result: result})
	}
}
