package explaincmd

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/weir-dev/weir/schemas"
)

// TestFlip: a role change is found by executor, decision and epoch, with its stages, its
// reason and the turns that it paused; what is not known is said.
func TestFlip(t *testing.T) {
	nc, url := bus(t)
	now := time.Now()
	ms := int64(time.Millisecond)
	publish(t, nc, schemas.RoleSubject("c0", "other"), &schemas.Assignment{Header: schemas.H(), Role: schemas.RoleMixed})
	publish(t, nc, schemas.RoleSubject("c0", "d0"), &schemas.Assignment{Header: schemas.H(), Role: schemas.RolePrefill, Plan: "5-7", By: "planner"})
	publish(t, nc, schemas.PlanSubject("c0"), &schemas.Plan{
		Header: schemas.H(), ID: "5-7", AtNS: now.UnixNano(), Rule: "gain", Reason: "prefill is pressed",
		Changes: []schemas.RoleChange{{Executor: "d0", From: schemas.RoleDecode, To: schemas.RolePrefill, Why: "it decodes least"}},
	})
	publish(t, nc, schemas.ReportSubject("c0", "d1"), &schemas.Report{Header: schemas.H(), Executor: "d1", AtNS: now.UnixNano()})
	publish(t, nc, schemas.ReportSubject("c0", "d0"), &schemas.Report{
		Header: schemas.H(), Executor: "d0", AtNS: now.UnixNano(), Flips: 1, Flip: &schemas.Flip{
			Epoch: 2, From: schemas.RoleDecode, To: schemas.RolePrefill, Plan: "5-7", AtNS: now.UnixNano(), ReturnNS: 5 * ms, HandNS: 200 * ms, VerifyNS: 3 * ms,
			Returned: 1, Handed: 2, Kept: 3, Finished: 4,
		},
	})
	admitted := now.Add(-time.Second).UnixNano()
	result := func(turn, on string, left int64) {
		r := &schemas.Result{Header: schemas.H(), Tenant: schemas.DefaultTenant, Session: "s", Turn: turn, Job: schemas.JobID(schemas.DefaultTenant, "s", turn), Attempt: 2, Status: schemas.StatusOK}
		r.Timing = schemas.Timing{AdmittedNS: admitted, Spans: []schemas.StageSpan{
			{Stage: schemas.SpanDecode, On: on, From: 0, To: left},
			{Stage: schemas.SpanDecodeWait, On: "d1", From: left, To: left + 90*ms},
			{Stage: schemas.SpanDecode, On: "d1", From: left + 120*ms, To: left + 900*ms},
		}}
		publish(t, nc, schemas.ResultSubject(r.Tenant, r.Session, r.Turn), r)
	}
	result("paused", "d0", 1100*ms)
	result("elsewhere", "d2", 1100*ms)
	result("later", "d0", 9000*ms)
	run := func(args ...string) (string, error) {
		c := NewCommand()
		var out bytes.Buffer
		c.SetOut(&out)
		c.SetErr(&out)
		c.SilenceUsage, c.SilenceErrors = true, true
		c.SetArgs(append([]string{"flip", "--nats", url}, args...))
		err := c.ExecuteContext(t.Context())
		return out.String(), err
	}
	for _, id := range []string{"d0", "5-7", "2"} {
		out, err := run(id)
		if err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		for _, want := range []string{
			"d0 became prefill", "before it was decode; epoch 2", "decision 5-7, rule gain: prefill is pressed", "because    it decodes least",
			"hand_over", "208 ms: 1 returned that had not begun, 2 handed over, 3 kept, 4 finished first", "120 ms for turn paused of session s, which went on with d1", "1 job was handed over without",
		} {
			if !strings.Contains(out, want) {
				t.Errorf("%s does not say %q:\n%s", id, want, out)
			}
		}
		if strings.Contains(out, "elsewhere") || strings.Contains(out, "turn later") {
			t.Errorf("%s names turns that it did not pause:\n%s", id, out)
		}
	}
	if out, err := run("d0", "-o", "json"); err != nil || !strings.Contains(out, `"pause_ms":120`) {
		t.Errorf("%v: %s", err, out)
	}
	for id, want := range map[string]string{"d1": "no role change since", "nobody": `called "nobody"`} {
		if _, err := run(id); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", id, err)
		}
	}
}
