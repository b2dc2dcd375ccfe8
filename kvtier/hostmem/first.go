package hostmem

import (
	"context"
	"encoding/hex"
	"time"

	"github.com/weir-dev/weir/kvtier"
)

// Bounds of First.
const (
	firstWait = 20 * time.Millisecond
	maxFirst  = 256 // keys of one question
)

// First is the index of the block that the daemon would give up first, of those that
// keys name in the client's pool, whatever is read at this moment. It orders by the
// same rules what lies elsewhere under the same names: an engine's own memory. It is
// -1 when nobody answers within 20 ms.
func (c *Client) First(keys []kvtier.Key) int {
	if len(keys) == 0 || len(keys) > maxFirst || !c.Connected() || !c.use() {
		return -1
	}
	defer c.life.RUnlock()
	ctx, cancel := context.WithTimeout(context.Background(), firstWait)
	defer cancel()
	text := make([]string, len(keys))
	for i, k := range keys {
		text[i] = hex.EncodeToString(k[:])
	}
	m, err := c.out.query(ctx, message{Op: opFirst, Keys: text})
	if err != nil || m.Op != opFirst || m.N < 0 || m.N >= len(keys) {
		return -1
	}
	return m.N
}

// answerFirst is the daemon's side.
func (d *Daemon) answerFirst(c *conn, m message) {
	out := message{Op: opFirst, ID: m.ID, N: -1}
	keys := keysFromHex(m.Keys)
	if len(keys) != len(m.Keys) || len(keys) > maxFirst || c.pool == nil {
		c.send(out)
		return
	}
	var best kvtier.SlotID
	for i, k := range keys {
		id, ok := c.pool.slots.Find(k)
		if !ok {
			out.N = i // it is gone here already
			break
		}
		if out.N < 0 || c.pool.slots.Before(id, best) {
			out.N, best = i, id
		}
	}
	c.send(out)
}
