package tierchaos

import (
	"encoding/json"
	"errors"
	"sync"
	"time"
)

// reports reads what a client process writes and keeps the newest.
type reports struct {
	mu     sync.Mutex
	newest report
	ready  chan struct{} // closed by the first report: it is attached
	paused chan struct{}
	ended  chan struct{}
}

func follow(p *process) *reports {
	r := &reports{ready: make(chan struct{}), paused: make(chan struct{}, 1), ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		first := true
		for line := range p.lines {
			var got report
			if json.Unmarshal(line, &got) != nil {
				continue // cut off by kill -9
			}
			r.mu.Lock()
			r.newest = got
			r.mu.Unlock()
			if first {
				close(r.ready)
				first = false
			}
			if got.Paused {
				select {
				case r.paused <- struct{}{}:
				default:
				}
			}
		}
	}()
	return r
}

// last is the newest report of a process that has ended.
func (r *reports) last() report {
	<-r.ended
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.newest
}

func (r *reports) waitReady() error  { return r.wait(r.ready, "attach") }
func (r *reports) waitPaused() error { return r.wait(r.paused, "pause") }

func (r *reports) wait(done <-chan struct{}, what string) error {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-r.ended:
		return errors.New("it ended")
	case <-timer.C:
		return errors.New("it does not " + what)
	}
}
