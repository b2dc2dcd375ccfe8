package hostmem

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"
)

// link is one connection of a client to the daemon.
type link struct {
	nc net.Conn
	r  *bufio.Reader
}

const (
	dialFirst = 5 * time.Millisecond // pause after the first failure; doubles
	dialMost  = 500 * time.Millisecond
)

// dialUntil connects, with growing pauses, until ctx ends or the daemon refuses.
func (c *Client) dialUntil(ctx context.Context) (*link, message, error) {
	pause := dialFirst
	for {
		l, m, err := c.dial(ctx)
		if errors.Is(err, ErrBusy) && !sameFile(c.lock, c.lock.Name()) {
			return nil, message{}, fmt.Errorf("%w: the lock file %s is gone", ErrReplaced, c.lock.Name())
		}
		if err == nil || errors.Is(err, ErrRefused) || errors.Is(err, ErrBudget) {
			return l, m, err
		}
		select {
		case <-ctx.Done():
			return nil, message{}, fmt.Errorf("%w in %s: %w (%w)", ErrDown, c.opt.Dir, err, ctx.Err())
		case <-time.After(pause):
		}
		pause = min(2*pause, dialMost)
	}
}

// dial connects once and says hello with everything that this client holds.
func (c *Client) dial(ctx context.Context) (*link, message, error) {
	d := net.Dialer{Timeout: ioTimeout}
	nc, err := d.DialContext(ctx, "unix", filepath.Join(c.opt.Dir, socketName))
	if err != nil {
		return nil, message{}, err
	}
	l := &link{nc: nc, r: bufio.NewReaderSize(nc, maxLine)}
	m, err := c.greet(l)
	if err != nil {
		_ = nc.Close()
		return nil, message{}, err
	}
	return l, m, nil
}

func (c *Client) greet(l *link) (message, error) {
	held, partial := c.out.restart()
	_ = l.nc.SetDeadline(time.Now().Add(ioTimeout))
	_, err := l.nc.Write(encode(message{
		Op: opHello, Proto: protoVersion, Writer: c.opt.Writer, Nonce: c.nonce.String(),
		Pool: c.opt.Pool, Block: c.opt.BlockBytes, Held: held, Partial: partial, Existing: c.opt.Existing,
	}))
	if err != nil {
		return message{}, err
	}
	m, err := readMessage(l.r)
	switch {
	case err != nil:
		return message{}, err
	case m.Op == opWelcome:
		return m, l.nc.SetDeadline(time.Time{})
	case m.Code == codeBudget:
		return message{}, fmt.Errorf("%w: %s", ErrBudget, m.Text)
	case m.Code == codeBusy:
		return message{}, fmt.Errorf("%w: %s", ErrBusy, m.Text)
	default:
		return message{}, fmt.Errorf("%w: %s", ErrRefused, m.Text)
	}
}

// run keeps the connection until Close.
func (c *Client) run(ctx context.Context, l *link) {
	defer c.wg.Done()
	for {
		c.serve(ctx, l)
		if ctx.Err() != nil {
			return
		}
		var m message
		var err error
		l, m, err = c.dialUntil(ctx)
		if err == nil && m.Arena != nonce(c.arena.id).String() {
			_ = l.nc.Close()
			err = fmt.Errorf("%w: %s", ErrReplaced, c.arena.path)
		}
		if err != nil {
			c.out.fail(err)
			return
		}
	}
}

// serve moves messages over one connection until it or ctx ends.
func (c *Client) serve(ctx context.Context, l *link) {
	c.out.connect()
	ended := make(chan struct{})
	c.wg.Add(1)
	go func() {
		defer c.wg.Done()
		defer close(ended)
		for {
			m, err := readMessage(l.r)
			if err != nil {
				return
			}
			c.out.receive(m)
		}
	}()
	c.send(ctx, l, ended)
	_ = l.nc.Close()
	<-ended
	c.out.disconnect()
}

func (c *Client) send(ctx context.Context, l *link, ended <-chan struct{}) {
	for {
		for _, m := range c.out.take() {
			_ = l.nc.SetWriteDeadline(time.Now().Add(ioTimeout))
			if _, err := l.nc.Write(encode(m)); err != nil {
				return
			}
		}
		select {
		case <-c.out.kick:
		case <-ended:
			return
		case <-ctx.Done():
			return
		}
	}
}

// restart lists what the client holds, for hello. Notices that did not leave are
// forgotten: the daemon learns the same from the slot headers and this list.
// What is reserved over the new connection cannot be missing from it.
func (o *outgoing) restart() (held []slotRef, partial bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for id, gen := range o.held {
		if len(held) == maxRefs {
			partial = true
			break
		}
		held = append(held, slotRef{id, gen})
	}
	o.seals, o.drops, o.requests = nil, nil, nil
	return held, partial
}

func (o *outgoing) connect() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.up = true
	close(o.linked)
}

// disconnect tells everybody who waits for an answer that none will come.
func (o *outgoing) disconnect() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.up = false
	o.linked = make(chan struct{})
	for id, answer := range o.waiters {
		delete(o.waiters, id)
		close(answer)
	}
	o.requests = nil
}

// fail ends all storing.
func (o *outgoing) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.broken = err
	close(o.linked) // wakes those who wait for a connection; there will be none
}

// take returns the messages that are to be sent, in an order in which the daemon
// may obey them: what frees slots comes before what asks for some.
func (o *outgoing) take() []message {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []message
	for _, q := range []struct {
		op   string
		refs *[]slotRef
	}{{opSealed, &o.seals}, {opAbandon, &o.drops}, {opCorrupt, &o.corrupt}} {
		for refs := *q.refs; len(refs) > 0; {
			n := min(len(refs), maxRefs)
			out = append(out, message{Op: q.op, Slots: refs[:n:n]})
			refs = refs[n:]
		}
		*q.refs = nil
	}
	if o.poked {
		out = append(out, message{Op: opPoke})
		o.poked = false
	}
	out = append(out, o.requests...)
	o.requests = nil
	return out
}
