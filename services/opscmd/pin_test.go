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

// TestRoleTable: what a report says of health and the last role change is shown, and no
// line is wider than a terminal, whatever others wrote into it.
func TestRoleTable(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	long := strings.Repeat("a split is predicted to do more\n\t", 20)
	flip := &schemas.Flip{From: schemas.RolePrefill, To: schemas.RoleDecode, AtNS: now.Add(-time.Minute).UnixNano(), ReturnNS: 1e6, HandNS: 120e6, VerifyNS: 2e6}
	back := *flip
	back.Back = "the engine does not answer"
	var out strings.Builder
	err := printRoles(&out, []row{
		{Executor: "a", Assigned: schemas.RoleDecode, Role: schemas.RoleDecode, Size: 4, Node: "n1", Pinned: true, Unfit: "GPU-1: XID 79", By: "weir roles"},
		{Executor: "b", Assigned: schemas.RoleDecode, Absorb: schemas.SizeL, Role: schemas.RolePrefill, Epoch: 12, InForce: 11, Problem: "it stays", Flip: &back},
		{Executor: strings.Repeat("long", 16), Node: strings.Repeat("node", 16), Assigned: schemas.RoleStandby, Epoch: 1 << 40, InForce: 1 << 39, Role: schemas.RoleDraining, By: long, Reason: long, Flip: flip, Unfit: long, AgeMS: 1e6},
	}, now)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	want := [][]string{
		{"EXECUTOR", "ROLE"},
		{"n1", " 4 ", "decode, pinned", " S "},
		{"unfit: GPU-1: XID 79"},
		{"prefill>decode", " 11 ", " L ", "not to decode, 1m0s ago", " - "},
		{"problem: it stays"},
		{"its last role change was rolled back: the engine does not answer"},
		{"gone 16m40s ", "…"},
		{"unfit: a split is", "…"},
	}
	if len(lines) != len(want) {
		t.Fatalf("%d lines, want %d:\n%s", len(lines), len(want), out.String())
	}
	for i, line := range lines {
		if n := len([]rune(line)); n > tableWidth {
			t.Errorf("line %d has %d columns: %s", i, n, line)
		}
		for _, w := range want[i] {
			if !strings.Contains(line, w) {
				t.Errorf("line %d does not say %q: %s", i, w, line)
			}
		}
	}
	out.Reset()
	usual := row{Executor: "p0", Node: "n0", Size: 4, Assigned: schemas.RoleDecode, Role: schemas.RoleDecode, Epoch: 1024, InForce: 1024, Running: 120, Flip: flip, By: "planner", Reason: "4:5 is predicted to do 7.43 of work per second"}
	if err := printRoles(&out, []row{usual}, now); err != nil || !strings.Contains(out.String(), "prefill, 123 ms, 1m0s ago") || !strings.Contains(out.String(), "planner  4:5 is predicted") {
		t.Errorf("%v\n%s", err, out.String())
	}
}
