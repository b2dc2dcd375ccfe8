package turns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
)

// fetchTimeout bounds one direct get; the server answers within a millisecond.
const fetchTimeout = 2 * time.Second

// fetchBatch is the number of frames asked for at once.
const fetchBatch = 256

const directGet = "$JS.API.DIRECT.GET."

// last reads the last message of a subject; nil when there is none. The error
// means that the stream did not answer.
func (c *Client) last(ctx context.Context, stream, subject string) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	m, err := c.nc.RequestWithContext(ctx, directGet+stream+"."+subject, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: reading %s: %w", ErrUnavailable, subject, err)
	}
	switch status := m.Header.Get("Status"); status {
	case "":
		return m, nil
	case "404":
		return nil, nil
	default:
		return nil, fmt.Errorf("%w: reading %s: status %s %s", ErrUnavailable, subject, status, m.Header.Get("Description"))
	}
}

// storedResult reads a turn's result.
func (c *Client) storedResult(ctx context.Context, ref Ref) (*schemas.Result, error) {
	subject := schemas.ResultSubject(ref.Tenant, ref.Session, ref.Turn)
	m, err := c.last(ctx, streams.Result, subject)
	if err != nil {
		return nil, err
	}
	if m == nil {
		return nil, fmt.Errorf("%w of %s", ErrNotFound, subject)
	}
	r := new(schemas.Result)
	if err := schemas.Decode(m.Data, r); err != nil {
		return nil, fmt.Errorf("reading %s: %w", subject, err)
	}
	return r, nil
}

// exists reports whether a turn of that id has left a trace. When NATS does not
// say, it may have.
func (c *Client) exists(ctx context.Context, ref Ref) bool {
	for _, at := range [...]struct{ stream, subject string }{
		{streams.Result, schemas.ResultSubject(ref.Tenant, ref.Session, ref.Turn)},
		{streams.Out, schemas.OutSubject(ref.Tenant, ref.Session, ref.Turn)},
	} {
		if m, err := c.last(ctx, at.stream, at.subject); err != nil || m != nil {
			return true
		}
	}
	return false
}

// erased reports whether a turn that was stored at a sequence of AGENT is gone and left
// no result. When NATS does not say, it is not.
func (c *Client) erased(ctx context.Context, ref Ref, seq uint64) bool {
	tctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	m, err := c.nc.RequestWithContext(tctx, directGet+streams.Agent, fmt.Appendf(nil, `{"seq":%d}`, seq))
	if err != nil || m.Header.Get("Status") != "404" {
		return false
	}
	_, err = c.storedResult(ctx, ref)
	return errors.Is(err, ErrNotFound)
}

// fetchFrames reads the turn's frames from OUT, from where the last fetch ended,
// and handles them. All are read before the first one is handled, because a later
// attempt decides what an earlier one's frames are worth. It returns false when
// the stream did not answer in full.
func (s *Stream) fetchFrames(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	inbox := s.c.nc.NewInbox()
	sub, err := s.c.nc.SubscribeSync(inbox)
	if err != nil {
		return false
	}
	defer func() { _ = sub.Unsubscribe() }()
	var found []*schemas.Frame
	// What came is used also when the rest did not.
	defer func() {
		for _, f := range found {
			s.got.note(f)
		}
		for _, f := range found {
			if s.err == nil {
				s.frame(ctx, f, false)
			}
		}
	}()
	for {
		req, err := json.Marshal(struct {
			Seq   uint64 `json:"seq"`
			Batch int    `json:"batch"`
			Next  string `json:"next_by_subj"`
		}{s.outSeq, fetchBatch, s.outSubject})
		if err != nil || s.c.nc.PublishRequest(directGet+streams.Out, inbox, req) != nil {
			return false
		}
		n, err := s.readBatch(ctx, sub, &found)
		if err != nil {
			return false
		}
		if n < fetchBatch {
			return true
		}
	}
}

// readBatch reads the answers to one request and returns how many frames came.
func (s *Stream) readBatch(ctx context.Context, sub *nats.Subscription, found *[]*schemas.Frame) (int, error) {
	for n := 0; ; n++ {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return n, err
		}
		switch m.Header.Get("Status") {
		case "":
		case "204", "404":
			return n, nil
		default:
			return n, errors.New(m.Header.Get("Description"))
		}
		seq, err := strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64)
		if err != nil || len(m.Data) == 0 {
			return n, errors.New("an answer without a sequence")
		}
		s.outSeq = max(s.outSeq, seq+1)
		f, err := decodeFrame(m.Data)
		if err != nil {
			return n, err // the result will have what is missing
		}
		*found = append(*found, f)
	}
}
