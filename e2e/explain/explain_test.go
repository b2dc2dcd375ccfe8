package explain

import "testing"

// TestCauses: every planted cause is named, with the message and the byte where the
// text decides.
func TestCauses(t *testing.T) {
	right, total, details, err := Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range details {
		if d.Problem != "" {
			t.Errorf("%s: %s", d.Cause, d.Problem)
		}
	}
	t.Logf("%d of %d causes are explained right", right, total)
	if total != 14 {
		t.Errorf("%d cases, want 14", total)
	}
}
