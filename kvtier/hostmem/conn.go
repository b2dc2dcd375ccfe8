package hostmem

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/weir-dev/weir/kvtier"
)

const (
	maxConns   = 4 * maxWriters // more are cut off: a client has one
	sendQueue  = 64             // answers that wait for a slow client; more and it is cut off
	maxWaiting = 4 * maxWriters // reservations that wait for room, per pool
	maxWait    = 10 * time.Second
)

// conn is one client's connection. reader and sender are its goroutines; the
// loop owns the rest.
type conn struct {
	nc  net.Conn
	out chan []byte
	end chan struct{}

	pool    *pool
	writer  *writer
	erasing int // requests to erase that are being done
}

// waiting is a reservation that found no room.
type waiting struct {
	conn     *conn
	id       uint64
	n        int
	deadline time.Time
}

func (d *Daemon) admit(nc net.Conn) {
	if len(d.conns) >= maxConns {
		_ = nc.Close()
		return
	}
	c := &conn{nc: nc, out: make(chan []byte, sendQueue), end: make(chan struct{})}
	d.conns[c] = struct{}{}
	d.wg.Add(2)
	go d.read(c)
	go d.write(c)
}

// read passes messages to the loop until the client goes or sends garbage.
func (d *Daemon) read(c *conn) {
	defer d.wg.Done()
	defer close(c.end)
	defer c.nc.Close()
	go func() { // Close must not wait for a silent client
		select {
		case <-d.quit:
			_ = c.nc.Close()
		case <-c.end:
		}
	}()
	r := bufio.NewReaderSize(c.nc, maxLine)
	_ = c.nc.SetReadDeadline(time.Now().Add(ioTimeout)) // for the hello
	for {
		m, err := readMessage(r)
		if err != nil || !d.do(func() { d.handle(c, m) }) {
			d.do(func() { d.gone(c) })
			return
		}
		if m.Op == opHello {
			_ = c.nc.SetReadDeadline(time.Time{})
		}
	}
}

func (d *Daemon) write(c *conn) {
	defer d.wg.Done()
	for {
		select {
		case line := <-c.out:
			_ = c.nc.SetWriteDeadline(time.Now().Add(ioTimeout))
			if _, err := c.nc.Write(line); err != nil {
				_ = c.nc.Close() // the reader sees it and ends the connection
				return
			}
		case <-c.end:
			return
		}
	}
}

// send queues an answer. A client that does not read its answers is cut off.
func (c *conn) send(m message) {
	select {
	case c.out <- encode(m):
	default:
		_ = c.nc.Close()
	}
}

// gone forgets a connection. The client may live on: its lock decides.
func (d *Daemon) gone(c *conn) {
	delete(d.conns, c)
	if c.writer == nil {
		return
	}
	p := c.pool
	p.waiting = slices.DeleteFunc(p.waiting, func(w waiting) bool { return w.conn == c })
	if c.writer.conn == c {
		c.writer.conn = nil
		d.bury(p, false)
	}
	p.serveWaiting(time.Now())
}

// handle runs one message. The first must be hello.
func (d *Daemon) handle(c *conn, m message) {
	if m.Op == opHello {
		if err := d.hello(c, m); err != nil {
			c.send(message{Op: opError, Code: code(err), Text: err.Error()})
		}
		return
	}
	if c.writer == nil || c.writer.conn != c {
		_ = c.nc.Close()
		return
	}
	p, no := c.pool, c.writer.no
	switch m.Op {
	case opReserve:
		p.ask(c, m)
		return
	case opWhy:
		d.answerWhy(c, m)
		return
	case opFirst:
		d.answerFirst(c, m)
		return
	case opErase:
		d.answerErase(c, m)
	case opDisk:
		d.answerDisk(c, m)
		return
	case opTrail:
		d.answerTrail(c, m)
		return
	case opBad:
		d.checkDisk(p, keysFromHex(m.Keys))
		return
	case opSealed:
		for _, r := range reservations(m.Slots) {
			p.adopt(no, r, false)
		}
	case opAbandon:
		for _, r := range reservations(m.Slots) {
			_ = p.abandon(no, r) // not its slot (any more): nothing to free
		}
	case opCorrupt:
		p.corrupt(m.Slots)
	case opPoke:
	default:
		_ = c.nc.Close()
		return
	}
	p.serveWaiting(time.Now())
}

