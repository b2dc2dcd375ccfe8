package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/kvtier/hostmem"
)

// conn is one connection of a client to a node.
type conn struct {
	nc       net.Conn
	read     time.Duration // Options.ReadTimeout
	block    int64
	due      time.Time // when reading times out
	used     bool      // it was kept from an earlier request
	answered bool      // something arrived since it was taken
	since    time.Time // when it was put away
	out      []byte
}

// conns are a client's connections: those in use hold a permit, and some wait unused.
type conns struct {
	opt     Options
	permits chan struct{}

	mu   sync.Mutex
	idle map[string][]*conn // newest last
	n    int
}

func (p *conns) init(opt Options) {
	p.opt = opt
	p.permits = make(chan struct{}, opt.MaxConns)
	p.idle = map[string][]*conn{}
}

// acquire waits until one more connection may be used.
func (p *conns) acquire(ctx context.Context) (release func(), err error) {
	select {
	case p.permits <- struct{}{}:
		return func() { <-p.permits }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", errCrowded, ctx.Err())
	}
}

// errCrowded: all connections are in use. It says nothing about the node.
var errCrowded = errors.New("peer: as many connections as Options.MaxConns are in use")

// take returns a kept connection, or a new one.
func (p *conns) take(ctx context.Context, addr string, mem *hostmem.Client) (*conn, error) {
	p.mu.Lock()
	for list := p.idle[addr]; len(list) > 0; list = p.idle[addr] {
		cn := list[len(list)-1]
		p.cut(addr, len(list)-1)
		if time.Since(cn.since) < p.opt.IdleTime {
			p.mu.Unlock()
			cn.used, cn.answered = true, false
			return cn, nil
		}
		_ = cn.nc.Close()
	}
	p.mu.Unlock()
	return dial(ctx, addr, hello{pool: mem.Pool(), block: mem.BlockBytes()}, p.opt)
}

// cut takes entry i of a list out; mu is held.
func (p *conns) cut(addr string, i int) {
	list := append(p.idle[addr][:i:i], p.idle[addr][i+1:]...)
	if p.n--; len(list) == 0 {
		delete(p.idle, addr)
		return
	}
	p.idle[addr] = list
}

// put keeps a connection whose answers have all been read. The oldest one gives way.
func (p *conns) put(addr string, cn *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.n >= p.opt.MaxConns {
		oldest := ""
		for a, list := range p.idle {
			if oldest == "" || list[0].since.Before(p.idle[oldest][0].since) {
				oldest = a
			}
		}
		_ = p.idle[oldest][0].nc.Close()
		p.cut(oldest, 0)
	}
	cn.since = time.Now()
	p.idle[addr] = append(p.idle[addr], cn)
	p.n++
}

func (p *conns) kept() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n
}

func (p *conns) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, list := range p.idle {
		for _, cn := range list {
			_ = cn.nc.Close()
		}
	}
	clear(p.idle)
	p.n = 0
}

// dial connects and agrees with the node on version, token and pool.
func dial(ctx context.Context, addr string, h hello, opt Options) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, opt.DialTimeout)
	defer cancel()
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("peer %s: %w", addr, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = nc.Close() })
	err = agree(nc, &h, opt.Token)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w while it was greeted: %w", ErrStalled, ctx.Err())
		}
		_ = nc.Close()
		return nil, fmt.Errorf("peer %s: %w", addr, err)
	}
	return &conn{nc: nc, read: opt.ReadTimeout, block: h.block}, nil
}

func agree(nc net.Conn, h *hello, token string) error {
	server, err := readGreeting(nc)
	if err != nil {
		return err
	}
	h.nonce = newNonce()
	h.mac = prove(token, fromClient, server, h, statusOK)
	if _, err := nc.Write(appendHello(nil, *h)); err != nil {
		return err
	}
	st, text, m, err := readWelcome(nc)
	if err != nil {
		return err
	}
	if err := st.err(text); err != nil {
		return err
	}
	if !same(m, prove(token, fromServer, server, h, st)) {
		return fmt.Errorf("%w: the node does not know this node's token", ErrToken)
	}
	return nil
}

// ask sends a request. It is small enough to fit the socket's buffer, so it does not
// wait for the node to read it.
func (cn *conn) ask(q request) error {
	cn.out = appendRequest(cn.out[:0], q)
	_ = cn.nc.SetWriteDeadline(time.Now().Add(cn.read))
	_, err := cn.nc.Write(cn.out)
	return stalled(err)
}

// list asks for an extent's blocks.
func (cn *conn) list(e kvtier.Extent) ([]kvtier.Block, error) {
	if err := cn.ask(request{op: opList, n: e.N, from: e.From, keys: []kvtier.Key{e.Key}}); err != nil {
		return nil, err
	}
	chain, st, err := readList(reader{cn}, e.N)
	if err != nil {
		return nil, err
	}
	if err := st.err("it held the pool when this connection began"); err != nil {
		return nil, err
	}
	if n := len(chain); n > 0 && (chain[n-1].Key != e.Key || chain[n-1].Index != e.From+e.N-1) {
		return nil, fmt.Errorf("%w: a list that ends with %s at %d, asked for %s at %d",
			ErrProtocol, chain[n-1].Key.Short(), chain[n-1].Index, e.Key.Short(), e.From+e.N-1)
	}
	return chain, nil
}

// reader reads with a bound on the time in which nothing arrives.
type reader struct{ cn *conn }

func (r reader) Read(b []byte) (int, error) {
	// Not each of many small reads moves the deadline.
	if now := time.Now(); r.cn.due.Sub(now) < r.cn.read {
		r.cn.due = now.Add(r.cn.read + r.cn.read/8)
		_ = r.cn.nc.SetReadDeadline(r.cn.due)
	}
	n, err := r.cn.nc.Read(b)
	r.cn.answered = r.cn.answered || n > 0
	return n, stalled(err)
}

func stalled(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%w: %w", ErrStalled, err)
	}
	return err
}
