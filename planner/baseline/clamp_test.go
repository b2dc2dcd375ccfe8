package baseline

import (
	"testing"

	"pgregory.net/rapid"
)

// The vectors were obtained by running the rule at the commit that doc.go names.
func TestClampVectors(t *testing.T) {
	tests := []struct{ p, d, pGPU, dGPU, min, max, minP, minD, wantP, wantD int }{
		{5, 4, 1, 1, -1, 8, 1, 1, 4, 4},
		{4, 5, 1, 1, -1, 8, 1, 1, 3, 5},
		{5, 5, 1, 1, -1, 8, 1, 1, 4, 4},
		{5, 3, 1, 1, 8, 8, 1, 1, 5, 3},
		{3, 4, 1, 1, 8, 8, 1, 1, 3, 4}, // the tolerance accepts 7
		{2, 3, 1, 1, 8, 8, 1, 1, 4, 4},
		{6, 4, 2, 4, -1, 24, 1, 1, 5, 3},
		{7, 5, 1, 4, -1, 24, 1, 1, 6, 4},
		{10, 2, 1, 1, -1, 8, 1, 3, 5, 3},
		{1, 1, 8, 8, -1, 8, 1, 1, 0, 0}, // nothing fits
		{19, 18, 1, 1, 36, 36, 1, 1, 18, 18},
		{18, 19, 1, 1, 36, 36, 1, 1, 17, 19},
		// Both bounds off, and workers without accelerators: left alone.
		{7, 9, 1, 1, -1, -1, 1, 1, 7, 9},
		{7, 9, 0, 1, -1, 8, 1, 1, 7, 9},
		// Nothing there at all: half the floor goes to prefill.
		{0, 0, 1, 1, 8, 8, 1, 1, 4, 4},
	}
	for _, tt := range tests {
		b := Budget{PrefillGPUs: tt.pGPU, DecodeGPUs: tt.dGPU, Min: tt.min, Max: tt.max, MinPrefill: tt.minP, MinDecode: tt.minD}
		if p, d := b.Clamp(tt.p, tt.d); p != tt.wantP || d != tt.wantD {
			t.Errorf("%+v.Clamp(%d, %d) = %d, %d, want %d, %d", b, tt.p, tt.d, p, d, tt.wantP, tt.wantD)
		}
	}
}

// With the budget full, a wish for one more prefill worker alone is never granted;
// one for a decode worker is, unless prefill is at its floor. All splits of up to 144
// accelerators and ten worker sizes: the numbers are those that the rule gave at the
// commit that doc.go names.
func TestClampFavoursDecode(t *testing.T) {
	sizes := [][2]int{{1, 1}, {2, 2}, {4, 4}, {8, 8}, {2, 4}, {4, 2}, {4, 8}, {8, 4}, {1, 4}, {4, 1}}
	splits, more := 0, 0
	equalSplits, equalMore := 0, 0
	for _, s := range sizes {
		for total := 2; total <= 144; total++ {
			for p := 1; p*s[0] < total; p++ {
				rest := total - p*s[0]
				if rest%s[1] != 0 {
					continue
				}
				d := rest / s[1]
				b := Budget{PrefillGPUs: s[0], DecodeGPUs: s[1], Min: total, Max: total, MinPrefill: 1, MinDecode: 1}
				for _, b.Min = range []int{total, -1} {
					if np, _ := b.Clamp(p+1, d); np > p {
						more++
					}
				}
				splits++
				if s == [2]int{1, 1} {
					equalSplits++
					if _, nd := b.Clamp(p, d+1); nd > d {
						equalMore++
					}
				}
			}
		}
	}
	t.Logf("%d splits; one more prefill worker granted in %d; equal sizes: one more decode worker in %d of %d", splits, more, equalMore, equalSplits)
	if more != 0 || splits != 21_807 {
		t.Errorf("one more prefill worker was granted %d times in %d splits, want 0 in 21807", more, splits)
	}
	if equalSplits != 10_296 || equalMore != 10_153 {
		t.Errorf("one more decode worker was granted in %d of %d splits of equal workers, want 10153 of 10296", equalMore, equalSplits)
	}
}

func TestClampProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		small := rapid.IntRange(1, 8)
		b := Budget{
			PrefillGPUs: small.Draw(rt, "p_gpu"), DecodeGPUs: small.Draw(rt, "d_gpu"),
			Min: rapid.IntRange(-1, 200).Draw(rt, "min"), Max: rapid.IntRange(-1, 200).Draw(rt, "max"),
			MinPrefill: rapid.IntRange(0, 3).Draw(rt, "min_p"), MinDecode: rapid.IntRange(0, 3).Draw(rt, "min_d"),
		}
		p, d := rapid.IntRange(0, 60).Draw(rt, "p"), rapid.IntRange(0, 60).Draw(rt, "d")
		np, nd := b.Clamp(p, d)
		gpus := func(p, d int) int { return p*b.PrefillGPUs + d*b.DecodeGPUs }
		if b.Max >= 0 && gpus(np, nd) > b.Max {
			rt.Fatalf("%+v: (%d, %d) became (%d, %d), %d accelerators of %d", b, p, d, np, nd, gpus(np, nd), b.Max)
		}
		infeasible := b.Max >= 0 && gpus(b.MinPrefill, b.MinDecode) > b.Max
		if (np != p || nd != d) && !infeasible && (np < b.MinPrefill || nd < b.MinDecode) {
			rt.Fatalf("%+v: (%d, %d) became (%d, %d), below the floor", b, p, d, np, nd)
		}
		if b.Max >= 0 && gpus(p, d) <= b.Max && b.Min < 0 && (np != p || nd != d) {
			rt.Fatalf("%+v: (%d, %d) fits and became (%d, %d)", b, p, d, np, nd)
		}
		if p2, d2 := b.Clamp(np, nd); b.Max >= 0 && b.Min < 0 && (p2 != np || d2 != nd) {
			rt.Fatalf("%+v: clamped twice, (%d, %d) became (%d, %d)", b, np, nd, p2, d2)
		}
	})
}
