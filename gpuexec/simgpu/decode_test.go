package simgpu_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/weir-dev/weir/schemas"
)

// TestInterrupt: however often and whenever a decode is interrupted, every row gets the
// tokens that it gets step by step, in the same time, and ends at its true length.
func TestInterrupt(t *testing.T) {
	cal := small(t, 1<<22)
	rapid.Check(t, func(rt *rapid.T) {
		rows := rapid.IntRange(1, 12).Draw(rt, "rows")
		whole, steps := newRig(t, cal, rows, nil), newRig(t, cal, rows, nil)
		begun := whole.clock.now
		for i := range int32(rows) {
			n := rapid.IntRange(1, 64).Draw(rt, "prompt")
			length := rapid.IntRange(1, 400).Draw(rt, "answer")
			most := length + rapid.IntRange(0, 50).Draw(rt, "max")
			for _, r := range []*rig{whole, steps} {
				x := turn("s"+fmt.Sprint(i), "u"+fmt.Sprint(i), n, most, 0)
				r.out[x.Turn] = length
				r.open(i, schemas.StageDecode, x)
			}
		}
		follow := func(r *rig, next func([]int32) *schemas.OpDone) (log string, ops int) {
			var live []int32
			for i := range int32(rows) {
				live = append(live, i)
			}
			got := make([]int, rows)
			for len(live) > 0 {
				d := next(live)
				ops++
				left := live[:0:0]
				for k, seq := range live {
					row := d.Decode.Rows[k]
					if row.First != got[seq] || row.Err != "" {
						rt.Fatalf("row %d goes on at %d after %d tokens: %+v", seq, row.First, got[seq], row)
					}
					got[seq] += len(row.Tokens)
					if row.Finish == "" {
						left = append(left, seq)
						continue
					}
					log += fmt.Sprintf("%d: %d %s\n", seq, got[seq], row.Finish)
				}
				live = left
			}
			return log, ops
		}
		interrupted := func(live []int32) *schemas.OpDone {
			op := &schemas.Op{Decode: &schemas.DecodeOp{Seqs: live, MaxSteps: 1 << 30, MaxNS: 1 << 60}}
			id, got := whole.begin(op)
			if rapid.Bool().Draw(rt, "interrupt") {
				at := whole.clock.now + schemas.Time(rapid.Int64Range(0, int64(500*ms)).Draw(rt, "after"))
				whole.clock.later(at, func() { // perhaps long after it has ended
					whole.d.Start(at, &schemas.Op{Interrupt: &schemas.InterruptOp{Op: id}}, nil)
				})
			}
			for *got == nil {
				whole.clock.next()
			}
			return *got
		}
		a, opsA := follow(whole, interrupted)
		b, opsB := follow(steps, func(live []int32) *schemas.OpDone { return steps.decode(1, live...) })
		if a != b {
			rt.Fatalf("in runs:\n%sstep by step:\n%s", a, b)
		}
		// An operation's time is rounded to a nanosecond.
		if off := whole.clock.now - steps.clock.now; off > schemas.Time(opsA+opsB) || -off > schemas.Time(opsA+opsB) {
			rt.Fatalf("%d ns in runs, %d step by step", whole.clock.now-begun, steps.clock.now-begun)
		}
	})
}

// TestInterruptBoundary: a run that is interrupted ends with the step under way.
func TestInterruptBoundary(t *testing.T) {
	r := newRig(t, small(t, 1<<20), 2, nil)
	x := turn("s", "u", 10, 1000, 0)
	r.out[x.Turn] = 1000
	r.open(0, schemas.StageDecode, x)
	r.decode(1, 0)
	step := r.decode(1, 0).TookNS
	at := r.clock.now
	id, got := r.begin(&schemas.Op{Decode: &schemas.DecodeOp{Seqs: []int32{0}, MaxSteps: 1 << 30, MaxNS: 1 << 60}})
	r.clock.runUntil(at + schemas.Time(step)*5/2)
	for range 3 { // repeats change nothing
		r.d.Start(r.clock.now, &schemas.Op{Interrupt: &schemas.InterruptOp{Op: id}}, nil)
	}
	r.d.Start(r.clock.now, &schemas.Op{Interrupt: &schemas.InterruptOp{Op: id - 1}}, nil) // long over
	for *got == nil {
		r.clock.next()
	}
	if d := *got; d.Decode.Steps != 3 || d.TookNS < 3*step || d.TookNS > 3*step+step/100 {
		t.Errorf("%d steps in %d ns, a step takes %d", d.Decode.Steps, d.TookNS, step)
	}
}