func reservations(refs []slotRef) []kvtier.Reservation {
	out := make([]kvtier.Reservation, 0, len(refs))
	for _, r := range refs {
		if r[0] < kvtier.MaxSlots {
			out = append(out, kvtier.Reservation{Slot: kvtier.SlotID(r[0]), Gen: r[1]})
		}
	}
	return out
}

func code(err error) string {
	switch {
	case errors.Is(err, ErrBusy):
		return codeBusy
	case errors.Is(err, ErrBudget), errors.Is(err, ErrNoSpace):
		return codeBudget
	default:
		return codeRefused
	}
}

// hello attaches a client, or connects one again after either side's connection
// or the daemon was lost.
func (d *Daemon) hello(c *conn, m message) error {
	raw, err := hex.DecodeString(m.Nonce)
	switch {
	case c.writer != nil:
		return fmt.Errorf("%w: second hello", ErrRefused)
	case m.Proto != protoVersion:
		return fmt.Errorf("%w: protocol %d, this daemon speaks %d; run one version of weir on a host", ErrRefused, m.Proto, protoVersion)
	case err != nil || len(raw) != len(nonce{}):
		return fmt.Errorf("%w: nonce %q", ErrRefused, m.Nonce)
	}
	if err := errors.Join(checkWriterID(m.Writer), checkPool(m.Pool, m.Block)); err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	n := nonce(raw)
	if !ownsLock(d.cfg.Dir, m.Writer, n) {
		return fmt.Errorf("%w: writer %s does not hold its lock", ErrBusy, m.Writer)
	}
	d.endEarlierLives(m.Writer, n)
	if m.Existing && !d.has(m.Pool, m.Block) {
		return fmt.Errorf("%w: no pool %q with blocks of %d bytes", ErrRefused, m.Pool, m.Block)
	}
	p, err := d.poolFor(m.Pool, m.Block)
	if err != nil {
		return err
	}
	w, err := d.seat(p, m.Writer, n)
	if err != nil {
		return err
	}
	w.guest = m.Existing
	if old := w.conn; old != nil {
		_ = old.nc.Close()
		// What it asked for would be given to nobody.
		p.waiting = slices.DeleteFunc(p.waiting, func(q waiting) bool { return q.conn == old })
	}
	w.conn, c.pool, c.writer = c, p, w
	held := m.Held
	if held == nil {
		held = []slotRef{}
	}
	if m.Partial {
		held = nil
	}
	p.settle(w.no, false, held)
	c.send(message{
		Op: opWelcome, File: poolFile(p.pool, p.block), Arena: nonce(p.arena.id).String(),
		No: w.no, Cache: p.cacheSlots(), Disk: d.spill != nil,
	})
	p.serveWaiting(time.Now())
	return nil
}

// endEarlierLives reclaims what earlier processes of this writer id held, in all
// pools: the lock is exclusive, and its present holder has another nonce.
func (d *Daemon) endEarlierLives(id string, n nonce) {
	for _, p := range d.pools {
		for _, w := range p.writers {
			if w != nil && w.id == id && w.nonce != n {
				p.reclaim(w.no)
			}
		}
	}
}

// poolFor finds or makes the pool. Pools that no living client uses give way
// when the budget does not suffice.
func (d *Daemon) poolFor(name string, block int64) (*pool, error) {
	for _, p := range d.pools {
		if p.pool == name && p.block == block {
			return p, nil
		}
	}
	a, err := d.store.create(name, block)
	for i := 0; errors.Is(err, ErrBudget) && i < len(d.pools); {
		p := d.pools[i]
		if d.bury(p, true) > 0 {
			err = fmt.Errorf("%w; pool %q with blocks of %d bytes is in use", err, p.pool, p.block)
			i++
			continue
		}
		p.dismiss()
		if err := d.forget(p); err != nil {
			return nil, err
		}
		a, err = d.store.create(name, block)
	}
	if err != nil {
		return nil, err
	}
	p := d.newPool(a)
	d.pools = append(d.pools, p)
	return p, nil
}

// seat gives a client its number in the pool: the one it has, or a free one.
func (d *Daemon) seat(p *pool, id string, n nonce) (*writer, error) {
	for _, w := range p.writers {
		if w != nil && w.id == id {
			return w, nil // of this nonce: earlier lives were ended
		}
	}
	d.bury(p, true)
	for no, w := range p.writers {
		if w == nil {
			p.saveWriter(no, id, n)
			p.writers[no] = &writer{id: id, nonce: n, no: no}
			return p.writers[no], nil
		}
	}
	return nil, fmt.Errorf("%w: pool %q has %d clients, the most that one pool takes", ErrRefused, p.pool, maxWriters)
}
