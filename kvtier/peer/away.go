package peer

import (
	"sync"
	"time"
)

// away remembers nodes that failed, so that turns do not wait for them again and
// again. A node is tried again after a time that doubles with each failure.
type away struct {
	min, max time.Duration
	most     int

	mu    sync.Mutex
	nodes map[string]failing
}

type failing struct {
	until time.Time
	pause time.Duration
}

func (a *away) init(o Options) {
	a.min, a.max, a.most = o.BackoffMin, o.BackoffMax, o.MaxPeers
	a.nodes = map[string]failing{}
}

// wait is how long a node is still left alone.
func (a *away) wait(addr string, now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return max(0, a.nodes[addr].until.Sub(now))
}

func (a *away) good(addr string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.nodes, addr)
}

// bad counts a failure. When too many nodes are remembered, the one that may be tried
// soonest is forgotten.
func (a *away) bad(addr string, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f, known := a.nodes[addr]
	if now.Before(f.until) {
		return // several streams of one transfer fail together: that is one failure
	}
	if !known && len(a.nodes) >= a.most {
		soonest := ""
		for n, g := range a.nodes {
			if soonest == "" || g.until.Before(a.nodes[soonest].until) || g.until.Equal(a.nodes[soonest].until) && n < soonest {
				soonest = n
			}
		}
		delete(a.nodes, soonest)
	}
	f.pause = min(max(a.min, 2*f.pause), a.max)
	f.until = now.Add(f.pause)
	a.nodes[addr] = f
}
