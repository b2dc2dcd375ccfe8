package simgpu_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weir-dev/weir/gpuexec/simgpu"
	"github.com/weir-dev/weir/schemas"
)

// TestLinks: a transfer takes latency and bytes over the rate; four GPUs carry four of
// them side by side, a fifth shares one of their links, and the whole goes on at full rate.
func TestLinks(t *testing.T) {
	for _, c := range []struct {
		bytes []int64
		ends  string // milliseconds
	}{
		{[]int64{10e6}, "15.0"},
		{[]int64{10e6, 10e6, 10e6, 10e6}, "15.0 15.0 15.0 15.0"},
		{[]int64{10e6, 10e6, 10e6, 10e6, 5e6}, "20.0 15.0 15.0 15.0 15.0"},
		{[]int64{0}, "5.0"},
	} {
		k := &clock{now: 7 * ms}
		l := simgpu.NewLinks(small(t, 1<<20), k.later)
		ends := make([]string, len(c.bytes))
		for i, n := range c.bytes {
			if err := l.Send(k.now, simgpu.LinkLocal, n, func(at schemas.Time) { ends[i] = fmt.Sprintf("%.1f", float64(at-7*ms)/1e6) }); err != nil {
				t.Fatal(err)
			}
		}
		for k.next() {
		}
		if got := strings.Join(ends, " "); got != c.ends {
			t.Errorf("%v end after %s ms, want %s", c.bytes, got, c.ends)
		}
	}
	if err := simgpu.NewLinks(small(t, 1), nil).Send(0, "tape", 1, nil); err == nil {
		t.Error("an unknown link is no error")
	}
}

// TestLinkShare: on one GPU's link no byte gets lost or is early, whatever comes when: a
// transfer ends no sooner than alone, and the last one no later than all in a row.
func TestLinkShare(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cal := small(t, 1<<20)
		cal.Layout.GPUs = 1
		k := &clock{}
		l := simgpu.NewLinks(cal, k.later)
		n := rapid.IntRange(1, 20).Draw(rt, "transfers")
		total, last, ended := int64(0), schemas.Time(0), 0
		busyUntil := schemas.Time(0)
		for range n {
			at := schemas.Time(rapid.Int64Range(0, 30_000_000).Draw(rt, "at"))
			bytes := rapid.Int64Range(0, 20_000_000).Draw(rt, "bytes")
			total += bytes
			busyUntil = max(busyUntil, at) // a bound, not a plan: it may idle before
			k.later(at, func() {
				_ = l.Send(at, simgpu.LinkLocal, bytes, func(end schemas.Time) {
					ended++
					last = max(last, end)
					if alone := at + schemas.Time(bytes) + 5*ms; end < alone {
						rt.Fatalf("%d bytes from %d on are there at %d", bytes, at, end)
					}
				})
			})
		}
		for k.next() {
		}
		if most := busyUntil + schemas.Time(total) + 5*ms + schemas.Time(n); ended != n || last > most || last < schemas.Time(total)+5*ms {
			rt.Fatalf("%d of %d transfers, the last one at %d, at most %d", ended, n, last, most)
		}
		if l.Bytes(simgpu.LinkLocal) != total {
			rt.Fatalf("%d bytes counted of %d", l.Bytes(simgpu.LinkLocal), total)
		}
	})
}

