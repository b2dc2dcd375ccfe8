package opscmd

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/assign"
)

// TestPin: what people set is pinned, pin and release change nothing but that, and a
// name without a role is refused.
func TestPin(t *testing.T) {
	nc, js, url := testBus(t)
	b := &bus{url: url, cell: "c0"}
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	out := &strings.Builder{}
	cmd.SetOut(out)
	if _, err := assign.Start(t.Context(), nc, "c0", "d0", schemas.RoleDecode, "test", func(*schemas.Assignment) bool { return false }); err != nil {
		t.Fatal(err)
	}
	for _, s := range []struct {
		do     func() error
		role   schemas.Role
		pinned bool
		epochs uint64 // how many it takes
		says   string
	}{
		{func() error { return b.repin(cmd, "d0", true) }, schemas.RoleDecode, true, 1, "is pinned to decode"},
		{func() error { return b.repin(cmd, "d0", true) }, schemas.RoleDecode, true, 0, "was pinned already"},
		{func() error { return b.repin(cmd, "d0", false) }, schemas.RoleDecode, false, 1, "is released"},
		{func() error { return b.setRole(cmd, "d0", "prefill", setting{force: true}) }, schemas.RolePrefill, true, 1, "weir roles release d0"},
		{func() error { return b.repin(cmd, "d0", false) }, schemas.RolePrefill, false, 1, "goes on as prefill"},
	} {
		_, before, err := assign.Read(t.Context(), js, "c0", "d0")
		if err != nil {
			t.Fatal(err)
		}
		out.Reset()
		if err := s.do(); err != nil {
			t.Fatal(err)
		}
		a, after, err := assign.Read(t.Context(), js, "c0", "d0")
		if err != nil {
			t.Fatal(err)
		}
		if a.Role != s.role || a.Pinned != s.pinned || after != before+s.epochs || !strings.Contains(out.String(), s.says) {
			t.Errorf("%+v, epoch %d after %d, says %q; want %s, pinned %v, %q", a, after, before, out, s.role, s.pinned, s.says)
		}
	}
	if err := b.repin(cmd, "d7", true); err == nil || !strings.Contains(err.Error(), `"d7"`) {
		t.Errorf("an executor without a role: %v", err)
	}
}

// TestRoleTable: what a report says of health and the last role change is shown.
func TestRoleTable(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	var out strings.Builder
	err := printRoles(&out, []row{
		{Executor: "a", Assigned: schemas.RoleDecode, Role: schemas.RoleDecode, Size: 4, Node: "n1", Pinned: true, Unfit: "GPU-1: XID 79"},
		{
			Executor: "b", Assigned: schemas.RoleDecode, Absorb: schemas.SizeL, Role: schemas.RolePrefill, Problem: "it stays",
			Flip: &schemas.Flip{From: schemas.RolePrefill, To: schemas.RoleDecode, AtNS: now.Add(-time.Minute).UnixNano(), ReturnNS: 1e6, HandNS: 120e6, VerifyNS: 2e6, Back: "why"},
		},
	}, now)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 {
		t.Fatalf("%d lines:\n%s", len(lines), out.String())
	}
	for i, want := range [][]string{1: {"n1", " 4 ", "pinned", "GPU-1: XID 79", " S "}, 2: {" L ", "it stays", "prefill>decode 123 ms (1+120+2), 1m0s ago, rolled back: why", " - "}} {
		for _, w := range want {
			if !strings.Contains(lines[i], w) {
				t.Errorf("line %d does not say %q: %s", i, w, lines[i])
			}
		}
	}
}
