package peer

import (
	"errors"
	"io"
	"net"
	"os"
	"time"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/kvtier/hostmem"
)

const (
	// sendBytes is how much is written with one call: large enough to cost nothing
	// beside the copy, small enough that few blocks are leased at a time.
	sendBytes  = 4 << 20
	sendBlocks = 64
	// helloTime bounds the exchange before the first request, and each later message of
	// a client, which is small.
	helloTime = 2 * time.Second
)

// session is one connection at the server.
type session struct {
	s    *Server
	nc   net.Conn
	pool poolID

	buf   []byte // keys of a request
	out   []byte
	heads [sendBlocks][blockBytes]byte
	bufs  net.Buffers
	refs  []hostmem.Ref
}

// run answers requests until the client goes, sends what no client sends, or does not
// read.
func (c *session) run() {
	if !c.greet() {
		return
	}
	for {
		_ = c.nc.SetReadDeadline(time.Now().Add(c.s.cfg.IdleTime))
		var head [requestBytes]byte
		if _, err := io.ReadFull(c.nc, head[:1]); err != nil {
			return // it has gone, or has nothing to ask
		}
		_ = c.nc.SetReadDeadline(time.Now().Add(helloTime))
		if _, err := io.ReadFull(c.nc, head[1:]); err != nil {
			return
		}
		q, buf, err := readRequest(c.nc, &head, c.buf)
		c.buf = buf
		if err != nil {
			c.bad(err)
			return
		}
		c.s.count.requests.Add(1)
		if !c.answer(q) {
			return
		}
	}
}

func (c *session) bad(err error) {
	if errors.Is(err, ErrProtocol) || errors.Is(err, ErrVersion) {
		c.s.count.bad.Add(1)
	}
}

// greet agrees on version, token and pool.
func (c *session) greet() bool {
	_ = c.nc.SetDeadline(time.Now().Add(helloTime))
	mine := newNonce()
	if _, err := c.nc.Write(appendGreeting(nil, mine)); err != nil {
		return false
	}
	h, err := readHello(c.nc)
	st, text := statusOK, ""
	switch {
	case errors.Is(err, ErrVersion):
		st, text = statusVersion, err.Error()
		c.bad(err)
	case err != nil:
		c.bad(err)
		return false
	case !same(h.mac, prove(c.s.cfg.Token, fromClient, mine, &h, statusOK)):
		st, text = statusToken, "the tokens of the two nodes differ"
	default:
		st, text = c.join(poolID{h.pool, h.block})
	}
	if st != statusOK {
		c.s.count.refused.Add(1)
	}
	_ = c.nc.SetDeadline(time.Now().Add(helloTime))
	_, err = c.nc.Write(appendWelcome(nil, st, text, prove(c.s.cfg.Token, fromServer, mine, &h, st)))
	_ = c.nc.SetDeadline(time.Time{})
	return err == nil && st == statusOK
}

// join looks whether the pool can be served.
func (c *session) join(id poolID) (status, string) {
	_, leave, err := c.s.pools.use(c.s.ctx, id)
	switch {
	case errors.Is(err, ErrNoPool):
		return statusNoPool, "this node holds no pool " + id.name + " with blocks of that size"
	case err != nil:
		return statusBusy, err.Error()
	}
	leave()
	c.pool = id
	return statusOK, ""
}

// answer does one request; false ends the connection.
func (c *session) answer(q request) bool {
	mem, leave, err := c.s.pools.use(c.s.ctx, c.pool)
	if err != nil { // the pool has gone since the connection began
		if q.op == opGet {
			return false
		}
		return c.write(appendList(c.out[:0], statusNoPool, nil))
	}
	defer leave()
	if q.op == opList {
		st := statusOK
		chain := walk(mem, q.keys[0], q.from, q.n)
		if len(chain) == 0 {
			st = statusMissing
			c.s.count.missing.Add(uint64(q.n))
		}
		c.out = appendList(c.out[:0], st, chain)
		return c.write(c.out)
	}
	for keys := q.keys; len(keys) > 0; {
		n := int(min(max(1, sendBytes/c.pool.block), sendBlocks, int64(len(keys))))
		if !c.send(mem, keys[:n]) {
			return false
		}
		keys = keys[n:]
	}
	return true
}

// walk returns the blocks of an extent, from its last one back as far as they are
// here.
func walk(mem *hostmem.Client, last kvtier.Key, from, n int) []kvtier.Block {
	b, ok := mem.Block(last)
	if !ok || b.Index != from+n-1 {
		return nil
	}
	chain := make([]kvtier.Block, n)
	for i := n - 1; ; i-- {
		chain[i] = b
		if i == 0 {
			return chain
		}
		prev, ok := mem.Block(b.Parent)
		if !ok || prev.Index != b.Index-1 {
			return chain[i:]
		}
		b = prev
	}
}

func (c *session) write(b []byte) bool {
	_ = c.nc.SetWriteDeadline(time.Now().Add(c.s.cfg.LeaseTime))
	_, err := c.nc.Write(b)
	c.cut(err)
	return err == nil
}

func (c *session) cut(err error) {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.s.count.cutOff.Add(1)
	}
}

// send writes some blocks out of the memory in which they lie. They are leased
// meanwhile, at most for LeaseTime. Should a block be replaced under the lease,
// because it was found corrupt, the receiver sees that its bytes have another
// checksum.
func (c *session) send(mem *hostmem.Client, keys []kvtier.Key) bool {
	c.bufs, c.refs = c.bufs[:0], c.refs[:0]
	data := 0
	for i := range keys {
		k := block{status: statusMissing, Block: kvtier.Block{Key: keys[i]}}
		var body []byte
		if refs := mem.Lease(keys[i : i+1]); len(refs) == 1 {
			c.refs = append(c.refs, refs[0])
			if b, crc, ok := mem.Describe(refs[0]); ok {
				k.Block, k.sum, k.status = b, crc, statusOK
				body = mem.Data(refs[0])
			}
		}
		k.put(&c.heads[i])
		c.bufs = append(c.bufs, c.heads[i][:])
		if k.status == statusOK {
			c.bufs = append(c.bufs, body)
			data++
		}
	}
	_ = c.nc.SetWriteDeadline(time.Now().Add(c.s.cfg.LeaseTime))
	bufs := c.bufs // WriteTo consumes its receiver
	_, err := bufs.WriteTo(c.nc)
	mem.Release(c.refs)
	c.cut(err)
	c.s.count.missing.Add(uint64(len(keys) - data))
	if err == nil {
		c.s.count.blocks.Add(uint64(data))
		c.s.count.bytes.Add(uint64(data) * uint64(c.pool.block))
	}
	return err == nil
}
