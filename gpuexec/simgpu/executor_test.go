package simgpu_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/gpuexec/simgpu"
	"github.com/weir-dev/weir/schemas"
)

// cell is one executor with its device; the test plays the router and NATS.
type cell struct {
	*rig
	x       *gpuexec.Executor
	results map[string]*schemas.Result
	dones   map[string]string // last outcome, by turn
	ready   map[string]*schemas.Ready
	out     []schemas.Msg
	report  *schemas.Report
	hb      *schemas.Heartbeat
	frames  map[string]*schemas.Frame // the first since it was set to nil, by turn
	decodes int
	most    int // rows of one decode
	tick    schemas.Time
}

func newCell(t testing.TB, slots, kvTokens int, change func(*gpuexec.Config)) *cell {
	cal := small(t, kvTokens)
	c := &cell{results: map[string]*schemas.Result{}, dones: map[string]string{}, ready: map[string]*schemas.Ready{}}
	var dc simgpu.Config
	c.rig = newRig(t, cal, slots, func(cfg *simgpu.Config) { dc = *cfg })
	const never = int64(1) << 50
	cfg := gpuexec.Config{
		Cell: "c0", Executor: "e0", Node: "n0", Pool: "m", Boot: "b1", Limits: dc.Limits(), Lower: true, Size: 4,
		FrameTokens: 1 << 30, FrameNS: never, CkptTokens: 1 << 30, CkptNS: never, SealTokens: 1 << 30,
	}
	if change != nil {
		change(&cfg)
	}
	c.x = gpuexec.NewExecutor(cfg)
	return c
}

func (c *cell) step(m schemas.Msg) {
	outs := c.x.Step(c.clock.now, &m, c.out[:0])
	c.out = nil // a step within a step has its own
	for i := range outs {
		c.took(&outs[i])
	}
	clear(outs)
	c.out = outs
	if next := c.x.Next(); next < c.tick || c.tick <= c.clock.now {
		c.tick = max(next, c.clock.now)
		at := c.tick
		c.clock.later(at, func() {
			if c.tick == at {
				c.step(schemas.Msg{Kind: schemas.KindTick})
			}
		})
	}
}

func (c *cell) took(m *schemas.Msg) {
	switch m.Kind {
	case schemas.KindOp:
		if m.Op.Decode != nil {
			c.decodes++
			c.most = max(c.most, len(m.Op.Decode.Seqs))
		}
		c.d.Start(c.clock.now, m.Op, func(d schemas.OpDone) { c.step(schemas.Msg{Kind: schemas.KindOpDone, OpDone: &d}) })
	case schemas.KindResult:
		if c.results[m.Result.Turn] != nil {
			c.t.Fatalf("a second result of %s", m.Result.Turn)
		}
		c.results[m.Result.Turn] = m.Result
		subject, id := m.Subject, m.ID
		c.clock.later(c.clock.now, func() { c.step(schemas.Msg{Kind: schemas.KindPublished, Subject: subject, ID: id}) })
	case schemas.KindDone:
		for turn, r := range c.ready {
			if r.Job == m.Done.Job {
				c.dones[turn] = string(m.Done.Outcome) + " " + m.Done.Reason
			}
		}
	case schemas.KindFrame:
		if c.frames == nil {
			c.frames = map[string]*schemas.Frame{}
		}
		turn := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
		if c.frames[turn] == nil {
			c.frames[turn] = m.Frame
		}
	case schemas.KindReport:
		c.report = m.Report
	case schemas.KindHeartbeat:
		c.hb = m.Heartbeat
	default:
	}
}

func (c *cell) assign(epoch uint64, a schemas.Assignment) {
	c.step(schemas.Msg{Kind: schemas.KindAssignment, Seq: epoch, Assignment: &a})
	c.until("the role", func() bool { return c.hb != nil && c.hb.Epoch == epoch })
}

func (c *cell) job(stage schemas.Stage, x *schemas.Ready, attempt int) {
	c.ready[x.Turn] = x
	c.step(schemas.Msg{Kind: schemas.KindJob, Job: &schemas.Job{Header: schemas.H(), Stage: stage, Attempt: attempt, Ready: x, Local: true}})
}

