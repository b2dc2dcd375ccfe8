package serve

import (
	"errors"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// TestThreads: threads are bounded by the cores, and the error names both.
func TestThreads(t *testing.T) {
	cores := runtime.NumCPU()
	for _, c := range []struct {
		threads int
		ok      bool
	}{{-1, false}, {0, false}, {1, true}, {cores, true}, {cores + 1, false}, {1 << 30, false}} {
		o := Defaults()
		o.Threads = c.threads
		err := o.Validate()
		if (err == nil) != c.ok {
			t.Errorf("%d threads on %d cores: %v", c.threads, cores, err)
		}
		if err == nil {
			continue
		}
		for _, part := range []string{"--threads", strconv.Itoa(c.threads), strconv.Itoa(cores)} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q does not say %q", err, part)
			}
		}
		if !errors.Is(err, ErrUsage) {
			t.Errorf("%v is no error of usage", err)
		}
	}
}
