package chaos

import (
	"sort"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/weir-dev/weir/schemas"
)

// beats keeps the newest heartbeat of every executor.
type beats struct {
	mu   sync.Mutex
	last map[string]schemas.Heartbeat
}

func listen(nc *nats.Conn, cell string) (*beats, error) {
	b := &beats{last: map[string]schemas.Heartbeat{}}
	_, err := nc.Subscribe(schemas.HBSubject(cell, "*"), func(m *nats.Msg) {
		var h schemas.Heartbeat
		if schemas.Decode(m.Data, &h) != nil {
			return
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if h.Dead {
			delete(b.last, h.Executor)
			return
		}
		b.last[h.Executor] = h
	})
	return b, err
}

// with returns the heartbeats of executors of that role that hold jobs of that
// stage, by executor id.
func (b *beats) with(role schemas.Role, stage schemas.Stage) []schemas.Heartbeat {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []schemas.Heartbeat
	for _, h := range b.last {
		if h.Role != role {
			continue
		}
		for _, j := range h.Held {
			if j.Stage == stage {
				out = append(out, h)
				break
			}
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Executor < out[j].Executor })
	return out
}
