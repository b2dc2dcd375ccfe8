package stack

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/assign"
	"github.com/weir-dev/weir/services/turns"
	"github.com/weir-dev/weir/streams/jsrun"
)

// Connect returns the connection of that name to the stack's NATS. It reconnects
// for ever, as weir's own do; Stop closes it.
func (s *Stack) Connect(name string) (*nats.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if nc := s.conns[name]; nc != nil {
		return nc, nil
	}
	nc, err := jsrun.Connect(jsrun.ConnectOptions{URL: s.Ready.NATS, Name: name, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		return nil, err
	}
	s.conns[name] = nc
	return nc, nil
}

// Client publishes turns and reads their answers over a connection of its own.
// Stop closes it.
func (s *Stack) Client() (*turns.Client, error) {
	nc, err := s.Connect("e2e-client")
	if err != nil {
		return nil, err
	}
	c, err := turns.New(nc, turns.Options{})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.close = append(s.close, c.Close)
	return c, nil
}

// Heartbeats follows what executors say.
type Heartbeats struct {
	sub *nats.Subscription

	mu      sync.Mutex
	last    map[string]schemas.Heartbeat
	changed chan struct{} // closed and replaced at each heartbeat
}

// Heartbeats starts to follow the heartbeats of all executors of the cell.
func (s *Stack) Heartbeats() (*Heartbeats, error) {
	nc, err := s.Connect("e2e-heartbeats")
	if err != nil {
		return nil, err
	}
	h := &Heartbeats{last: map[string]schemas.Heartbeat{}, changed: make(chan struct{})}
	h.sub, err = nc.Subscribe(schemas.HBSubject(s.Ready.Cell, "*"), h.take)
	return h, err
}

func (h *Heartbeats) take(m *nats.Msg) {
	var b schemas.Heartbeat
	if schemas.Decode(m.Data, &b) != nil || b.Dead {
		return // what a supervisor says about the dead is no heartbeat
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last[b.Executor] = b
	close(h.changed)
	h.changed = make(chan struct{})
}

// Wait waits until the last heartbeats of all executors, by id, satisfy ok. Only
// heartbeats that came after the call to Heartbeats are seen.
func (h *Heartbeats) Wait(ctx context.Context, what string, ok func(map[string]schemas.Heartbeat) bool) error {
	for {
		h.mu.Lock()
		good, changed := ok(h.last), h.changed
		h.mu.Unlock()
		if good {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("stack: heartbeats did not show: %s: %w", what, context.Cause(ctx))
		}
	}
}

// Close stops to follow.
func (h *Heartbeats) Close() error { return h.sub.Unsubscribe() }

// SetRoles assigns roles, as `weir roles set` does, and waits until the executors
// report them.
func (s *Stack) SetRoles(ctx context.Context, roles map[string]schemas.Role) error {
	h, err := s.Heartbeats()
	if err != nil {
		return err
	}
	defer func() { _ = h.Close() }() // its connection ends with the stack anyway
	nc, err := s.Connect("e2e-roles")
	if err != nil {
		return err
	}
	for id, role := range roles {
		if err := assign.Role(ctx, nc, s.Ready.Cell, id, role, "e2e"); err != nil {
			return err
		}
	}
	return h.Wait(ctx, fmt.Sprintf("roles %v", roles), func(m map[string]schemas.Heartbeat) bool {
		for id, role := range roles {
			if m[id].Role != role {
				return false
			}
		}
		return true
	})
}
