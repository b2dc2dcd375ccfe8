package turns

import (
	"container/list"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weir-dev/weir/schemas"
)

// hub receives frames and results for all streams of a client. It subscribes
// per session: a gateway's own sessions come back turn after turn, so the
// subscriptions are seldom made, and turns of other gateways' sessions never
// arrive. All subscriptions feed one channel, which keeps the order in which the
// server sent: a turn's frames, then its result.
//
//	out.<t>.<s>.*    \                      / queue of stream 1
//	result.<t>.<s>.* --> in --> distribute -- queue of stream 2
//	...              /                      \ ...
type hub struct {
	nc   *nats.Conn
	opts *Options
	in   chan *nats.Msg
	done chan struct{}
	wg   sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	routes   map[string][]*Stream          // by subject
	sessions map[string]*session           // by tenant.session
	idle     *list.List                    // of *session without streams, longest first
	change   chan struct{}                 // closed at the next change of the connection
	tries    map[uint64]context.CancelFunc // publishes that wait for an answer
	lastTry  uint64
}

// session is one session's pair of subscriptions.
type session struct {
	key   string
	subs  [2]*nats.Subscription
	count int           // streams
	at    *list.Element // in hub.idle when count is 0
	since time.Time
}

func newHub(nc *nats.Conn, opts *Options) *hub {
	h := &hub{
		nc: nc, opts: opts, in: make(chan *nats.Msg, opts.Inbox), done: make(chan struct{}),
		routes: map[string][]*Stream{}, sessions: map[string]*session{}, idle: list.New(), change: make(chan struct{}),
		tries: map[uint64]context.CancelFunc{},
	}
	status := nc.StatusChanged(nats.CONNECTED, nats.DISCONNECTED, nats.RECONNECTING, nats.CLOSED)
	h.wg.Go(h.distribute)
	h.wg.Go(func() { h.watch(status) })
	return h
}

// add subscribes for a stream. It must precede the publish.
func (h *hub) add(s *Stream) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return ErrClosed
	}
	key := s.ref.Tenant + "." + s.ref.Session
	se := h.sessions[key]
	if se == nil {
		se = &session{key: key}
		for i, root := range [...]schemas.Root{schemas.RootOut, schemas.RootResult} {
			sub, err := h.nc.ChanSubscribe(string(root)+"."+key+".*", h.in)
			if err != nil {
				se.unsubscribe()
				return fmt.Errorf("%w: subscribing: %w", ErrUnavailable, err)
			}
			se.subs[i] = sub
		}
		h.sessions[key] = se
	}
	if se.at != nil {
		h.idle.Remove(se.at)
		se.at = nil
	}
	se.count++
	s.session = se
	h.routes[s.outSubject] = append(h.routes[s.outSubject], s)
	h.routes[s.resultSubject] = append(h.routes[s.resultSubject], s)
	return nil
}

// remove forgets a stream and keeps its session's subscriptions for a while.
func (h *hub) remove(s *Stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	se := s.session
	if se == nil {
		return
	}
	s.session = nil
	for _, subject := range [...]string{s.outSubject, s.resultSubject} {
		left := slices.DeleteFunc(h.routes[subject], func(o *Stream) bool { return o == s })
		if len(left) == 0 {
			delete(h.routes, subject)
		} else {
			h.routes[subject] = left
		}
	}
	if se.count--; se.count > 0 || h.closed {
		return
	}
	se.since = time.Now()
	se.at = h.idle.PushBack(se)
	if h.idle.Len() > h.opts.IdleSessions {
		h.drop(h.idle.Front())
	}
}

// drop unsubscribes an idle session. The caller holds the lock.
func (h *hub) drop(e *list.Element) {
	se, _ := h.idle.Remove(e).(*session)
	se.at = nil
	delete(h.sessions, se.key)
	se.unsubscribe()
}

func (se *session) unsubscribe() {
	for _, sub := range se.subs {
		if sub != nil {
			_ = sub.Unsubscribe() // fails only when the connection is closed
		}
	}
}

// distribute gives each message to the streams of its turn.
func (h *hub) distribute() {
	for {
		select {
		case m := <-h.in:
			h.mu.Lock()
			for _, s := range h.routes[m.Subject] {
				s.push(m)
			}
			h.mu.Unlock()
		case <-h.done:
			return
		}
	}
}

// watch follows the connection: after a reconnect every stream looks for what it
// missed. It also ends subscriptions that were idle for long.
func (h *hub) watch(status chan nats.Status) {
	sweep := time.NewTicker(h.opts.IdleFor / 4)
	defer sweep.Stop()
	for {
		select {
		case st := <-status:
			h.mu.Lock()
			close(h.change)
			h.change = make(chan struct{})
			if st != nats.CONNECTED {
				// Their answers are lost with the connection.
				for _, cancel := range h.tries {
					cancel()
				}
			}
			if st == nats.CONNECTED {
				for _, list := range h.routes {
					for _, s := range list {
						s.missed()
					}
				}
			}
			h.mu.Unlock()
		case now := <-sweep.C:
			h.mu.Lock()
			for e := h.idle.Front(); e != nil; e = h.idle.Front() {
				if se, _ := e.Value.(*session); now.Sub(se.since) < h.opts.IdleFor {
					break
				}
				h.drop(e)
			}
			h.mu.Unlock()
		case <-h.done:
			return
		}
	}
}

// connChange returns a channel that is closed when the connection's state changes.
func (h *hub) connChange() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.change
}

// trying registers a publish that is ended by cancel when the connection breaks.
func (h *hub) trying(cancel context.CancelFunc) (done func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lastTry++
	id := h.lastTry
	h.tries[id] = cancel
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.tries, id)
	}
}

func (h *hub) close() {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return
	}
	h.closed = true
	close(h.done)
	for _, se := range h.sessions {
		se.unsubscribe()
	}
	h.mu.Unlock()
	h.wg.Wait()
}
