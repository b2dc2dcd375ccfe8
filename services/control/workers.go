package control

import "context"

// queueMax bounds the operations that wait for a set of workers. What finds no room
// is told so, rather than kept: the memory of a service must have an end.
const queueMax = 4096

// workers do operations of one kind, a fixed number at once.
type workers struct {
	kind  string // for people, such as "rendering"
	queue chan func()
}

func newWorkers(kind string) *workers {
	return &workers{kind: kind, queue: make(chan func(), queueMax)}
}

// run starts n goroutines that work until ctx ends.
func (w *workers) run(ctx context.Context, n int) {
	for range n {
		go func() {
			for {
				select {
				case <-ctx.Done():
					return
				case f := <-w.queue:
					f()
				}
			}
		}()
	}
}

// take queues f, or reports that the queue is full. It never blocks.
func (w *workers) take(f func()) bool {
	select {
	case w.queue <- f:
		return true
	default:
		return false
	}
}
