package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Server gives the blocks of a node's memory to other nodes. It joins a pool when
// somebody asks for it, never makes one, and works on while the node's daemon is away.
type Server struct {
	cfg   ServerConfig
	ln    net.Listener
	ctx   context.Context
	stop  context.CancelFunc
	wg    sync.WaitGroup
	pools pools
	count serverCounters

	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

// ServerStats are counted since the server started.
type ServerStats struct {
	Conns    int    // that are open
	Pools    int    // that are joined
	Requests uint64 // list and get
	Blocks   uint64 // sent whole
	Bytes    uint64 // of them
	Missing  uint64 // asked for and not there
	Refused  uint64 // connections turned away
	CutOff   uint64 // connections whose receiver did not read in time
	Bad      uint64 // connections that sent what no client sends
}

type serverCounters struct {
	requests, blocks, bytes, missing, refused, cutOff, bad atomic.Uint64
}

// Serve listens and serves until Close.
func Serve(cfg ServerConfig) (*Server, error) {
	cfg.fill()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", cfg.Addr)
	if err != nil {
		return nil, fmt.Errorf("peer: %w", err)
	}
	if err := checkOpen(ln.Addr(), cfg.Token); err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{cfg: cfg, ln: ln, ctx: ctx, stop: stop, conns: map[net.Conn]struct{}{}}
	s.pools.init(cfg)
	s.wg.Add(1)
	go s.accept()
	return s, nil
}

// Addr is where the server listens.
func (s *Server) Addr() string { return s.ln.Addr().String() }

// Stats returns the counters.
func (s *Server) Stats() ServerStats {
	s.mu.Lock()
	conns := len(s.conns)
	s.mu.Unlock()
	return ServerStats{
		Conns: conns, Pools: s.pools.joined(),
		Requests: s.count.requests.Load(), Blocks: s.count.blocks.Load(), Bytes: s.count.bytes.Load(), Missing: s.count.missing.Load(),
		Refused: s.count.refused.Load(), CutOff: s.count.cutOff.Load(), Bad: s.count.bad.Load(),
	}
}

func (s *Server) accept() {
	defer s.wg.Done()
	for {
		nc, err := s.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors: wait for some to be freed
			select {
			case <-s.ctx.Done():
				return
			case <-time.After(50 * time.Millisecond):
			}
			continue
		}
		if !s.admit(nc) {
			s.count.refused.Add(1)
			_ = nc.Close()
		}
	}
}

// admit starts a connection's goroutine, unless there are too many.
func (s *Server) admit(nc net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil || len(s.conns) >= s.cfg.MaxConns {
		return false
	}
	s.conns[nc] = struct{}{}
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		c := &session{s: s, nc: nc}
		c.run()
		_ = nc.Close()
		s.mu.Lock()
		delete(s.conns, nc)
		s.mu.Unlock()
	}()
	return true
}

// Close ends all connections and leaves the pools.
func (s *Server) Close() error {
	s.stop()
	err := s.ln.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	s.mu.Lock()
	for nc := range s.conns {
		_ = nc.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
	s.pools.close()
	return err
}
