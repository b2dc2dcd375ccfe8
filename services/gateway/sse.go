package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
)

// errSlow: the client does not read, or is gone.
var errSlow = errors.New("gateway: the client does not take the stream")

// sse writes a response as server-sent events in OpenAI's shape.
type sse struct {
	w       http.ResponseWriter
	rc      *http.ResponseController
	c       *call
	timeout time.Duration
	usage   string // what stands before the end of every chunk
	// head is a chunk up to its choices, the same for all chunks of a response.
	head   []byte
	buf    []byte
	finger string
}

func newSSE(w http.ResponseWriter, rc *http.ResponseController, c *call, fingerprint string, timeout time.Duration) *sse {
	s := &sse{w: w, rc: rc, c: c, timeout: timeout, finger: fingerprint}
	object := "chat.completion.chunk"
	if c.api == textAPI {
		object = "text_completion"
	}
	if c.includeUsage {
		s.usage = `,"usage":null`
	}
	h := append([]byte(`data: {"id":`), quote(nil, c.id())...)
	h = append(h, `,"object":"`...)
	h = append(h, object...)
	h = fmt.Appendf(h, `","created":%d,"model":`, c.created)
	h = append(quote(h, c.model), `,"system_fingerprint":`...)
	s.head = quote(h, fingerprint)
	return s
}

// header begins the response; a chat's first chunk names the role.
func (s *sse) header() error {
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // proxies would hold the stream back
	s.w.WriteHeader(http.StatusOK)
	if s.c.api == textAPI {
		return nil
	}
	return s.chunk(`{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}`)
}

// chunk writes one chunk with that choice.
func (s *sse) chunk(choice string) error {
	b := append(s.buf[:0], s.head...)
	b = append(b, `,"choices":[`...)
	b = append(b, choice...)
	b = append(b, ']')
	b = append(b, s.usage...)
	s.buf = append(b, "}\n\n"...)
	return s.write(s.buf)
}

// piece writes new text. Tokens whose text is still to come are not shown.
func (s *sse) piece(e *turns.Event) error {
	if e.Text == "" && len(e.Logprobs) == 0 {
		return nil
	}
	b := append(s.buf[:0], s.head...)
	if s.c.api == chatAPI {
		b = append(b, `,"choices":[{"index":0,"delta":{"content":`...)
		b = append(quote(b, e.Text), `},"logprobs":`...)
	} else {
		b = append(b, `,"choices":[{"index":0,"text":`...)
		b = append(quote(b, e.Text), `,"logprobs":`...)
	}
	lp, err := s.logprobs(e)
	if err != nil {
		return err
	}
	b = append(append(b, lp...), `,"finish_reason":null}]`...)
	b = append(b, s.usage...)
	s.buf = append(b, "}\n\n"...)
	return s.write(s.buf)
}

func (s *sse) logprobs(e *turns.Event) ([]byte, error) {
	if len(e.Logprobs) == 0 {
		return []byte("null"), nil
	}
	if s.c.api == chatAPI {
		return json.Marshal(chatLogprobsOf(e.Logprobs))
	}
	return json.Marshal(textLogprobsOf(e.Logprobs, e.TextAt))
}

// end writes the last chunk, the usage if it was asked for, and [DONE].
func (s *sse) end(r *schemas.Result, a *about) error {
	meta, err := json.Marshal(a)
	if err != nil {
		return err
	}
	choice := `{"index":0,"delta":{},"logprobs":null,"finish_reason":`
	if s.c.api == textAPI {
		choice = `{"index":0,"text":"","logprobs":null,"finish_reason":`
	}
	b := append(s.buf[:0], s.head...)
	b = append(append(b, `,"choices":[`...), choice...)
	b = append(quote(b, finishOf(r)), `}]`...)
	b = append(append(b, s.usage...), `,"weir":`...)
	b = append(append(b, meta...), "}\n\n"...)
	if s.c.includeUsage {
		u, err := json.Marshal(usageOf(r.Usage))
		if err != nil {
			return err
		}
		b = append(append(b, s.head...), `,"choices":[],"usage":`...)
		b = append(append(b, u...), "}\n\n"...)
	}
	s.buf = append(b, "data: [DONE]\n\n"...)
	if err := s.write(s.buf); err != nil {
		return err
	}
	return s.flush()
}

// fail sends an error as the last event; there is no [DONE] behind it.
func (s *sse) fail(e *apiError) {
	b := append(append([]byte("data: "), e.body()...), "\n\n"...)
	if s.write(b) == nil {
		_ = s.flush() // the client is gone, or hears it
	}
}

// comment keeps proxies and clients from closing a silent connection.
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
