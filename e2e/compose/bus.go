package compose

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/nats-io/nats.go"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
	"github.com/weir-dev/weir/streams/jsrun"
)

// Bus talks to the stack's NATS.
type Bus struct {
	*turns.Client

	nc    *nats.Conn
	beats chan *nats.Msg
}

// NewBus connects and follows the executors' heartbeats.
func NewBus(url string) (*Bus, error) {
	nc, err := jsrun.Connect(jsrun.ConnectOptions{URL: url, Name: "e2e-compose", Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		return nil, err
	}
	b := &Bus{nc: nc, beats: make(chan *nats.Msg, 1024)}
	if _, err = nc.ChanSubscribe(schemas.HBSubject(schemas.DefaultCell, "*"), b.beats); err == nil {
		b.Client, err = turns.New(nc, turns.Options{})
	}
	if err != nil {
		nc.Close()
		return nil, err
	}
	return b, nil
}

// Close ends the connection.
func (b *Bus) Close() {
	b.Client.Close()
	b.nc.Close()
}

// WaitRoles waits until each of these executors reports its role.
func (b *Bus) WaitRoles(ctx context.Context, want map[string]schemas.Role) error {
	missing := map[string]schemas.Role{}
	for id, r := range want {
		missing[id] = r
	}
	for len(missing) > 0 {
		select {
		case m := <-b.beats:
			var h schemas.Heartbeat
			if schemas.Decode(m.Data, &h) == nil && !h.Dead && missing[h.Executor] == h.Role {
				delete(missing, h.Executor)
			}
		case <-ctx.Done():
			return fmt.Errorf("executors that did not report their roles: %v: %w", missing, ctx.Err())
		}
	}
	return nil
}

// Heard drops the heartbeats that came so far, so that WaitRoles sees only new ones.
func (b *Bus) Heard() {
	for {
		select {
		case <-b.beats:
		default:
			return
		}
	}
}