// TestAccepted: 2.99 tokens per step on average, and the first one alone.
func TestAccepted(t *testing.T) {
	r := newRig(t, small(t, 1<<20), 1, nil)
	x := turn("s", "u", 100, 1000, 0)
	r.out[x.Turn] = 1000
	r.mem.have[x.Turn] = 1
	r.bring(x, "")
	r.open(0, schemas.StageDecode, x)
	var counts []int
	for _, steps := range []int{1, 1, 1, 98, 1} {
		counts = append(counts, len(r.decode(steps, 0).Decode.Rows[0].Tokens))
	}
	if got := fmt.Sprint(counts); got != "[1 2 3 294 2]" {
		t.Errorf("tokens %s", got)
	}
}

// TestBounds: a run ends by its time, by its steps, and before the engine is full; a row
// alone that has no room fails.
func TestBounds(t *testing.T) {
	r := newRig(t, small(t, 10_000), 2, nil)
	for i, s := range []string{"a", "b"} {
		x := turn(s, "u"+s, 4000, 20_000, 0)
		r.out[x.Turn], r.mem.have[x.Turn] = 20_000, 62
		r.bring(x, "")
		r.open(int32(i), schemas.StageDecode, x)
	}
	r.decode(1, 0, 1)
	d := r.ok(&schemas.Op{Decode: &schemas.DecodeOp{Seqs: []int32{0, 1}, MaxSteps: 1 << 30, MaxNS: int64(200 * ms)}})
	if d.TookNS > int64(200*ms) || d.TookNS < int64(150*ms) {
		t.Errorf("%d ns of 200 ms", d.TookNS)
	}
	total := 8000
	for d.Decode.Steps > 0 {
		d = r.ok(&schemas.Op{Decode: &schemas.DecodeOp{Seqs: []int32{0, 1}, MaxSteps: 1 << 30, MaxNS: 1 << 60}})
	}
	for i, row := range d.Decode.Rows {
		total += row.First
		if (row.Err != "") != (i == 1) || i == 1 && row.Code != schemas.CodeBusy {
			t.Errorf("row %d: %+v", i, row)
		}
	}
	if total > 10_000 || total < 9_990 {
		t.Errorf("%d tokens of 10,000 before it is full", total)
	}
}

// TestSecondAttempt: delivered tokens are not sent again. Those whose blocks are there are
// not computed again, and with all whole blocks what stands behind them has come too.
func TestSecondAttempt(t *testing.T) {
	for _, c := range []struct{ have, computed int }{{1, 300}, {2, 300 - (128 - 100 + 1)}, {3, 300 - 100}} {
		r := newRig(t, small(t, 1<<20), 1, nil)
		x := turn("s", "u", 100, 500, 0)
		r.out[x.Turn], r.mem.have[x.Turn] = 300, c.have
		r.bring(x, "")
		o := r.ok(&schemas.Op{Open: &schemas.OpenOp{Stage: schemas.StageDecode, Attempt: 2, Ready: x, Delivered: make(schemas.Tokens, 100)}})
		if o.Open.Missing != 0 || o.Open.Cached != min(100, c.have*64) {
			t.Errorf("%+v", o.Open)
		}
		got, steps, first := 0, 0, -1
		for {
			d := r.decode(7, 0)
			steps += d.Decode.Steps
			if row := &d.Decode.Rows[0]; first < 0 && len(row.Tokens) > 0 {
				first = row.First
			}
			got += len(d.Decode.Rows[0].Tokens)
			if d.Decode.Rows[0].Finish != "" {
				break
			}
		}
		want := (c.computed*100 + 298) / 299
		if first != 100 || got != 200 || steps < want-1 || steps > want+1 {
			t.Errorf("have %d: %d tokens from %d on in %d steps, want about %d", c.have, got, first, steps, want)
		}
	}
}
