package simgpu_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weir-dev/weir/gpuexec/simgpu"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/schemas/calib"
)

// TestPace: another engine's operations take what the device takes for the same: prompts
// side by side a step, a step's tokens a step, and a tail what it adds to one.
func TestPace(t *testing.T) {
	cal := small(t, 1<<22)
	p := simgpu.NewPace(cal)
	took := func(op *schemas.Op, d schemas.OpDone) time.Duration {
		t.Helper()
		dt, err := p.Took(op, &d)
		if err != nil {
			t.Fatal(err)
		}
		return dt
	}
	for i := range int32(5) {
		s := fmt.Sprint(i)
		took(&schemas.Op{Open: &schemas.OpenOp{Seq: i, Ready: turn(s, s, 6401, 10, 0)}}, schemas.OpDone{Open: &schemas.OpenDone{Missing: 100}})
	}
	op := &schemas.PrefillOp{Seqs: []int32{0, 1, 2, 3, 4}}
	if got := fmt.Sprint(p.Blocks(op)); got != "[100 100 100 100 28]" {
		t.Errorf("blocks of the first step: %s", got)
	}
	rows := []schemas.PrefillRow{{Computed: 6400}, {Computed: 6400}, {Computed: 6400}, {Computed: 6400}, {Computed: 28 * 64, Missing: 72}}
	want, err := cal.PrefillStep([]calib.Chunk{{Tokens: 6400}, {Tokens: 28 * 64}}, []calib.Chunk{{Tokens: 6400}}, []calib.Chunk{{Tokens: 6400}}, []calib.Chunk{{Tokens: 6400}})
	if err != nil {
		t.Fatal(err)
	}
	if got := took(&schemas.Op{Prefill: op}, schemas.OpDone{Prefill: &schemas.PrefillDone{Rows: rows}}); got != want {
		t.Errorf("a step takes %s, want %s", got, want)
	}
	if p.Missing(4) != 72 || p.Missing(0) != 0 {
		t.Errorf("%d and %d blocks are missing", p.Missing(4), p.Missing(0))
	}
	one := schemas.OpDone{Decode: &schemas.DecodeDone{Rows: make([]schemas.DecodeRow, 1)}}
	first := took(&schemas.Op{Decode: &schemas.DecodeOp{Seqs: []int32{0}}}, one)
	second := took(&schemas.Op{Decode: &schemas.DecodeOp{Seqs: []int32{1}}}, one)
	if first < 20*time.Millisecond || second > first/2 {
		t.Errorf("the first tail alone takes %s, the second beside it %s", first, second)
	}
	step, err := cal.DecodeStep(2, 2*6401+8)
	if err != nil {
		t.Fatal(err)
	}
	two := schemas.OpDone{Decode: &schemas.DecodeDone{Steps: 8, Rows: make([]schemas.DecodeRow, 2)}}
	got := took(&schemas.Op{Decode: &schemas.DecodeOp{Seqs: []int32{0, 1}, MaxSteps: 8}}, two)
	if want := time.Duration(float64(step) * 8 / 2.99); got < want-time.Microsecond || got > want+time.Microsecond {
		t.Errorf("8 tokens of two rows take %s, want %s", got, want)
	}
	if got := took(&schemas.Op{Verify: &schemas.VerifyOp{From: schemas.RolePrefill, To: schemas.RoleDecode}}, schemas.OpDone{}); got != 36*time.Millisecond {
		t.Errorf("a change of role takes %s", got)
	}
	took(&schemas.Op{Drop: &schemas.DropOp{Seq: 4}}, schemas.OpDone{})
	if p.Missing(4) != 0 {
		t.Error("a dropped sequence still has a prompt")
	}
	if got := p.Brings(&schemas.BringOp{Ready: turn("a", "a", 6401, 10, 100)}); got != 5*time.Millisecond+6400*time.Microsecond {
		t.Errorf("100 blocks from the host take %s", got)
	}
	if got := p.Brings(&schemas.BringOp{From: "e1", Ready: turn("a", "a", 6401, 10, 0)}); got != 3*time.Millisecond+3200*time.Microsecond {
		t.Errorf("100 blocks from another engine take %s", got)
	}
}

// TestRoundNumbers: the built-in calibration is one.
func TestRoundNumbers(t *testing.T) {
	c, err := calib.Parse(simgpu.RoundNumbers())
	if err != nil {
		t.Fatal(err)
	}
	if d := simgpu.ShortestStep(c); d < 9*time.Millisecond || d > 11*time.Millisecond {
		t.Errorf("the shortest step takes %s", d)
	}
}
