package route

import (
	"fmt"
	"testing"

	"github.com/weir-dev/weir/schemas"
)

// rig is a router whose placements are counted by executor.
type rig struct {
	t      *testing.T
	r      *Router
	now    schemas.Time
	seq    uint64
	placed map[string]int // jobs, of the stage that was asked for
	jobs   []*schemas.Job
	on     map[string]string // executor of a job
}

func newRig(t *testing.T, cfg Config) *rig {
	cfg.Cell = "c0"
	g := &rig{t: t, r: New(cfg), now: 1000 * second, placed: map[string]int{}, on: map[string]string{}}
	g.step(&schemas.Msg{Kind: schemas.KindTick})
	g.now += 2 * second // the router is settled
	return g
}

func (g *rig) step(m *schemas.Msg) {
	for _, o := range g.r.Step(g.now, m, nil) {
		switch o.Kind {
		case schemas.KindJob:
			s, err := schemas.ParseSubject(o.Subject)
			if err != nil {
				g.t.Fatal(err)
			}
			g.jobs = append(g.jobs, o.Job)
			g.on[o.Job.Ready.Job] = s.Get("executor")
			g.placed[string(o.Job.Stage)+" "+s.Get("executor")]++
			if o.Job.DecodeOn != "" {
				g.placed["then "+o.Job.DecodeOn]++
			}
		case schemas.KindOp:
			g.step(&schemas.Msg{Kind: schemas.KindOpDone, OpDone: &schemas.OpDone{ID: o.Op.ID, Sync: &schemas.SyncReply{
				Header: schemas.H(), Node: o.Op.Sync.Node, Epoch: 1, Peer: o.Op.Sync.Node + ":1",
			}}})
		default:
		}
	}
}

func (g *rig) beat(h schemas.Heartbeat) {
	h.Header, h.Boot, h.Pool = schemas.H(), "b", "m"
	if h.Context == 0 {
		h.Context = 200_000
	}
	g.step(&schemas.Msg{Kind: schemas.KindHeartbeat, Heartbeat: &h})
}

func (g *rig) ready(turn string, n, from int, chain string) *schemas.Ready {
	r := turnReady(turn, n, from)
	r.Session = turn
	nameBlocks(r, chain)
	g.seq++
	r.AdmittedNS = int64(g.now)
	g.step(&schemas.Msg{Kind: schemas.KindReady, Seq: g.seq, Ready: r})
	return r
}

// most is the largest share of the jobs of one kind that one executor got.
func (g *rig) most(kind string, executors int) (most, all int) {
	for i := range executors {
		n := g.placed[fmt.Sprintf("%s e%d", kind, i)]
		most, all = max(most, n), all+n
	}
	return most, all
}

// TestFactSharedPrompt: one system prompt of 12,000 tokens, which one of eight workers
// with memories of their own holds, and 160 sessions that begin with it. In the field all
// went to that one (dynamo 737, llm-d-router 355, SGLang 34513).
func TestFactSharedPrompt(t *testing.T) {
	g := newRig(t, Config{})
	for i := range 8 {
		g.beat(schemas.Heartbeat{Executor: fmt.Sprintf("e%d", i), Node: fmt.Sprintf("n%d", i), Role: schemas.RoleMixed, Slots: 32, PrefillTPS: 50_000, BringTPS: 200_000})
	}
	g.step(&schemas.Msg{Kind: schemas.KindKV, KV: &schemas.KVNotice{
		Header: schemas.H(), Node: "n0", Epoch: 1, Seq: 1, Medium: schemas.MediumHost, Peer: "n0:1", Stored: chains("system/187"),
	}})
	for i := range 160 {
		g.ready(fmt.Sprintf("u%d", i), 12_400, 0, fmt.Sprintf("system:187+s%d", i))
	}
	most, all := g.most("decode", 8)
	t.Logf("%d of %d on one of eight", most, all)
	if all < 140 || most > 160/4 {
		t.Errorf("one of eight workers got %d of %d turns", most, all)
	}
}