// until runs until a condition holds.
func (c *cell) until(what string, f func() bool) {
	for n := 0; !f(); n++ {
		if n > 1_000_000 || !c.clock.next() {
			c.t.Fatalf("%s never happens", what)
		}
	}
}

// TestContinuous: turns that come while others decode join them at the next step, each
// ends at its true length, and nothing is left.
func TestContinuous(t *testing.T) {
	c := newCell(t, 64, 1<<22, nil)
	c.assign(1, schemas.Assignment{Role: schemas.RoleDecode})
	const turns = 50
	for i := range turns {
		id := fmt.Sprintf("u%02d", i)
		x := turn("s"+id, id, 100+i, 2000, 0)
		c.rig.out[id] = 500 + 10*i
		c.mem.have[id] = x.Prompt.N / 64
		c.clock.later(c.clock.now+schemas.Time(i)*50*ms, func() { c.job(schemas.StageDecode, x, 1) })
	}
	c.until("the end", func() bool { return len(c.results) == turns })
	for id, r := range c.results {
		if len(r.Tokens) != c.rig.out[id] || r.Finish != "stop" {
			t.Errorf("%s: %d tokens of %d, %s", id, len(r.Tokens), c.rig.out[id], r.Finish)
		}
	}
	if c.most < 30 {
		t.Errorf("at most %d turns decoded together", c.most)
	}
	// One to end what runs, one for the first token, one up to the end, and one a second.
	if c.decodes > 4*turns {
		t.Errorf("%d decode operations for %d turns", c.decodes, turns)
	}
	c.until("a report", func() bool { return c.report != nil && c.report.Running == 0 && c.report.Queued == 0 })
	r := c.report
	if r.KVUsed != 0 || r.DecodeNS == 0 || r.DecodeNS > r.BusyNS || float64(r.DecodeRows) < 5*float64(r.DecodeSteps) {
		t.Errorf("report %+v", r)
	}
	if c.hb.Size != 4 || c.hb.KVTokens != 1<<22 || len(c.hb.Held) != 0 {
		t.Errorf("heartbeat %+v", c.hb)
	}
}

// TestFullMemory: when answers outgrow the engine's memory the youngest turn is sealed
// and handed over; with what was sealed it goes on where it was.
func TestFullMemory(t *testing.T) {
	c := newCell(t, 8, 20_000, nil)
	c.assign(1, schemas.Assignment{Role: schemas.RoleDecode})
	for i := range 3 {
		id := fmt.Sprintf("u%d", i)
		c.rig.out[id] = 7000
		c.job(schemas.StageDecode, turn("s"+id, id, 1000, 7000, 0), 1)
	}
	c.until("the youngest is handed over", func() bool { return c.dones["u2"] == "returned the engine's KV memory is full" })
	if c.dones["u0"]+c.dones["u1"] != "" || c.mem.have["u2"] < 90 {
		t.Errorf("%v, %d blocks are sealed", c.dones, c.mem.have["u2"])
	}
	c.until("the others end", func() bool { return len(c.results) == 2 })
}

// TestRoom: a job is let in only while there is room for its prompt and a reserve.
func TestRoom(t *testing.T) {
	c := newCell(t, 8, 20_000, nil)
	c.assign(1, schemas.Assignment{Role: schemas.RoleDecode})
	for i := range 3 {
		id := fmt.Sprintf("u%d", i)
		c.rig.out[id] = 200
		c.job(schemas.StageDecode, turn("s"+id, id, 8000, 300, 0), 1)
	}
	c.until("the first ends", func() bool { return len(c.results) == 1 })
	if c.most != 2 {
		t.Errorf("%d turns of 8,000 tokens in 20,000", c.most)
	}
	c.until("all end", func() bool { return len(c.results) == 3 })
}

