package stack

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"
)

// Process is one process of a stack.
type Process struct {
	ID   string `json:"id"`
	Role string `json:"role"`
	PID  int    `json:"pid"`
}

// Event is a line that `weir up -o json` prints: ready, ended, restarted.
type Event struct {
	Event string `json:"event"`
	Process
	Outside   bool      `json:"outside"`
	Cause     string    `json:"cause"`
	HTTP      string    `json:"http"`
	NATS      string    `json:"nats"`
	Dir       string    `json:"dir"`
	KVDir     string    `json:"kv_dir"`
	KVDirs    []string  `json:"kv_dirs"` // of all nodes
	Cell      string    `json:"cell"`
	Model     string    `json:"model"`
	Engine    string    `json:"engine"`
	Processes []Process `json:"processes"`

	At time.Time `json:"-"` // when the line was read
}

// events collects the lines of one supervisor.
type events struct {
	mu      sync.Mutex
	all     []Event
	changed chan struct{} // closed and replaced at each event
	ended   bool          // no more will come
}

func newEvents() *events { return &events{changed: make(chan struct{})} }

// follow reads lines until the supervisor closes its output.
func (e *events) follow(r io.Reader) {
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 64<<10), 1<<20)
	for sc.Scan() {
		var ev Event
		if json.Unmarshal(sc.Bytes(), &ev) == nil && ev.Event != "" {
			ev.At = time.Now()
			e.add(func() { e.all = append(e.all, ev) })
		}
	}
	e.add(func() { e.ended = true })
}

func (e *events) add(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
	close(e.changed)
	e.changed = make(chan struct{})
}

// list returns a copy of all events so far.
func (e *events) list() []Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]Event(nil), e.all...)
}

// wait returns the first event from index from on that match accepts, and its index.
func (e *events) wait(ctx context.Context, from int, what string, match func(*Event) bool) (Event, int, error) {
	for {
		e.mu.Lock()
		for ; from < len(e.all); from++ {
			if match(&e.all[from]) {
				ev := e.all[from]
				e.mu.Unlock()
				return ev, from, nil
			}
		}
		changed, ended := e.changed, e.ended
		e.mu.Unlock()
		if ended {
			return Event{}, 0, fmt.Errorf("stack: the supervisor ended before it said: %s", what)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return Event{}, 0, fmt.Errorf("stack: waiting for: %s: %w", what, context.Cause(ctx))
		}
	}
}
