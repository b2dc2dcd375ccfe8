package streams

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/weir-dev/weir/schemas"
)

// TestChainReleasesInOrder settles publishes in any order and checks that no
// acknowledgement comes before every publish that stands before it, and that it
// is a failure exactly when one of those failed.
func TestChainReleasesInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		outs := rapid.SliceOfN(rapid.Bool(), 1, 30).Draw(t, "outs") // true is a publish
		var chains []*Chain[int]
		before := map[int]int{} // acknowledgement -> publishes before it
		first := NewChain[int]()
		cur := first
		for i, publish := range outs {
			if publish {
				cur = cur.Publish()
				chains = append(chains, cur)
			} else {
				cur.Ack(i)
				before[i] = len(chains)
			}
		}
		settled, failed := make([]bool, len(chains)), make([]bool, len(chains))
		var got []int
		done := func(ack int, bad bool) {
			got = append(got, ack)
			want := false
			for p := range before[ack] {
				if !settled[p] {
					t.Fatalf("acknowledgement %d came before publish %d", ack, p)
				}
				want = want || failed[p]
			}
			if bad != want {
				t.Fatalf("acknowledgement %d: failed is %v", ack, bad)
			}
		}
		first.Advance(done)
		for _, p := range rapid.Permutation(indices(len(chains))).Draw(t, "order") {
			failed[p], settled[p] = rapid.Bool().Draw(t, "failed"), true
			chains[p].Settle(failed[p], done)
		}
		if len(got) != len(before) {
			t.Fatalf("%d of %d acknowledgements came", len(got), len(before))
		}
	})
}

func indices(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

func TestDeadLetterOfAnything(t *testing.T) {
	f := func(subject, want, session string) {
		t.Helper()
		m := DeadLetter(1, subject, 7, []byte("body"), schemas.CodeInvalid, "why")
		if m.Subject != want || m.Dead.Session != session {
			t.Errorf("%q goes to %q, session %q", subject, m.Subject, m.Dead.Session)
		}
		if _, err := encode(&m); err != nil {
			t.Errorf("%q: %v", subject, err)
		}
	}
	f("agent.5.acme.s1.turn", "dead.agent.acme", "s1")
	f("agent.acme.s1.turn", "dead.agent.acme", "s1")
	f("ready.c0.acme.s1.u1", "dead.ready.acme", "s1")
	f("hb.c0.e1", "dead.hb.default", "")
	f("agent.we@ird.s 1.turn", "dead.agent."+schemas.CleanID("we@ird"), schemas.CleanID("s 1"))
	f("", "dead."+schemas.CleanID("")+".default", "")
	f(strings.Repeat("x", 5000), "dead."+schemas.CleanID(strings.Repeat("x", 1024))+".default", "")
	if m := DeadLetter(1, "hb.c0.e1", 0, make([]byte, 1<<20), "c", strings.Repeat("é", 9000)); m.ID != "" || len(m.Dead.Body) != schemas.MaxDeadBody {
		t.Errorf("id %q, %d bytes", m.ID, len(m.Dead.Body))
	}
}

func TestEncodeStep(t *testing.T) {
	good := schemas.Msg{Kind: schemas.KindPlan, Subject: "plan.c0", Plan: &schemas.Plan{Header: schemas.H(), ID: "a"}}
	noID := schemas.Msg{Kind: schemas.KindPlan, Subject: "plan.c0", Plan: &schemas.Plan{Header: schemas.H()}}
	badSubject := good
	badSubject.Subject = "plan.c 0"
	ack := schemas.Msg{Kind: schemas.KindAck, Subject: "agent.t.s.turn", Seq: 4}
	in := schemas.Msg{Subject: "agent.t.s.turn", Seq: 4}
	var asked []string
	seen := 0
	got := EncodeStep(nil, 1, &in, []schemas.Msg{good, noID, badSubject, ack},
		func(_, _ *schemas.Msg) { seen++ },
		func(subject string, seq uint64, body []byte, err error) []schemas.Msg {
			asked = append(asked, fmt.Sprint(subject, " ", seq, " ", body == nil, " ", errors.Is(err, schemas.ErrID)))
			return []schemas.Msg{good}
		})
	var shape []string
	for _, e := range got {
		shape = append(shape, fmt.Sprintf("%d %s %v %v", e.Kind, e.Subject, e.Body != nil, e.Err != nil))
	}
	dead := fmt.Sprint(schemas.KindDead)
	plan := fmt.Sprint(schemas.KindPlan)
	want := []string{
		plan + " plan.c0 true false",
		plan + " plan.c0 false true", dead + " dead.plan.default true false", plan + " plan.c0 true false",
		plan + " plan.c 0 false true", dead + " dead.plan.default true false", plan + " plan.c0 true false",
		fmt.Sprint(schemas.KindAck) + " agent.t.s.turn false false",
	}
	if d := cmp.Diff(want, shape); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"agent.t.s.turn 4 true true", "agent.t.s.turn 4 true true"}, asked); d != "" || seen != 7 {
		t.Errorf("hooks: seen %d, %s", seen, d)
	}
}
