package schemas_test

import (
	"testing"

	"github.com/weir-dev/weir/schemas"
)

func TestRoleTakes(t *testing.T) {
	tests := []struct {
		role            schemas.Role
		prefill, decode bool
	}{
		{schemas.RolePrefill, true, false},
		{schemas.RoleDecode, false, true},
		{schemas.RoleMixed, true, true},
		{schemas.RoleDraining, false, false},
		{schemas.RoleStandby, false, false},
		{"unheard-of", false, false},
	}
	for _, tt := range tests {
		if p, d := tt.role.Takes(schemas.StagePrefill), tt.role.Takes(schemas.StageDecode); p != tt.prefill || d != tt.decode {
			t.Errorf("%s takes prefill %t, decode %t", tt.role, p, d)
		}
		if tt.role.Takes(schemas.StageAgent) || tt.role.Takes(schemas.StageReady) {
			t.Errorf("%s takes a stage that no executor runs", tt.role)
		}
	}
}

func TestClassOf(t *testing.T) {
	for n, want := range map[int]schemas.SizeClass{
		0: schemas.SizeS, 512: schemas.SizeS, 513: schemas.SizeM, 8192: schemas.SizeM, 8193: schemas.SizeL, 1 << 30: schemas.SizeL,
	} {
		if got := schemas.ClassOf(n); got != want {
			t.Errorf("ClassOf(%d) = %s, want %s", n, got, want)
		}
	}
}

// TestAssignmentAllows is invariant 6: a job starts only if the assignment in
// force allows its phase and, for prefill, its size class.
func TestAssignmentAllows(t *testing.T) {
	tests := map[string]struct {
		a        schemas.Assignment
		stage    schemas.Stage
		uncached int
		want     bool
	}{
		"prefill, all classes":        {schemas.Assignment{Role: schemas.RolePrefill}, schemas.StagePrefill, 1 << 20, true},
		"prefill does not decode":     {schemas.Assignment{Role: schemas.RolePrefill}, schemas.StageDecode, 0, false},
		"class of the job":            {schemas.Assignment{Role: schemas.RolePrefill, Classes: []schemas.SizeClass{schemas.SizeS}}, schemas.StagePrefill, 512, true},
		"other class":                 {schemas.Assignment{Role: schemas.RolePrefill, Classes: []schemas.SizeClass{schemas.SizeS}}, schemas.StagePrefill, 513, false},
		"classes do not bind decode":  {schemas.Assignment{Role: schemas.RoleMixed, Classes: []schemas.SizeClass{schemas.SizeS}}, schemas.StageDecode, 9000, true},
		"standby takes nothing":       {schemas.Assignment{Role: schemas.RoleStandby}, schemas.StageDecode, 0, false},
		"draining takes nothing more": {schemas.Assignment{Role: schemas.RoleDraining}, schemas.StagePrefill, 0, false},
	}
	for name, tt := range tests {
		if got := tt.a.Allows(tt.stage, tt.uncached); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