// TestFactSpread: equal workers get equal parts (dynamo 3581, 589).
func TestFactSpread(t *testing.T) {
	g := newRig(t, Config{})
	for i := range 8 {
		g.beat(schemas.Heartbeat{Executor: fmt.Sprintf("e%d", i), Node: "n", Role: schemas.RoleDecode, Slots: 32})
	}
	for i := range 80 {
		g.ready(fmt.Sprintf("u%d", i), 100, 0, "")
	}
	if most, all := g.most("decode", 8); most != 10 || all != 80 {
		t.Errorf("one of eight equal workers got %d of %d turns", most, all)
	}
}

// TestFactOnePrefill: one worker prefills for five that decode, with one memory, and with
// memories of their own and hand-over between engines. In the field two of the five got
// nothing (dynamo 7836, 7919).
func TestFactOnePrefill(t *testing.T) {
	for _, handover := range []bool{false, true} {
		g := newRig(t, Config{Handover: handover})
		g.beat(schemas.Heartbeat{Executor: "p", Node: "n0", Role: schemas.RolePrefill, Slots: 32, PrefillTPS: 50_000})
		for i := range 5 {
			node := "n0"
			if handover {
				node = fmt.Sprintf("n%d", i+1)
			}
			g.beat(schemas.Heartbeat{Executor: fmt.Sprintf("e%d", i), Node: node, Role: schemas.RoleDecode, Slots: 32, PrefillTPS: 50_000})
		}
		for i := range 100 {
			r := g.ready(fmt.Sprintf("u%d", i), 3000, 0, fmt.Sprintf("s%d", i))
			j := g.jobs[len(g.jobs)-1]
			if j.Ready != r || j.Stage != schemas.StagePrefill || j.DecodeOn == "" {
				t.Fatalf("hand-over %v: %s: %+v", handover, r.Turn, j)
			}
			g.step(&schemas.Msg{Kind: schemas.KindDone, Done: &schemas.Done{
				Header: schemas.H(), Job: r.Job, Attempt: 1, Stage: schemas.StagePrefill, Executor: "p", Outcome: schemas.OutcomePrefilled, PassedTo: j.DecodeOn,
			}})
		}
		if most, all := g.most("then", 5); most != 20 || all != 100 {
			t.Errorf("hand-over %v: one of five decode workers got %d of %d turns", handover, most, all)
		}
	}
}

// TestFactHandover: a prefilled turn that waited for a slot goes to any decode worker while
// the one that prefilled it lives, and nothing is brought in or computed there; after its
// death it comes from the memory of its node.
func TestFactHandover(t *testing.T) {
	for _, dies := range []bool{false, true} {
		g := newRig(t, Config{Handover: true})
		g.beat(schemas.Heartbeat{Executor: "p", Node: "n0", Role: schemas.RolePrefill, Slots: 4})
		r := g.ready("u", 3000, 0, "s")
		g.step(&schemas.Msg{Kind: schemas.KindDone, Done: &schemas.Done{Header: schemas.H(), Job: r.Job, Attempt: 1, Stage: schemas.StagePrefill, Executor: "p", Outcome: schemas.OutcomePrefilled}})
		if dies {
			g.step(&schemas.Msg{Kind: schemas.KindHeartbeat, Heartbeat: &schemas.Heartbeat{Header: schemas.H(), Executor: "p", Boot: "b", Dead: true}})
		}
		g.beat(schemas.Heartbeat{Executor: "d", Node: "n1", Role: schemas.RoleDecode, Slots: 4})
		j := g.jobs[len(g.jobs)-1]
		if j.Stage != schemas.StageDecode || j.PrefillOn != "p" || j.Local || (len(j.Sources) > 0) != dies {
			t.Errorf("dies %v: %+v", dies, j)
		}
	}
}

// TestFactLongTurn: a turn that runs for 400 seconds keeps its slot. In the field a fixed
// expiry of 300 s dropped it from the books (dynamo 11303).
func TestFactLongTurn(t *testing.T) {
	g := newRig(t, Config{})
	h := schemas.Heartbeat{Executor: "e0", Role: schemas.RoleDecode, Slots: 1}
	g.beat(h)
	r := g.ready("long", 100, 0, "")
	h.Held = []schemas.Held{{Job: r.Job, Attempt: 1, Stage: schemas.StageDecode}}
	for range 800 {
		g.now += second / 2
		g.beat(h)
		g.step(&schemas.Msg{Kind: schemas.KindTick})
	}
	g.ready("next", 100, 0, "")
	if len(g.jobs) != 1 || g.r.execs["e0"].decoding != 1 {
		t.Errorf("%d jobs, %d decodes in the books", len(g.jobs), g.r.execs["e0"].decoding)
	}
}