// TestAbsorb: how much a decode executor computes itself is what its assignment says.
func TestAbsorb(t *testing.T) {
	for _, k := range []struct {
		absorb schemas.SizeClass
		n      int
		ok     bool
	}{{"", 513, true}, {"", 600, false}, {schemas.SizeM, 8193, true}, {schemas.SizeM, 8300, false}, {schemas.SizeL, 30_000, true}} {
		c := newCell(t, 2, 1<<20, nil)
		c.assign(1, schemas.Assignment{Role: schemas.RoleDecode, Absorb: k.absorb})
		x := turn("s", "u", k.n, 100, 0)
		c.ready["u"] = x
		c.step(schemas.Msg{Kind: schemas.KindJob, Job: &schemas.Job{Stage: schemas.StageDecode, Attempt: 1, Ready: x}})
		c.until("the end", func() bool { return len(c.results) == 1 || c.dones["u"] != "" })
		if (len(c.results) == 1) != k.ok {
			t.Errorf("%+v: %q", k, c.dones["u"])
		}
		if c.until("a heartbeat", func() bool { return c.hb != nil && c.hb.Role == schemas.RoleDecode }); c.hb.Absorb != k.absorb {
			t.Errorf("heartbeat says %q", c.hb.Absorb)
		}
	}
}

// TestFlip: a role change interrupts a long decode, hands its rows over sealed, and is in
// force after the calibrated time; a cancel interrupts it too.
func TestFlip(t *testing.T) {
	c := newCell(t, 8, 1<<22, func(cfg *gpuexec.Config) { cfg.RunNS = 1 << 50 })
	c.assign(1, schemas.Assignment{Role: schemas.RoleDecode})
	for i := range 4 {
		id := fmt.Sprintf("u%d", i)
		c.rig.out[id] = 30_000
		c.job(schemas.StageDecode, turn("s"+id, id, 1000, 30_000, 0), 1)
	}
	start := c.clock.now
	c.clock.runUntil(start + 60_000*ms)
	c.step(schemas.Msg{Kind: schemas.KindCancel, Cancel: &schemas.Cancel{Job: c.ready["u3"].Job, Attempt: 1, Reason: "gone"}})
	at := c.clock.now
	c.until("the cancel", func() bool { return c.dones["u3"] != "" })
	if d := c.clock.now - at; d > 50*ms {
		t.Errorf("the cancel takes %d ms", d/ms)
	}
	c.clock.runUntil(start + 70_000*ms)
	at = c.clock.now
	c.assign(2, schemas.Assignment{Role: schemas.RolePrefill})
	if d := c.clock.now - at; d < 757*ms || d > 820*ms {
		t.Errorf("the flip takes %d ms", d/ms)
	}
	for i := range 3 {
		if id := fmt.Sprintf("u%d", i); c.dones[id] != "returned role changes" || c.mem.have[id] < 50 {
			t.Errorf("%s: %q, %d blocks sealed", id, c.dones[id], c.mem.have[id])
		}
	}
}

// TestMoves: a turn that was handed over goes on where it was, in the next step, beside
// the rows that run here: its reader waits for less than two steps and the import.
func TestMoves(t *testing.T) {
	c := newCell(t, 8, 1<<22, nil)
	c.delivered = 500
	c.assign(1, schemas.Assignment{Role: schemas.RoleDecode})
	c.rig.out["a"], c.rig.out["b"] = 30_000, 1000
	c.job(schemas.StageDecode, turn("sa", "a", 1000, 30_000, 0), 1)
	c.clock.runUntil(c.clock.now + 5000*ms)
	x := turn("sb", "b", 1000, 2000, 0)
	c.mem.have["b"] = (1000 + 500 - 1) / 64
	c.ready["b"] = x
	at := c.clock.now
	c.frames = nil
	c.step(schemas.Msg{Kind: schemas.KindJob, Job: &schemas.Job{Stage: schemas.StageDecode, Attempt: 2, Ready: x, FirstNS: 1}})
	c.until("a frame", func() bool { return c.frames["b"] != nil })
	if f := c.frames["b"]; f.First != 500 || len(f.Tokens) < 2 || c.clock.now-at > 60*ms {
		t.Errorf("after %d ms %d tokens from %d on", (c.clock.now-at)/ms, len(f.Tokens), f.First)
	}
	c.until("the result", func() bool { return len(c.results) == 1 })
}