// TestKept: the context of a turn that is over serves the next turn of its session, as
// far as its prompt repeats it, and goes when others need the room, the oldest first.
func TestKept(t *testing.T) {
	r := newRig(t, small(t, 20_000), 4, nil)
	run := func(seq int32, x *schemas.Ready) *schemas.OpenDone {
		o := r.open(seq, schemas.StageDecode, x)
		for o.Missing > 0 && r.prefill(seq).Prefill.Rows[0].Missing > 0 {
		}
		for r.decode(1<<30, seq).Decode.Rows[0].Finish == "" {
		}
		r.drop(seq)
		return o
	}
	r.out["a1"] = 100
	run(0, turn("a", "a1", 1000, 200, 0)) // leaves (1000+99)/64 = 17 blocks
	if n := r.d.Holds(turn("a", "a2", 2000, 10, 17)); n != 17 {
		t.Errorf("%d blocks are kept", n)
	}
	if n := r.d.Holds(turn("a", "a2", 2000, 10, 3)); n != 3 {
		t.Errorf("%d blocks serve a turn that repeats 3", n)
	}
	if o := run(0, turn("a", "a2", 2000, 10, 17)); o.Cached != 17*64 {
		t.Errorf("the next turn finds %d tokens", o.Cached)
	}
	run(0, turn("b", "b1", 5000, 10, 0))
	run(0, turn("c", "c1", 9000, 10, 0))
	if n := r.d.Holds(turn("a", "a3", 3000, 10, 31)); n != 31 {
		t.Errorf("%d blocks of a while there is room", n)
	}
	run(0, turn("d", "d1", 5000, 10, 0)) // 16,000 + 5,000: the oldest goes
	if n := r.d.Holds(turn("a", "a3", 3000, 10, 31)); n != 0 {
		t.Errorf("%d blocks of a when the room was needed", n)
	}
	if n := r.d.Holds(turn("b", "b2", 6000, 10, 78)); n != 78 {
		t.Errorf("%d blocks of b, which still has room", n)
	}
}

// TestBring: from the engine that had the turn, from this tray, from another one; as far
// as there is room; and not at all when the engine has as much itself.
func TestBring(t *testing.T) {
	r := newRig(t, small(t, 1<<20), 2, nil)
	x := turn("a", "a1", 6400+1, 10, 0)
	took := func(d *schemas.OpDone) string {
		return fmt.Sprintf("%d in %.1f ms", d.Bring.Brought, math.Round(float64(d.TookNS)/1e5)/10)
	}
	check := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	check("nothing", took(r.bring(x, "")), "0 in 0.0 ms")
	r.mem.have["a1"] = 50
	check("from here", took(r.bring(x, "")), "50 in 8.2 ms") // 50·64·1000 bytes at 1 GB/s, and 5 ms
	check("again", took(r.bring(x, "")), "0 in 0.0 ms")
	r.mem.have["a1"], r.mem.far = 100, true
	check("the rest from elsewhere", took(r.bring(x, "")), "50 in 11.4 ms")
	if r.mem.uses != 2 {
		t.Errorf("the memory was used %d times", r.mem.uses)
	}
	y := turn("b", "b1", 6400+1, 10, 0)
	r.mem.handed["b1"] = 100
	check("not asked for", took(r.bring(y, "")), "0 in 0.0 ms")
	check("handed over", took(r.bring(y, "e1")), "100 in 6.2 ms")
	if o := r.open(0, schemas.StageDecode, y); o.Cached != 6400 || o.Missing != 0 {
		t.Errorf("%+v", o)
	}
	full := newRig(t, small(t, 5000), 2, nil)
	full.mem.have["a1"] = 100
	check("as far as there is room", took(full.bring(x, "")), "78 in 10.0 ms")
}

// TestPrefix: blocks that all sessions of a class begin with are found although they
// belong to another session.
func TestPrefix(t *testing.T) {
	r := newRig(t, small(t, 1<<20), 2, func(c *simgpu.Config) {
		c.Prefix = func(*schemas.Ready) (string, int) { return "class", 8 }
	})
	x, y := turn("a", "a1", 1000, 10, 0), turn("b", "b1", 2000, 10, 0)
	r.open(0, schemas.StagePrefill, x)
	if n := r.d.Holds(y); n != 0 {
		t.Errorf("%d blocks before they are computed", n)
	}
	r.prefill(0)
	if n := r.d.Holds(y); n != 8 {
		t.Errorf("%d blocks while they are in use", n)
	}
	r.drop(0)
	if o := r.open(1, schemas.StagePrefill, y); o.Cached != 8*64 {
		t.Errorf("%+v", o)
	}
}

