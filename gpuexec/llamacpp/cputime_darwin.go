package llamacpp

import "time"

// processStart is the base of threadTime.
var processStart = time.Now()

// threadTime is wall-clock time: macOS has no thread clock behind a system call.
func threadTime() time.Duration { return time.Since(processStart) }
