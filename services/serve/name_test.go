package serve

import (
	"errors"
	"strings"
	"testing"

	"github.com/weir-dev/weir/schemas"
)

func TestName(t *testing.T) {
	for _, c := range []struct {
		name, id, target, want string
		bad                    bool
	}{
		{"an id stays", "d7", "executor", "d7", false},
		{"a bad id is refused", "d.7", "executor", "", true},
		{"control needs none", "", "router", "", false},
	} {
		o := Options{ID: c.id, Targets: []string{c.target}}
		err := o.name()
		if c.bad != errors.Is(err, ErrUsage) {
			t.Errorf("%s: error %v", c.name, err)
		}
		if err == nil && o.ID != c.want {
			t.Errorf("%s: id %q, want %q", c.name, o.ID, c.want)
		}
	}
	o := Options{Targets: []string{"executor"}}
	if err := o.name(); err != nil || !schemas.ValidID(o.ID) {
		t.Errorf("an executor without an id got %q, %v", o.ID, err)
	}
}

func TestHostID(t *testing.T) {
	for in, want := range map[string]string{"3f2a9c71be04": "3f2a9c71be04", "gpu-3.rack-1": "gpu-3-rack-1"} {
		if got := hostID(in); got != want {
			t.Errorf("%s gives %s, want %s", in, got, want)
		}
	}
	if got := hostID(strings.Repeat("x", 300)); !schemas.ValidID(got) {
		t.Errorf("a long host name gives the id %q", got)
	}
}

func TestRoleFlag(t *testing.T) {
	for role, good := range map[string]bool{"": true, "prefill": true, "standby": true, "chef": false} {
		o := Defaults()
		o.Role = role
		if err := o.Validate(); (err == nil) != good {
			t.Errorf("--role %q: %v", role, err)
		}
	}
}
