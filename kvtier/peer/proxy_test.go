package peer

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// proxy stands between a client and a server, and harms what passes.
type proxy struct {
	ln     net.Listener
	to     string
	perS   atomic.Int64 // bytes per second, 0 for any
	hold   atomic.Bool  // nothing passes
	flipAt atomic.Int64 // flips a bit of this byte towards the client, counted over the proxy's life; -1: none
	flipUp atomic.Int64 // the same towards the server
	down   atomic.Int64 // bytes that passed towards the client
	up     atomic.Int64
	wg     sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
	ended bool
}

func newProxy(t testing.TB, to string) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{ln: ln, to: to}
	p.flipAt.Store(-1)
	p.flipUp.Store(-1)
	p.wg.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

func (p *proxy) addr() string { return p.ln.Addr().String() }

func (p *proxy) rate(bytesPerS int64) { p.perS.Store(bytesPerS) }

func (p *proxy) close() {
	_ = p.ln.Close()
	p.mu.Lock()
	p.ended = true
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

func (p *proxy) accept() {
	for {
		a, err := p.ln.Accept()
		if err != nil {
			return
		}
		b, err := net.Dial("tcp", p.to)
		if err != nil {
			_ = a.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, a, b)
		if p.ended {
			_ = a.Close()
			_ = b.Close()
		}
		p.mu.Unlock()
		p.wg.Go(func() { p.pass(a, b, &p.down, &p.flipAt) })
		p.wg.Go(func() { p.pass(b, a, &p.up, &p.flipUp) })
	}
}

func (p *proxy) pass(dst, src net.Conn, passed, flip *atomic.Int64) {
	defer dst.Close()
	defer src.Close()
	buf := make([]byte, 16<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			at := passed.Add(int64(n)) - int64(n)
			if k := flip.Load(); k >= at && k < at+int64(n) {
				buf[k-at] ^= 1 << (k % 8)
			}
			if r := p.perS.Load(); r > 0 {
				time.Sleep(time.Duration(n) * time.Second / time.Duration(r))
			}
			for p.hold.Load() {
				time.Sleep(time.Millisecond)
				p.mu.Lock()
				ended := p.ended
				p.mu.Unlock()
				if ended {
					return
				}
			}
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
