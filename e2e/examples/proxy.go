package examples

import (
	"io"
	"net"
	"strings"
	"sync"
)

// proxy is a way to a server that can be cut.
type proxy struct {
	l      net.Listener
	target string

	mu    sync.Mutex
	conns []net.Conn
	total int // connections that were made
	wg    sync.WaitGroup
}

// newProxy listens before it returns. Close ends it.
func newProxy(url string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{l: l, target: strings.TrimPrefix(url, "nats://")}
	p.wg.Go(p.accept)
	return p, nil
}

// URL is where clients connect.
func (p *proxy) URL() string { return "nats://" + p.l.Addr().String() }

func (p *proxy) accept() {
	for {
		in, err := p.l.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = in.Close() // the client tries again
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, in, out)
		p.total++
		p.mu.Unlock()
		pipe := func(to, from net.Conn) {
			_, _ = io.Copy(to, from) // it ends with either side
			_ = to.Close()
		}
		p.wg.Go(func() { pipe(out, in) })
		p.wg.Go(func() { pipe(in, out) })
	}
}

// Cut ends all connections and returns how many there have been so far.
func (p *proxy) Cut() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
	return p.total
}

// Total is how many connections were made.
func (p *proxy) Total() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.total
}

// Close ends everything.
func (p *proxy) Close() {
	_ = p.l.Close()
	p.Cut()
	p.wg.Wait()
}
