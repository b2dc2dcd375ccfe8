package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"time"
	"unicode/utf8"
)

// errSlow: the client does not read, or is gone.
var errSlow = errors.New("gateway: the client does not take the stream")

// sse writes a response as server-sent events; what stands in them is the
// dialect's.
type sse struct {
	w           http.ResponseWriter
	rc          *http.ResponseController
	timeout     time.Duration // of one write
	fingerprint string
	buf         []byte // for the dialect to build events in
}

// header begins the response.
func (s *sse) header() {
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // proxies would hold the stream back
	h.Set("Trailer", headerTiming)   // it is known at the end
	s.w.WriteHeader(http.StatusOK)
}

// event writes one event; data is one line. Without a name it is only data.
func (s *sse) event(name string, data []byte) error {
	b := s.buf[:0]
	if name != "" {
		b = append(append(append(b, "event: "...), name...), '\n')
	}
	b = append(append(append(b, "data: "...), data...), "\n\n"...)
	s.buf = b
	return s.write(b)
}

// comment is an event that no client sees.
func (s *sse) comment() error {
	if err := s.write([]byte(": keep-alive\n\n")); err != nil {
		return err
	}
	return s.flush()
}

func (s *sse) write(b []byte) error {
	_ = s.rc.SetWriteDeadline(time.Now().Add(s.timeout)) // not supported by test recorders
	if _, err := s.w.Write(b); err != nil {
		return fmt.Errorf("%w: %w", errSlow, err)
	}
	return nil
}

func (s *sse) flush() error {
	if err := s.rc.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("%w: %w", errSlow, err)
	}
	return nil
}

const hexDigits = "0123456789abcdef"

// quote appends s as a JSON string. encoding/json would allocate for each chunk.
func quote(b []byte, s string) []byte {
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				b = append(append(b, s[from:i]...), "\ufffd"...)
				from = i + 1
			}
			i += n
			continue
		}
		b = append(b, s[from:i]...)
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\t':
			b = append(b, '\\', 't')
		case '\r':
			b = append(b, '\\', 'r')
		default:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		from = i
	}
	return append(append(b, s[from:]...), '"')
}
