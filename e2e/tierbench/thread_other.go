//go:build !linux

package tierbench

import "time"

// threadTime is the wall clock: not every system tells a thread's time.
func threadTime() time.Duration { return time.Duration(time.Now().UnixNano()) }
