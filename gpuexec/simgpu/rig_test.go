package simgpu_test

import (
	"container/heap"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/weir-dev/weir/gpuexec/simgpu"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/schemas/calib"
)

const (
	ms        = schemas.Time(1_000_000)
	glm, kimi = "glm-5.2_gb300_dep4", "kimi-k2.6_gb300_dep4"
)

// shared reads a given calibration, or skips: they are no part of the repository.
func shared(t *testing.T, name string) *calib.Calibration {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		b, err := os.ReadFile(filepath.Join(dir, "shared", "calib", name+".json"))
		if err == nil {
			c, err := calib.Parse(b)
			if err != nil {
				t.Fatal(err)
			}
			c.Derate = 1
			return c
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Skipf("no shared/calib/%s.json above the working folder", name)
		}
		dir = up
	}
}

// small is a made-up worker with round coefficients.
func small(t testing.TB, kvTokens int) *calib.Calibration {
	t.Helper()
	c, err := calib.Parse(fmt.Appendf(nil, `{"schema": "calib/v1", "id": "small", "layout": {"gpus": 4, "attn_dp": 4}, "spec": {"k": 3, "al": 2.99},
		"prefill": {"form": "max(floor,a*n)+c*S+m0+m1*N", "coef": {"floor": 80, "a": 0.05, "c": 1e-7, "m0": 10, "m1": 0.004}},
		"decode": {"grid_B": [0, 128, 256], "ms": [20, 34, 41], "k_ctx": 1.6e-6, "max_B": 256}, "mem": {"kv_bytes_tok": 1000, "kv_tokens": %d},
		"links": [{"name": "p2d", "gbps": 2, "lat_us": 3000}, {"name": "host_local", "gbps": 1, "lat_us": 5000}, {"name": "host_shared", "gbps": 0.5, "lat_us": 5000}],
		"flip": {"p2d_ms": 36, "d2p_ms": 757}, "range": {"n": [0, 8192], "prefix": [0, 300000], "K": [0, %d]}}`, kvTokens, kvTokens))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// clock is a virtual clock.
type clock struct {
	now schemas.Time
	n   int
	q   timers
}

type timer struct {
	at schemas.Time
	n  int
	f  func()
}

type timers []*timer

func (q timers) Len() int { return len(q) }
func (q timers) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].n < q[j].n
}
func (q timers) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *timers) Push(x any)   { *q = append(*q, x.(*timer)) }
func (q *timers) Pop() any {
	old := *q
	t := old[len(old)-1]
	*q = old[:len(old)-1]
	return t
}

func (c *clock) later(at schemas.Time, f func()) (stop func()) {
	if at < c.now {
		panic(fmt.Sprintf("a timer for %d, it is %d", at, c.now))
	}
	c.n++
	t := &timer{at, c.n, f}
	heap.Push(&c.q, t)
	return func() { t.f = nil }
}

// next runs the next timer; false when there is none.
func (c *clock) next() bool {
	for len(c.q) > 0 {
		t := heap.Pop(&c.q).(*timer)
		if t.f == nil {
			continue
		}
		c.now = t.at
		t.f()
		return true
	}
	return false
}

// runUntil runs the timers up to a time.
func (c *clock) runUntil(at schemas.Time) {
	for len(c.q) > 0 && c.q[0].at <= at {
		c.next()
	}
	c.now = max(c.now, at)
}

// fakeMemory is a host memory that holds what it was given.
type fakeMemory struct {
	have   map[string]int // by turn
	handed map[string]int
	far    bool
	uses   int
	full   bool
}

func (m *fakeMemory) Have(r *schemas.Ready) (int, bool)     { return m.have[r.Turn], m.far }
func (m *fakeMemory) Handed(r *schemas.Ready, _ string) int { return m.handed[r.Turn] }
func (m *fakeMemory) Use(schemas.Time, *schemas.Ready)      { m.uses++ }
func (m *fakeMemory) Seal(_ schemas.Time, r *schemas.Ready, n int) int {
	if m.full {
		return n - m.have[r.Turn]
	}
	m.have[r.Turn] = max(m.have[r.Turn], n)
	return 0
}

