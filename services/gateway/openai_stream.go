package gateway

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// chunks is the speaker of both OpenAI endpoints.
type chunks struct {
	*sse
	c     *call
	text  bool
	ask   openaiAsk
	usage string // what stands before the end of every chunk
	// head is a chunk up to its choices, the same for all chunks of a response.
	head []byte
	role bool // the chunk that names the role was sent
	bare bool // it was sent before anything else was known, and nothing came yet
}

func newChunks(c *call, w *sse, text bool) *chunks {
	s := &chunks{sse: w, c: c, text: text}
	s.ask, _ = c.more.(openaiAsk)
	object := "chat.completion.chunk"
	if text {
		object = "text_completion"
	}
	if s.ask.usage {
		s.usage = `,"usage":null`
	}
	h := append([]byte(`data: {"id":`), quote(nil, idOf(c, text))...)
	h = append(h, `,"object":"`...)
	h = append(h, object...)
	h = fmt.Appendf(h, `","created":%d,"model":`, c.created)
	h = append(quote(h, c.model), `,"system_fingerprint":`...)
	s.head = quote(h, w.fingerprint)
	return s
}

func (s *chunks) begin() error { return nil }

func (s *chunks) early() error {
	if s.text {
		return nil
	}
	s.bare = s.bare || !s.role
	return s.named(false)
}

func (s *chunks) idle() error { return s.comment() }

// named sends the chunk that names the role, once. Its content is null where
// reasoning or a call comes first, or where that is not known yet, as no content may
// follow.
func (s *chunks) named(content bool) error {
	if s.role || s.text {
		return nil
	}
	s.role = true
	if content {
		return s.chunk(`{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}`)
	}
	return s.chunk(`{"index":0,"delta":{"role":"assistant","content":null,"refusal":null},"logprobs":null,"finish_reason":null}`)
}

// chunk writes one chunk with that choice.
func (s *chunks) chunk(choice string) error {
	b := append(s.buf[:0], s.head...)
	b = append(b, `,"choices":[`...)
	b = append(b, choice...)
	b = append(b, ']')
	b = append(b, s.usage...)
	s.buf = append(b, "}\n\n"...)
	return s.write(s.buf)
}

// piece writes new text, reasoning or a part of a call.
func (s *chunks) piece(p *piece) error {
	if err := s.named(p.Call < 0 && p.Reasoning == ""); err != nil {
		return err
	}
	s.bare = false
	b := append(s.buf[:0], s.head...)
	switch {
	case s.text:
		b = append(b, `,"choices":[{"index":0,"text":`...)
		b = append(quote(b, p.Content), `,"logprobs":`...)
	case p.Call >= 0:
		b = append(b, `,"choices":[{"index":0,"delta":{"tool_calls":[`...)
		b = append(callPart(b, p), `]},"logprobs":`...)
	case p.Reasoning != "":
		b = append(b, `,"choices":[{"index":0,"delta":{"reasoning_content":`...)
		b = append(quote(b, p.Reasoning), `},"logprobs":`...)
	default:
		b = append(b, `,"choices":[{"index":0,"delta":{"content":`...)
		b = append(quote(b, p.Content), `},"logprobs":`...)
	}
	lp, err := s.logprobs(p)
	if err != nil {
		return err
	}
	b = append(append(b, lp...), `,"finish_reason":null}]`...)
	b = append(b, s.usage...)
	s.buf = append(b, "}\n\n"...)
	return s.write(s.buf)
}

// callPart writes a part of a tool call: the first one has id, type and name.
func callPart(b []byte, p *piece) []byte {
	b = strconv.AppendInt(append(b, `{"index":`...), int64(p.Call), 10)
	if p.ID != "" || p.Name != "" {
		b = quote(append(b, `,"id":`...), p.ID)
		b = quote(append(b, `,"type":"function","function":{"name":`...), p.Name)
		return append(quote(append(b, `,"arguments":`...), p.Arguments), "}}"...)
	}
	return append(quote(append(b, `,"function":{"arguments":`...), p.Arguments), "}}"...)
}

func (s *chunks) logprobs(p *piece) ([]byte, error) {
	if len(p.Logprobs) == 0 {
		return null, nil
	}
	if s.text {
		return json.Marshal(textLogprobsOf(p.Logprobs, p.TextAt))
	}
	return json.Marshal(chatLogprobsOf(p.Logprobs))
}

var null = []byte("null")

// end writes the last chunk, the usage if it was asked for, and [DONE].
func (s *chunks) end(r *reply) error {
	if err := s.named(true); err != nil {
		return err
	}
	if s.bare { // an answer of no text is "", not null
		if err := s.chunk(`{"index":0,"delta":{"content":""},"logprobs":null,"finish_reason":null}`); err != nil {
			return err
		}
	}
	meta, err := json.Marshal(r.About)
	if err != nil {
		return err
	}
	choice := `{"index":0,"delta":{},"logprobs":null,"finish_reason":`
	if s.text {
		choice = `{"index":0,"text":"","logprobs":null,"finish_reason":`
	}
	b := append(s.buf[:0], s.head...)
	b = append(append(b, `,"choices":[`...), choice...)
	b = append(quote(b, r.Finish), `}]`...)
	b = append(append(b, s.usage...), `,"weir":`...)
	b = append(append(b, meta...), "}\n\n"...)
	if s.ask.usage {
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
func (s *chunks) fail(e *apiError) error {
	if err := s.event("", e.body()); err != nil {
		return err
	}
	return s.flush()
}
