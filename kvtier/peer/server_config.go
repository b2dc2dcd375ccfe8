package peer

import (
	"errors"
	"fmt"
	"net"
	"time"
)

// ServerConfig says what a node gives to other nodes.
type ServerConfig struct {
	// Dir is the folder of the node's memory: that of its hostmem daemon.
	Dir string
	// Addr to listen on. The default is a free port of 127.0.0.1. An address that other
	// hosts can reach needs a Token.
	Addr string
	// Token that clients must know, of any length; see Options.Token.
	Token string
	// Writer is the prefix of the ids under which the server joins pools. "peer".
	Writer string
	// MaxConns bounds connections; more are turned away. A client has a few per node. 64.
	MaxConns int
	// MaxPools bounds the pools that are joined at once. 4.
	MaxPools int
	// Linger is how long a pool stays joined after its last request. It is short, because
	// a pool that somebody has joined does not give way to another model's. 1 s.
	Linger time.Duration
	// LeaseTime bounds how long blocks are kept from being evicted for a receiver that
	// does not read: it is cut off. 2 s.
	LeaseTime time.Duration
	// IdleTime is how long a connection may wait for its next request. 60 s.
	IdleTime time.Duration
}

func (c *ServerConfig) fill() {
	set(&c.Addr, "127.0.0.1:0")
	set(&c.Writer, "peer")
	set(&c.MaxConns, 64)
	set(&c.MaxPools, 4)
	set(&c.Linger, time.Second)
	set(&c.LeaseTime, 2*time.Second)
	set(&c.IdleTime, time.Minute)
}

func set[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// Validate reports every problem at once.
func (c ServerConfig) Validate() error {
	var errs []error
	if c.Dir == "" {
		errs = append(errs, errors.New("peer: no folder of the KV memory given"))
	}
	for _, f := range [...]struct {
		name string
		v    int64
	}{
		{"MaxConns", int64(c.MaxConns)},
		{"MaxPools", int64(c.MaxPools)},
		{"Linger", int64(c.Linger)},
		{"LeaseTime", int64(c.LeaseTime)},
		{"IdleTime", int64(c.IdleTime)},
	} {
		if f.v < 0 {
			errs = append(errs, fmt.Errorf("peer: %s is negative: %d", f.name, f.v))
		}
	}
	return errors.Join(errs...)
}

// checkOpen refuses to serve a network without a token.
func checkOpen(a net.Addr, token string) error {
	if t, ok := a.(*net.TCPAddr); token == "" && (!ok || !t.IP.IsLoopback()) {
		return fmt.Errorf("%w: %s can be reached from other hosts, and whoever connects could read KV blocks; set a token, or listen on 127.0.0.1", ErrOpen, a)
	}
	return nil
}