// rig is a device with its surroundings; it answers one operation at a time.
type rig struct {
	t     testing.TB
	cal   *calib.Calibration
	clock *clock
	mem   *fakeMemory
	links *simgpu.Links
	d     *simgpu.Device
	out   map[string]int // true length of answers, by turn; 10 by default
	id    uint64

	delivered int // tokens that second attempts are told of
}

func newRig(t testing.TB, cal *calib.Calibration, slots int, change func(*simgpu.Config)) *rig {
	r := &rig{t: t, cal: cal, clock: &clock{now: 1000 * ms}, mem: &fakeMemory{have: map[string]int{}, handed: map[string]int{}}, out: map[string]int{}}
	r.links = simgpu.NewLinks(cal, r.clock.later)
	cfg := simgpu.Config{
		Cal: cal, Slots: slots, Context: 1 << 20, Memory: r.mem, Links: r.links, Later: r.clock.later,
		Output: func(x *schemas.Ready) int {
			if n := r.out[x.Turn]; n > 0 {
				return n
			}
			return 10
		},
		Delivered: func(*schemas.DeliveredOp) schemas.DeliveredDone {
			return schemas.DeliveredDone{Tokens: zeros[:r.delivered]}
		},
	}
	if change != nil {
		change(&cfg)
	}
	r.d = simgpu.New(cfg)
	return r
}

var zeros = make(schemas.Tokens, 1<<19)

// turn is a turn of its own session; the context of the turns before in it is known up
// to the first known blocks.
func turn(session, id string, n, maxNew, known int) *schemas.Ready {
	return &schemas.Ready{
		Tenant: "t", Session: session, Turn: id, Branch: "main", Job: schemas.JobID("t", session, id), MaxNew: maxNew,
		Prompt: schemas.Prompt{N: n, TailFrom: known * 64, Tail: zeros[:n-known*64]},
	}
}

// begin starts an operation; the completion is in the result once it has come.
func (r *rig) begin(op *schemas.Op) (id uint64, got **schemas.OpDone) {
	r.id++
	op.ID = r.id
	var done *schemas.OpDone
	r.d.Start(r.clock.now, op, func(d schemas.OpDone) {
		if done != nil || d.ID != op.ID {
			r.t.Fatalf("operation %d completes as %d, again %v", op.ID, d.ID, done != nil)
		}
		done = &d
	})
	if done != nil {
		r.t.Fatalf("operation %d completes while it is started", op.ID)
	}
	return op.ID, &done
}

// do runs an operation to its end.
func (r *rig) do(op *schemas.Op) *schemas.OpDone {
	_, got := r.begin(op)
	for *got == nil {
		if !r.clock.next() {
			r.t.Fatalf("operation %d never ends", op.ID)
		}
	}
	return *got
}

func (r *rig) ok(op *schemas.Op) *schemas.OpDone {
	d := r.do(op)
	if d.Err != "" {
		r.t.Fatalf("operation %d: %s", d.ID, d.Err)
	}
	return d
}

func (r *rig) open(seq int32, stage schemas.Stage, x *schemas.Ready) *schemas.OpenDone {
	return r.ok(&schemas.Op{Open: &schemas.OpenOp{Seq: seq, Stage: stage, Attempt: 1, Ready: x}}).Open
}

func (r *rig) bring(x *schemas.Ready, from string) *schemas.OpDone {
	return r.ok(&schemas.Op{Bring: &schemas.BringOp{Ready: x, From: from}})
}

func (r *rig) prefill(seqs ...int32) *schemas.OpDone {
	return r.ok(&schemas.Op{Prefill: &schemas.PrefillOp{Seqs: seqs, MaxBlocks: 1 << 20, MaxNS: 1}})
}

func (r *rig) decode(steps int, seqs ...int32) *schemas.OpDone {
	return r.ok(&schemas.Op{Decode: &schemas.DecodeOp{Seqs: seqs, MaxSteps: steps, MaxNS: 1 << 60}})
}

func (r *rig) drop(seq int32) {
	r.d.Start(r.clock.now, &schemas.Op{Drop: &schemas.DropOp{Seq: seq}}, func(schemas.OpDone) { r.t.Fatalf("a drop completes") })
}