// TestMixed: an executor with both roles goes on decoding while prompts are computed.
func TestMixed(t *testing.T) {
	c := newCell(t, 16, 1<<22, func(cfg *gpuexec.Config) { cfg.Limits.PrefillChunk = 2048 })
	c.assign(1, schemas.Assignment{Role: schemas.RoleMixed})
	c.rig.out["a"] = 2000
	c.job(schemas.StageDecode, turn("sa", "a", 10, 2000, 0), 1)
	c.until("a run", func() bool { return c.decodes > 1 })
	for i := range 8 {
		id := fmt.Sprintf("p%d", i)
		c.job(schemas.StagePrefill, turn("s"+id, id, 40_000, 10, 0), 1)
	}
	before := c.decodes
	c.until("all prompts", func() bool {
		n := 0
		for i := range 8 {
			if c.dones[fmt.Sprintf("p%d", i)] != "" {
				n++
			}
		}
		return n == 8
	})
	if c.decodes-before < 10 {
		t.Errorf("%d decode operations beside eight prompts", c.decodes-before)
	}
	c.until("the answer", func() bool { return len(c.results) == 1 })
}

// TestMixedCrowd: decodes begin at every step, and a prompt is computed all the same.
func TestMixedCrowd(t *testing.T) {
	c := newCell(t, 256, 1<<24, nil)
	c.assign(1, schemas.Assignment{Role: schemas.RoleMixed})
	const crowd = 600
	for i := range crowd {
		id := fmt.Sprintf("u%03d", i)
		x := turn("s"+id, id, 100, 2000, 0)
		c.rig.out[id], c.mem.have[id] = 30, 100/64
		c.clock.later(c.clock.now+schemas.Time(i)*10*ms, func() { c.job(schemas.StageDecode, x, 1) })
	}
	c.until("a run", func() bool { return len(c.results) > 0 })
	c.job(schemas.StagePrefill, turn("sp", "p", 4000, 10, 0), 1)
	c.until("the prompt", func() bool { return c.dones["p"] != "" })
	if n := len(c.results); n > crowd/2 {
		t.Errorf("the prompt was computed after %d of %d turns that came after it", n, crowd)
	}
}

// BenchmarkRun is what one decode operation of 128 rows costs executor and device. On a
// machine that does other things too look at the processor time.
func BenchmarkRun(b *testing.B) {
	c := newCell(b, 128, 1<<40, func(cfg *gpuexec.Config) { cfg.RunNS = int64(300 * ms) })
	c.assign(1, schemas.Assignment{Role: schemas.RoleDecode})
	for i := range 128 {
		id := fmt.Sprintf("u%d", i)
		c.rig.out[id], c.mem.have[id] = 1<<30, 300
		c.job(schemas.StageDecode, turn("s"+id, id, 20_000, 1<<30, 0), 1)
	}
	c.until("all decode", func() bool { return c.most == 128 })
	b.ReportAllocs()
	start, cpu := c.decodes, cpuTime(b)
	for b.Loop() {
		n := c.decodes
		c.until("the next", func() bool { return c.decodes > n })
	}
	b.ReportMetric(float64(cpuTime(b)-cpu)/float64(c.decodes-start), "cpu-ns/op")
}

// cpuTime is the processor time of this process in nanoseconds.
func cpuTime(b *testing.B) int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// BenchmarkDecode is what executor and device cost for each decode operation of 128 rows
// in a busy cell: turns end and others begin all the time.
func BenchmarkDecode(b *testing.B) {
	c := newCell(b, 128, 1<<23, nil)
	c.assign(1, schemas.Assignment{Role: schemas.RoleDecode})
	n := 0
	fill := func() {
		for ; n < 128+len(c.results); n++ {
			id := fmt.Sprintf("u%d", n)
			c.rig.out[id] = 200 + n%300
			c.mem.have[id] = 300
			x := turn("s"+id, id, 20_000, 1000, 0)
			delete(c.ready, fmt.Sprintf("u%d", n-500))
			c.job(schemas.StageDecode, x, 1)
		}
	}
	fill()
	c.until("all decode", func() bool { return c.most == 128 })
	b.ReportAllocs()
	start, turns, cpu := c.decodes, len(c.results), cpuTime(b)
	for c.decodes < start+b.N {
		c.clock.next()
		fill()
	}
	b.ReportMetric(float64(c.decodes-start)/float64(max(1, len(c.results)-turns)), "ops/turn")
	b.ReportMetric(float64(cpuTime(b)-cpu)/float64(c.decodes-start), "cpu-ns/op")
}
