package explaincmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
	"github.com/weir-dev/weir/streams/jsrun"
)

// Bounds of what is read for one command.
const (
	maxTurns   = 4096      // turns of a session
	maxBytes   = 256 << 20 // of their bodies
	askTimeout = 2 * time.Second
)

// Source reads what is explained. It belongs to one goroutine.
type Source struct {
	nc       *nats.Conn
	js       jetstream.JetStream
	cell     string
	tenant   string
	payloads *jsrun.Payloads
}

// NewSource reads the sessions of a tenant that a cell serves.
func NewSource(nc *nats.Conn, cell, tenant string) (*Source, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	return &Source{nc: nc, js: js, cell: cell, tenant: tenant}, nil
}

// heard is a turn as it was published.
type heard struct {
	id   string
	seq  uint64
	at   time.Time
	turn *schemas.Turn
	err  error // why its messages are not known
}

// facts are what is known of a session, as far as a command needs it.
type facts struct {
	tenant, session string

	turns   []*heard // in order
	results map[string]*schemas.Result
	lineage *schemas.SessionReply // nil when lineage does not answer
	notes   []string              // what could not be read, and why
}

func (f *facts) note(format string, args ...any) {
	f.notes = append(f.notes, fmt.Sprintf(format, args...))
}

// read collects the facts of a session. turn limits the results to that one, and to
// what its context is made of; "" reads all.
func (s *Source) read(ctx context.Context, session, turn string) (*facts, error) {
	f := &facts{tenant: s.tenant, session: session, results: map[string]*schemas.Result{}}
	if err := s.readTurns(ctx, f); err != nil {
		return nil, err
	}
	if err := s.readResults(ctx, f, turn); err != nil {
		return nil, err
	}
	f.lineage = s.ask(ctx, f, turn)
	return f, nil
}

// each calls take for the messages of a stream on a subject, in order, up to most.
func (s *Source) each(ctx context.Context, stream, subject string, most int, take func(*jetstream.RawStreamMsg)) (more bool, err error) {
	st, err := s.js.Stream(ctx, stream)
	if err != nil {
		return false, fmt.Errorf("stream %s: %w", stream, err)
	}
	for n, seq := 0, uint64(1); ; n++ {
		m, err := st.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(subject))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("reading %s: %w", subject, err)
		}
		if n == most {
			return true, nil
		}
		seq = m.Sequence + 1
		take(m)
	}
}

func (s *Source) readTurns(ctx context.Context, f *facts) error {
	subject := string(schemas.RootAgent) + ".*." + s.tenant + "." + f.session + "." + string(schemas.EventTurn)
	seen, size := map[string]bool{}, int64(0)
	more, err := s.each(ctx, streams.Agent, subject, maxTurns, func(m *jetstream.RawStreamMsg) {
		h := &heard{seq: m.Sequence, at: m.Time, turn: new(schemas.Turn)}
		if size += int64(len(m.Data)); size > maxBytes {
			h.turn, h.err = nil, fmt.Errorf("the session's turns before it have more than %d MiB", maxBytes>>20)
		} else if err := schemas.Decode(m.Data, h.turn); err != nil {
			h.turn, h.err = nil, err
		}
		if h.turn != nil {
			h.id = h.turn.Weir.Turn
		}
		if h.id == "" {
			h.id = "t" + strconv.FormatUint(m.Sequence, 10)
		}
		if seen[h.id] {
			return // published again
		}
		seen[h.id] = true
		f.turns = append(f.turns, h)
	})
	if more {
		f.note("only the first %d turns of the session were read", maxTurns)
	}
	return err
}

