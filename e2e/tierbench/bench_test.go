package tierbench

import (
	"slices"
	"testing"
)

// TestRun: every figure is measured and makes sense. How fast the machine is at the
// time is not tested.
func TestRun(t *testing.T) {
	figures, err := Run(t.Context(), Options{Short: true, Log: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range figures {
		got = append(got, f.Name)
		if f.Value <= 0 || f.Unit == "" || f.Bar == 0 || f.Note == "" {
			t.Errorf("%+v", f)
		}
		t.Logf("%+v", f)
	}
	if !slices.Equal(got, names) {
		t.Errorf("figures %v, want %v", got, names)
	}
}

func TestMedians(t *testing.T) {
	for _, tc := range []struct {
		in             []float64
		median, spread float64
	}{
		{nil, 0, 0},
		{[]float64{3}, 3, 0},
		{[]float64{5, 1, 3}, 3, 2.0 / 3},
		{[]float64{2, 2, 2, 9}, 2, 0},
	} {
		if m, s := median(tc.in), spread(tc.in); m != tc.median || s != tc.spread {
			t.Errorf("%v: median %v, spread %v", tc.in, m, s)
		}
	}
}
