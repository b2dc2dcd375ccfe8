package plan_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/weir-dev/weir/planner/plan"
	"github.com/weir-dev/weir/schemas"
)

// TestAnything: whatever arrives, in whatever order, the planner goes on, changes no pinned
// executor, and never takes the last executor of a phase that it knows to be in force.
func TestAnything(t *testing.T) {
	ids := []string{"a", "b", "c", "d"}
	rapid.Check(t, func(t *rapid.T) {
		p := plan.New(plan.Config{Cell: "c0", Model: glm()})
		now, seq := schemas.Time(1e9), uint64(1)
		last := map[string]uint64{}
		pinned := map[string]bool{}
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			now += schemas.Time(rapid.Int64Range(0, 3e9).Draw(t, "dt"))
			id := rapid.SampledFrom(ids).Draw(t, "id")
			role := rapid.SampledFrom([]schemas.Role{schemas.RolePrefill, schemas.RoleDecode, schemas.RoleMixed, schemas.RoleStandby}).Draw(t, "role")
			big := rapid.Uint64().Draw(t, "n")
			var m schemas.Msg
			switch rapid.IntRange(0, 6).Draw(t, "kind") {
			case 0, 1:
				m = schemas.Msg{Kind: schemas.KindHeartbeat, Heartbeat: &schemas.Heartbeat{
					Executor: id, Boot: "b", Pool: "m", Role: role, Epoch: last[id], Size: int(int32(big)), Slots: int(int32(big)), KVTokens: int(int32(big)),
					Dead: big%17 == 0,
				}}
			case 2:
				m = schemas.Msg{Kind: schemas.KindReport, Report: &schemas.Report{
					Executor: id, AtNS: int64(big), PrefillTokens: big, DecodeTokens: big / 3, PrefillNS: int64(big), DecodeNS: int64(big / 2), DecodeSteps: big, DecodeRows: big,
					Unfit: rapid.SampledFrom([]string{"", "", "hot"}).Draw(t, "unfit"),
				}}
			case 3:
				m = schemas.Msg{Kind: schemas.KindLoad, Load: &schemas.Load{AtNS: int64(now), Router: big % 3, Pools: []schemas.PoolLoad{{
					Pool: "m", Turns: big % 1000, Uncached: big, Attention: rapid.Float64().Draw(t, "f"), Ended: big % 900, Output: big % 1e6, WaitPrefill: int(int32(big)), Decoding: int(big % 1000),
				}}}}
			case 4:
				seq++
				pinned[id] = big%3 == 0
				last[id] = seq
				m = schemas.Msg{Kind: schemas.KindAssignment, Subject: schemas.RoleSubject("c0", id), Seq: seq, Assignment: &schemas.Assignment{Role: role, By: "ann", Pinned: pinned[id]}}
			case 5:
				m = schemas.Msg{Kind: schemas.KindBus, Err: rapid.SampledFrom([]string{"", "gone"}).Draw(t, "bus")}
			default:
				m = schemas.Msg{Kind: schemas.KindTick}
			}
			for _, o := range p.Step(now, &m, nil) {
				if o.Kind == schemas.KindPlan {
					if err := o.Plan.Check(); err != nil {
						t.Fatal(err)
					}
					if _, err := schemas.Encode(o.Plan); err != nil {
						t.Fatalf("a decision that cannot be written: %v", err)
					}
				}
				if o.Kind != schemas.KindAssignment {
					continue
				}
				s, err := schemas.ParseSubject(o.Subject)
				if err != nil || o.Assignment.Check() != nil {
					t.Fatalf("%s %+v", o.Subject, o.Assignment)
				}
				x := s.Get("executor")
				if pinned[x] && o.ExpectSeq == last[x] && !o.Assignment.Pinned {
					t.Fatalf("%s is pinned: %s", x, o.Assignment.Reason)
				}
				pub := schemas.Msg{Kind: schemas.KindPublished, Subject: o.Subject, Err: schemas.ErrTextConflict}
				if o.ExpectSeq == last[x] {
					seq++
					last[x], pinned[x] = seq, o.Assignment.Pinned
					pub.Err, pub.Seq = "", seq
				}
				if out := p.Step(now, &pub, nil); len(out) > 0 {
					t.Fatalf("an answer to a publish: %+v", out)
				}
			}
		}
		if _, err := p.Snapshot(nil); err != nil {
			t.Fatal(err)
		}
	})
}
