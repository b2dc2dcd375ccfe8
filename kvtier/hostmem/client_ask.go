package hostmem

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/weir-dev/weir/kvtier"
)

// whyWait bounds Why: the answer is worth less than the turn that waits for it.
const whyWait = 50 * time.Millisecond

// eraseKeys is the number of keys in one erase message: below maxLine.
const eraseKeys = 512

// Why asks the daemon what became of a block that this client did not find. ok is
// false when the block is there, or nobody answers within 50 ms.
func (c *Client) Why(key kvtier.Key) (g Gone, ok bool) {
	if !c.Connected() || !c.use() {
		return Gone{}, false
	}
	defer c.life.RUnlock()
	ctx, cancel := context.WithTimeout(context.Background(), whyWait)
	defer cancel()
	m, err := c.out.query(ctx, message{Op: opWhy, Keys: []string{hex.EncodeToString(key[:])}})
	if err != nil || m.Op != opGone || m.N == 0 {
		return Gone{}, false
	}
	return Gone{AtNS: m.AtNS, Rule: m.Code}, true
}

// Erase removes blocks for good, in all pools of the daemon: see Daemon.Erase.
func (c *Client) Erase(ctx context.Context, keys []kvtier.Key) (removed int, err error) {
	if !c.use() {
		return 0, ErrClosed
	}
	defer c.life.RUnlock()
	left := 0
	for len(keys) > 0 {
		n := min(len(keys), eraseKeys)
		text := make([]string, n)
		for i, k := range keys[:n] {
			text[i] = hex.EncodeToString(k[:])
		}
		m, err := c.out.query(ctx, message{Op: opErase, Keys: text})
		if err != nil {
			return removed, fmt.Errorf("erase %d blocks: %w", len(keys), err)
		}
		if m.Op != opErased {
			return removed, fmt.Errorf("%w: %s", ErrRefused, m.Text)
		}
		removed, left, keys = removed+m.N, left+m.Extra, keys[n:]
	}
	return removed, inUse(left)
}

// query sends a message and waits for its answer. The connection may end meanwhile:
// then nobody knows whether it was obeyed.
func (o *outgoing) query(ctx context.Context, m message) (message, error) {
	id, answer, err := o.request(ctx, m)
	if err != nil {
		return message{}, err
	}
	select {
	case m, ok := <-answer:
		if !ok {
			return message{}, fmt.Errorf("%w: %w", ErrDown, errLink)
		}
		return m, nil
	case <-ctx.Done():
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.waiters, id)
		return message{}, fmt.Errorf("%w: %w", ErrDown, ctx.Err())
	}
}

// answerWhy and answerErase are the daemon's side.
func (d *Daemon) answerWhy(c *conn, m message) {
	k, ok := keyFromHex(firstOf(m.Keys))
	if !ok {
		_ = c.nc.Close() // no client of ours sends this
		return
	}
	out := message{Op: opGone, ID: m.ID}
	if g, gone := d.why(k); gone {
		out.N, out.AtNS, out.Code = 1, g.AtNS, g.Rule
	}
	c.send(out)
}

// erasesAtOnce bounds what one client has erased at once.
const erasesAtOnce = 8

// answerErase erases beside the loop, in steps.
func (d *Daemon) answerErase(c *conn, m message) {
	keys := keysFromHex(m.Keys)
	if c.erasing >= erasesAtOnce {
		c.send(message{Op: opErased, ID: m.ID, Extra: len(keys)}) // ask again
		return
	}
	c.erasing++
	d.wg.Go(func() {
		removed, left, err := d.erase(keys)
		if err != nil {
			left++ // ask again
		}
		d.do(func() {
			c.erasing--
			c.send(message{Op: opErased, ID: m.ID, N: removed, Extra: left})
		})
	})
}

func firstOf(s []string) string {
	if len(s) == 0 {
		return ""
	}
	return s[0]
}
