package schemas_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/weir-dev/weir/schemas"
)

func TestValidID(t *testing.T) {
	for in, want := range map[string]bool{
		"a": true, "A-z_0": true, "-": true, "_": true, strings.Repeat("a", schemas.MaxIDLen): true,
		"": false, strings.Repeat("a", schemas.MaxIDLen+1): false, "a.b": false, "a b": false, "*": false, ">": false,
		"é": false, "a\n": false, "\x00": false, "a/b": false, "$x": false,
	} {
		if got := schemas.ValidID(in); got != want {
			t.Errorf("ValidID(%q) = %t", in, got)
		}
		err := schemas.CheckID("session", in)
		if (err == nil) != want || (err != nil && (!errors.Is(err, schemas.ErrID) || !strings.Contains(err.Error(), "session"))) {
			t.Errorf("CheckID(%q) = %v", in, err)
		}
	}
}

func TestCheckIDDoesNotRepeatALongID(t *testing.T) {
	err := schemas.CheckID("turn", strings.Repeat("x", 1<<20))
	if err == nil || len(err.Error()) > 200 {
		t.Errorf("the error has %d bytes", len(err.Error()))
	}
}

func TestCleanID(t *testing.T) {
	if got := schemas.CleanID("fine-1"); got != "fine-1" {
		t.Errorf("a valid id became %q", got)
	}
	a, b := schemas.CleanID("chat:1/ü"), schemas.CleanID("chat:2/ü")
	if !schemas.ValidID(a) || a == b || a != schemas.CleanID("chat:1/ü") {
		t.Errorf("%q and %q", a, b)
	}
}

// TestJobID pins the digest, because it names subjects of running turns across
// an upgrade, and shows that the three parts cannot be confused.
func TestJobID(t *testing.T) {
	if got, want := schemas.JobID("default", "s-1", "t-1"), "15e04cd1fc28ee4bcbd5"; got != want {
		t.Errorf("JobID = %s, want %s", got, want)
	}
	if len(schemas.JobID("", "", "")) != 20 {
		t.Error("a job id has 20 digits")
	}
	seen := map[string]bool{}
	for _, p := range [][3]string{{"a", "b", "c"}, {"ab", "", "c"}, {"a", "bc", ""}, {"", "ab", "c"}, {"abc", "", ""}, {"c", "b", "a"}} {
		id := schemas.JobID(p[0], p[1], p[2])
		if seen[id] || !schemas.ValidID(id) {
			t.Errorf("%q has the id %q of another", p, id)
		}
		seen[id] = true
	}
}

func FuzzCleanID(f *testing.F) {
	for _, s := range []string{"", "a", "a.b", "chat:1", strings.Repeat("x", 65), "\xff", "h-0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		out := schemas.CleanID(in)
		if !schemas.ValidID(out) || schemas.CleanID(out) != out || (schemas.ValidID(in) && out != in) {
			t.Fatalf("CleanID(%q) = %q", in, out)
		}
	})
}