// body fetches a turn's messages when they are in the payload bucket.
func (s *Source) body(ctx context.Context, h *heard) {
	if h.turn == nil || h.turn.BodyRef == nil || h.err != nil {
		return
	}
	raw, err := s.payload(ctx, *h.turn.BodyRef)
	if err != nil {
		h.err = err
		return
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if err := d.Decode(&h.turn.Body); err != nil {
		h.err = fmt.Errorf("the body in the bucket cannot be read: %w", err)
	}
}

func (s *Source) payload(ctx context.Context, ref schemas.PayloadRef) ([]byte, error) {
	if s.payloads == nil {
		p, err := jsrun.NewPayloads(ctx, s.js, 0)
		if err != nil {
			return nil, err
		}
		s.payloads = p
	}
	return s.payloads.Get(ctx, ref)
}

// readResults reads one turn's result, or all of the session. A turn that continues
// earlier ones by their digests needs those too.
func (s *Source) readResults(ctx context.Context, f *facts, turn string) error {
	subject := schemas.ResultSubject(s.tenant, f.session, "*")
	if h := f.turn(turn); turn != "" && (h == nil || h.turn == nil || h.turn.Weir.Known == "") {
		subject = schemas.ResultSubject(s.tenant, f.session, turn)
	}
	more, err := s.each(ctx, streams.Result, subject, maxTurns, func(m *jetstream.RawStreamMsg) {
		r := new(schemas.Result)
		if err := schemas.Decode(m.Data, r); err != nil {
			f.note("the result on %s cannot be read: %s", m.Subject, err)
			return
		}
		f.results[r.Turn] = r
	})
	if more {
		f.note("only the first %d results of the session were read", maxTurns)
	}
	if err != nil {
		return err
	}
	for _, h := range f.contextOf(turn) {
		s.body(ctx, h)
	}
	return nil
}

// ask asks lineage about the session; nil when it does not answer.
func (s *Source) ask(ctx context.Context, f *facts, turn string) *schemas.SessionReply {
	body, err := schemas.Encode(&schemas.SessionRequest{Header: schemas.H(), Tenant: s.tenant, Session: f.session, Turn: turn})
	if err != nil {
		f.note("lineage was not asked: %s", err)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	m, err := s.nc.RequestWithContext(ctx, schemas.SessionSubject(s.cell), body)
	if err != nil {
		f.note("lineage of cell %s does not answer (%s): branches and events are not known", s.cell, err)
		return nil
	}
	r := new(schemas.SessionReply)
	if err := schemas.Decode(m.Data, r); err != nil {
		f.note("lineage's answer cannot be read: %s", err)
		return nil
	}
	if r.Error != "" {
		f.note("lineage says: %s", r.Error)
	}
	return r
}

// turn finds a turn of the session by its id.
func (f *facts) turn(id string) *heard {
	for _, h := range f.turns {
		if h.id == id {
			return h
		}
	}
	return nil
}

// contextOf lists the turns whose messages together are the context of a turn, the
// first one first: itself, and those that it continues by weir.known.
func (f *facts) contextOf(id string) (chain []*heard) {
	byDigest := map[string]string{}
	for t, r := range f.results {
		byDigest[r.Known()] = t
	}
	seen := map[string]bool{}
	for h := f.turn(id); h != nil && !seen[h.id]; h = f.turn(byDigest[h.turn.Weir.Known]) {
		seen[h.id] = true
		chain = append([]*heard{h}, chain...)
		if h.turn == nil || h.turn.Weir.Known == "" {
			return chain
		}
	}
	return chain
}

// messages is a turn's whole message list. The error says which part is not there
// any more.
func (f *facts) messages(id string) (all []json.RawMessage, err error) {
	chain := f.contextOf(id)
	if len(chain) == 0 {
		return nil, errors.New("the turn itself is not in AGENT any more")
	}
	if first := chain[0]; first.turn != nil && first.turn.Weir.Known != "" {
		return nil, fmt.Errorf("turn %s continues an answer that is not stored any more", first.id)
	}
	for _, h := range chain {
		if h.err != nil {
			return nil, fmt.Errorf("turn %s: %w", h.id, h.err)
		}
		all = append(all, h.turn.Messages...)
		if r := f.results[h.id]; h.id != id && r != nil {
			m := r.Message
			if len(m) == 0 {
				if m, err = json.Marshal(map[string]string{"role": "assistant", "content": r.Text}); err != nil {
					return nil, err
				}
			}
			all = append(all, m)
		}
	}
	return all, nil
}