// TestVerify: a change of role takes the calibrated time, in each direction its own, and
// a sequence that should not be there is a problem.
func TestVerify(t *testing.T) {
	r := newRig(t, small(t, 1<<20), 2, nil)
	r.open(0, schemas.StagePrefill, turn("a", "a1", 1000, 10, 0))
	for _, c := range []struct {
		from, to schemas.Role
		open     []int32
		took     schemas.Time
		problem  bool
	}{
		{schemas.RolePrefill, schemas.RoleDecode, []int32{0}, 36 * ms, false},
		{schemas.RoleDecode, schemas.RolePrefill, []int32{0}, 757 * ms, false},
		{schemas.RoleDecode, schemas.RoleStandby, []int32{0}, 0, false},
		{schemas.RoleStandby, schemas.RoleDecode, []int32{0}, 0, false},
		{schemas.RoleStandby, schemas.RoleDecode, nil, 0, true},
		{schemas.RoleStandby, schemas.RoleDecode, []int32{0, 1}, 0, true},
	} {
		d := r.ok(&schemas.Op{Verify: &schemas.VerifyOp{Open: c.open, From: c.from, To: c.to}})
		if schemas.Time(d.TookNS) != c.took || (d.Verify.Problem != "") != c.problem {
			t.Errorf("%+v: %d ns, %q", c, d.TookNS, d.Verify.Problem)
		}
	}
}

// TestSideBySide: prompts on four ranks take one step; more share ranks up to a chunk.
func TestSideBySide(t *testing.T) {
	r := newRig(t, small(t, 1<<20), 8, nil)
	var seqs []int32
	for i := range int32(8) {
		s := string('a' + i)
		r.open(i, schemas.StagePrefill, turn(s, s+"1", 4097, 10, 0))
		seqs = append(seqs, i)
	}
	one := r.prefill(seqs[:4]...)
	for _, row := range one.Prefill.Rows {
		if row.Missing != 0 {
			t.Errorf("%+v", row)
		}
	}
	if two := r.prefill(seqs[4:]...); two.TookNS != one.TookNS {
		t.Errorf("the second four take %d ns, the first %d", two.TookNS, one.TookNS)
	}
	r = newRig(t, small(t, 1<<20), 8, nil)
	for i := range int32(8) {
		s := string('a' + i)
		r.open(i, schemas.StagePrefill, turn(s, s+"1", 6001, 10, 0)) // 93 blocks each
	}
	left := 0
	for _, row := range r.prefill(seqs...).Prefill.Rows {
		left += row.Missing
	}
	if left != 8*93-4*128 {
		t.Errorf("%d blocks are left", left)
	}
}

// TestRefusals: what an executor must not ask for is an error.
func TestRefusals(t *testing.T) {
	r := newRig(t, small(t, 5000), 2, nil)
	x := turn("a", "a1", 1000, 10, 0)
	r.open(0, schemas.StageDecode, x)
	for name, op := range map[string]*schemas.Op{
		"open twice":       {Open: &schemas.OpenOp{Ready: x}},
		"open nowhere":     {Open: &schemas.OpenOp{Ready: x, Seq: 2}},
		"open too long":    {Open: &schemas.OpenOp{Ready: turn("b", "b1", 5000, 10, 0), Seq: 1}},
		"decode too early": {Decode: &schemas.DecodeOp{Seqs: []int32{0}, MaxSteps: 1}},
		"decode nothing":   {Decode: &schemas.DecodeOp{Seqs: []int32{1}, MaxSteps: 1}},
		"prefill nothing":  {Prefill: &schemas.PrefillOp{Seqs: []int32{1}}},
		"seal nothing":     {Seal: &schemas.SealOp{Seq: 7}},
		"render":           {Render: &schemas.RenderOp{}},
	} {
		if d := r.do(op); d.Err == "" || d.Code == "" {
			t.Errorf("%s: %+v", name, d)
		}
	}
}