// TestFactExports: a prefill worker whose engine is half full of contexts that nobody has a
// decode slot for computes no more, and goes on when one is taken over.
func TestFactExports(t *testing.T) {
	g := newRig(t, Config{Handover: true})
	g.beat(schemas.Heartbeat{Executor: "p", Node: "n0", Role: schemas.RolePrefill, Slots: 8, KVTokens: 200_000, PrefillTPS: 100_000})
	for i := range 10 {
		r := g.ready(fmt.Sprintf("u%d", i), 30_000, 0, fmt.Sprintf("s%d", i))
		if g.on[r.Job] != "p" {
			break
		}
		g.step(&schemas.Msg{Kind: schemas.KindDone, Done: &schemas.Done{Header: schemas.H(), Job: r.Job, Attempt: 1, Stage: schemas.StagePrefill, Executor: "p", Outcome: schemas.OutcomePrefilled}})
	}
	if n := g.placed["prefill p"]; n != 4 {
		t.Fatalf("%d contexts of 30,000 tokens were computed for a memory of 200,000, want 4", n)
	}
	g.beat(schemas.Heartbeat{Executor: "d", Node: "n1", Role: schemas.RoleDecode, Slots: 1})
	if g.placed["decode d"] != 1 || g.placed["prefill p"] != 5 {
		t.Errorf("a slot came free: %v", g.placed)
	}
}

// TestFactCredit: a worker of four accelerators that computes 60,000 tokens a second gets
// work for two steps of 4 × 8,192 tokens, also when prompts are long; one on a CPU gets
// 2,048 tokens.
func TestFactCredit(t *testing.T) {
	for _, c := range []struct {
		size   int
		tps    float64
		prompt int
		want   int // jobs
	}{{4, 60_000, 2944, 21}, {4, 60_000, 30_080, 8}, {4, 0, 2944, 3}, {1, 800, 960, 3}, {1, 0, 5000, 1}} {
		g := newRig(t, Config{})
		g.beat(schemas.Heartbeat{Executor: "p", Role: schemas.RolePrefill, Slots: 256, Size: c.size, PrefillTPS: c.tps})
		for i := range 64 {
			g.ready(fmt.Sprintf("u%d", i), c.prompt+1, 0, fmt.Sprintf("s%d", i))
		}
		if n := g.placed["prefill p"]; n != c.want {
			t.Errorf("%+v: %d jobs", c, n)
		}
	}
}

// TestFactKV: decodes are placed while the engine has memory for their contexts, not while
// it has slots.
func TestFactKV(t *testing.T) {
	g := newRig(t, Config{})
	g.beat(schemas.Heartbeat{Executor: "d", Role: schemas.RoleDecode, Slots: 256, KVTokens: 1_000_000})
	for i := range 64 {
		g.ready(fmt.Sprintf("u%d", i), 80_000, 79_936, fmt.Sprintf("s%d", i))
	}
	if n := g.placed["decode d"]; n != 12 {
		t.Errorf("%d contexts of 80,000 tokens were placed on an engine that holds 1,000,000", n)
	}
}

// TestFactSharedPromptApart: the same where workers do both phases and no memory gives to
// another: computing 6,000 tokens once more is soon cheaper than standing in one's way.
func TestFactSharedPromptApart(t *testing.T) {
	g := newRig(t, Config{})
	for i := range 4 {
		g.beat(schemas.Heartbeat{Executor: fmt.Sprintf("e%d", i), Node: fmt.Sprintf("n%d", i), Role: schemas.RoleMixed, Slots: 256, PrefillTPS: 50_000})
	}
	g.step(&schemas.Msg{Kind: schemas.KindKV, KV: &schemas.KVNotice{
		Header: schemas.H(), Node: "n0", Epoch: 1, Seq: 1, Medium: schemas.MediumHost, Stored: chains("system/93"),
	}})
	for i := range 80 {
		g.ready(fmt.Sprintf("u%d", i), 8000, 0, fmt.Sprintf("system:93+s%d", i))
	}
	if most, all := g.most("decode", 4); most > 40 || all != 80 {
		t.Errorf("one of four workers got %d of %d turns", most, all)
	}
}
