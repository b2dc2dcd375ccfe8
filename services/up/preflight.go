package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/kvtier/hostmem"
	"github.com/weir-dev/weir/streams/jsrun"
)

// natsWait bounds the wait for a NATS that runs apart: it may be starting too.
const natsWait = 10 * time.Second

// preflight finds out what would let every child fail, so that the start ends at
// once with the reason instead of after a dozen restarts.
func (s *stack) preflight(ctx context.Context) error {
	if err := s.memory(ctx); err != nil {
		return err
	}
	if s.o.KVDisk != "" {
		if _, err := s.o.CheckDisk(); err != nil {
			return err
		}
	}
	if s.o.EmbeddedNATS() {
		return nil
	}
	if err := s.reach(ctx); err != nil {
		return err
	}
	js, err := jetstream.New(s.nc)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		err = jsrun.Provision(ctx, js, s.o.Topology())
	}
	if err != nil {
		at := s.nc.ConnectedUrlRedacted()
		s.nc.Close()
		return fmt.Errorf("NATS at %s: %w", at, err)
	}
	return nil
}

// tierWait bounds the wait for the tier of a stack that was killed a moment ago.
const tierWait = 3 * time.Second

// memory checks that the KV memory fits and that no other stack owns its folder.
func (s *stack) memory(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, tierWait)
	defer cancel()
	for {
		var err error
		for _, n := range s.nodes {
			// All of them must fit together.
			if err = hostmem.CheckRoom(hostmem.Config{Dir: n.arena, Bytes: s.o.KVMem}); err != nil {
				break
			}
		}
		if !errors.Is(err, hostmem.ErrBusy) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; name another folder with --kv-dir", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// reach connects to a NATS that runs apart.
func (s *stack) reach(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, min(natsWait, s.o.ReadyWait))
	defer cancel()
	for {
		nc, err := jsrun.Connect(jsrun.ConnectOptions{URL: s.o.URL(), Name: "weir-up", Logger: s.o.Log(io.Discard)})
		if err == nil {
			s.nc = nc
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no NATS server answers at %s: %w; start it, name another with --nats URL, or let weir start its own with --nats HOST:PORT", s.o.URL(), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
