package llamacpp

import (
	"io"
	"strings"
	"sync"
	"unsafe"
)

// logError is GGML_LOG_LEVEL_ERROR, logContinue continues the line before.
const (
	logError    = 4
	logContinue = 5
)

// maxLogLine bounds one line of the library, in bytes. Model metadata can enter
// a message, so its length is not ours to trust.
const maxLogLine = 4096

// maxReasonLines bounds the lines that an error carries.
const maxReasonLines = 3

// logSink receives the library's log. The library calls it from any thread.
type logSink struct {
	mu       sync.Mutex
	out      io.Writer // guarded by mu
	lines    []string  // guarded by mu: first error lines since clear, without newlines
	wasError bool      // guarded by mu: the last message was an error
}

func newLogSink(out io.Writer) *logSink {
	if out == nil {
		out = io.Discard
	}
	return &logSink{out: out}
}

// receive is the C callback void(*)(enum ggml_log_level, const char *, void *).
func (s *logSink) receive(level int32, text *byte, _ uintptr) uintptr {
	if level != logError && level != logContinue {
		s.mu.Lock()
		s.wasError = false
		s.mu.Unlock()
		return 0
	}
	s.add(level, cString(text, maxLogLine))
	return 0
}

func (s *logSink) add(level int32, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if level == logContinue && !s.wasError {
		return
	}
	line := strings.TrimSpace(text)
	if n := len(s.lines); level == logContinue && n > 0 {
		s.lines[n-1] = truncate(s.lines[n-1]+" "+line, maxLogLine)
	} else if level == logError && line != "" && n < maxReasonLines {
		s.lines = append(s.lines, line)
	}
	s.wasError = true
	// A log that cannot be written must not fail the engine call that wrote it.
	_, _ = io.WriteString(s.out, text)
}

// reason is what the library complained about since clear. The first line names
// the cause; the later ones only say that loading failed.
func (s *logSink) reason() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.lines) == 0 {
		return "the library gave no reason"
	}
	return strings.Join(s.lines, "; ")
}

// clear forgets the lines, so that a later error is not given an older reason.
func (s *logSink) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines, s.wasError = s.lines[:0], false
}

// cString copies a NUL-terminated string of at most limit bytes.
func cString(p *byte, limit int) string {
	if p == nil {
		return ""
	}
	n := 0
	for n < limit && *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(p, n))
}

func truncate(s string, limit int) string { return s[:min(len(s), limit)] }
