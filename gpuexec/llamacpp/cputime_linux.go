package llamacpp

import (
	"time"

	"golang.org/x/sys/unix"
)

// threadTime is the processor time of this OS thread. It does not run on while the
// machine is busy with others, so a budget in it means the same everywhere. The
// caller must be locked to its thread.
func threadTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		return 0 // no such clock: budgets never end
	}
	return time.Duration(ts.Nano())
}
