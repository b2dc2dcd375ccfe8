package simgpu_test

import (
	"math"
	"testing"

	"github.com/weir-dev/weir/schemas"
)

// TestGolden: a device takes the times that stand beside the given calibrations: a full
// prefill step on all ranks, without and behind a long prefix, and a decode step.
func TestGolden(t *testing.T) {
	for i, name := range []string{glm, kimi} {
		cal := shared(t, name)
		near := func(what string, took int64, want [2]float64) {
			if got := float64(took) / 1e6; math.Abs(got-want[i]) > 0.0006 {
				t.Errorf("%s: %s takes %.3f ms, want %.3f", name, what, got, want[i])
			}
		}
		full := func(prefix int, want [2]float64) {
			r := newRig(t, cal, 4, nil)
			var seqs []int32
			for s := range int32(4) {
				x := turn(string('a'+s), "u"+string('a'+s), prefix+8192+1, 10, 0)
				r.mem.have[x.Turn] = prefix / 64
				r.bring(x, "")
				if o := r.open(s, schemas.StagePrefill, x); o.Cached != prefix || o.Missing != 128 {
					t.Fatalf("opened %+v", o)
				}
				seqs = append(seqs, s)
			}
			d := r.prefill(seqs...)
			near("a full step", d.TookNS, want)
			for _, row := range d.Prefill.Rows {
				if row.Computed != 8192 || row.Missing != 0 {
					t.Errorf("%+v", row)
				}
			}
		}
		full(0, [2]float64{553.118, 396.025})
		full(131072, [2]float64{713.106, 1045.639})

		// Rows whose tails are computed have one token more than their prompt.
		r := newRig(t, cal, 64, nil)
		var seqs []int32
		for s := range int32(64) {
			x := turn(string('A'+s), "v"+string('A'+s), 99_999, 30_000, 0)
			r.mem.have[x.Turn], r.out[x.Turn] = 1562, 20_000
			r.bring(x, "")
			r.open(s, schemas.StageDecode, x)
			seqs = append(seqs, s)
		}
		r.decode(1, seqs...)
		near("a decode step of 64 rows over 100,000 tokens", r.decode(1, seqs...).TookNS, [2]float64{32.343, 41.632})
	}
}

// TestSmallStep: below the closed form's range a step is taken from the table.
func TestSmallStep(t *testing.T) {
	r := newRig(t, shared(t, glm), 1, nil)
	r.open(0, schemas.StagePrefill, turn("s", "u", 129, 10, 0))
	if d := r.prefill(0); math.Abs(float64(d.TookNS)/1e6-79.7) > 1e-6 {
		t.Errorf("128 tokens take %d ns", d.TookNS)
	}
}

// TestOutOfRange: what the calibration does not cover is an error, unless it says that it
// may be extended.
func TestOutOfRange(t *testing.T) {
	cal := shared(t, kimi)
	for _, extend := range []bool{false, true} {
		cal.Extrapolate = extend
		r := newRig(t, cal, 1, nil)
		x := turn("s", "u", 300_000, 10, 0)
		r.mem.have[x.Turn] = 4200
		r.bring(x, "")
		r.open(0, schemas.StagePrefill, x)
		d := r.do(&schemas.Op{Prefill: &schemas.PrefillOp{Seqs: []int32{0}, MaxBlocks: 1, MaxNS: 1}})
		if (d.Err == "") != extend || extend && d.Prefill.Rows[0].Computed == 0 {
			t.Errorf("extrapolate %v: %+v", extend, d)
		}
	}
}
