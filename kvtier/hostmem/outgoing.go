package hostmem

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// errLink: the connection ended while a reservation was asked for.
var errLink = errors.New("hostmem: connection to the tier daemon lost")

// outgoing is what a client holds and what it still has to tell the daemon.
// Notices collect here and leave in batches; nothing here waits for the socket.
// All lists are bounded by the slots that the client holds.
type outgoing struct {
	mu       sync.Mutex
	held     map[uint64]uint64 // slot → generation: reserved by this client, cached ones included
	cache    []slotRef         // held and unused
	cacheMax int
	seals    []slotRef // notices to send
	drops    []slotRef
	corrupt  []slotRef
	poked    bool
	requests []message
	waiters  map[uint64]chan message
	lastID   uint64
	up       bool
	linked   chan struct{} // closed when a connection comes up
	kick     chan struct{} // something is to be sent
	broken   error
}

func (o *outgoing) init() {
	o.held = map[uint64]uint64{}
	o.waiters = map[uint64]chan message{}
	o.linked = make(chan struct{})
	o.kick = make(chan struct{}, 1)
}

func (o *outgoing) wake() {
	select {
	case o.kick <- struct{}{}:
	default:
	}
}

func (o *outgoing) connected() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.up
}

// owns tells whether a caller has r: it is held, and was not given back to be kept.
func (o *outgoing) owns(r slotRef) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	gen, ok := o.held[r[0]]
	return ok && gen == r[1] && !slices.Contains(o.cache, r)
}

// fromCache takes up to n slots that are reserved already.
func (o *outgoing) fromCache(n int) []slotRef {
	o.mu.Lock()
	defer o.mu.Unlock()
	n = min(n, len(o.cache))
	refs := make([]slotRef, n)
	at := len(o.cache) - n
	copy(refs, o.cache[at:])
	o.cache = o.cache[:at]
	return refs
}

// giveBack keeps slots for the next Reserve, or returns them if others wait or
// there are enough.
func (o *outgoing) giveBack(refs []slotRef, pressure bool) {
	if len(refs) == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range refs {
		if !pressure && len(o.cache) < o.cacheMax {
			o.cache = append(o.cache, r)
			continue
		}
		delete(o.held, r[0])
		o.drops = append(o.drops, r)
	}
	o.wake()
}

// trim gives the whole cache back.
func (o *outgoing) trim() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range o.cache {
		delete(o.held, r[0])
	}
	o.drops = append(o.drops, o.cache...)
	o.cache = o.cache[:0]
	o.wake()
}

func (o *outgoing) sealed(r slotRef) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.held, r[0])
	o.seals = append(o.seals, r)
	o.wake()
}

// report tells of a block with a wrong checksum. Reports beyond a bound are
// dropped: the block is reported again when it is read again.
func (o *outgoing) report(r slotRef) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.corrupt) < maxRefs {
		o.corrupt = append(o.corrupt, r)
		o.wake()
	}
}

func (o *outgoing) poke() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.poked = true
	o.wake()
}

// ask requests n slots (at most maxRefs) and waits for the answer.
func (o *outgoing) ask(ctx context.Context, n int, wait time.Duration) ([]slotRef, error) {
	id, answer, err := o.request(ctx, message{Op: opReserve, N: n, WaitMS: wait.Milliseconds()})
	if err != nil {
		return nil, err
	}
	select {
	case m, ok := <-answer:
		switch {
		case !ok:
			return nil, errLink
		case m.Op == opSlots:
			return m.Slots, nil
		case m.Code == codeFull:
			return nil, ErrFull
		default:
			return nil, fmt.Errorf("%w: %s", ErrRefused, m.Text)
		}
	case <-ctx.Done():
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.waiters, id)
		select {
		case m := <-answer: // it came in the same moment
			if m.Op == opSlots {
				return m.Slots, nil
			}
		default:
		}
		return nil, fmt.Errorf("%w: %w", ErrDown, ctx.Err())
	}
}

// request queues a message that is answered, as soon as there is a connection.
func (o *outgoing) request(ctx context.Context, m message) (uint64, chan message, error) {
	for {
		o.mu.Lock()
		if o.broken != nil {
			defer o.mu.Unlock()
			return 0, nil, o.broken
		}
		if o.up {
			break
		}
		linked := o.linked
		o.mu.Unlock()
		select {
		case <-linked:
		case <-ctx.Done():
			return 0, nil, fmt.Errorf("%w: %w", ErrDown, ctx.Err())
		}
	}
	defer o.mu.Unlock()
	o.lastID++
	answer := make(chan message, 1)
	o.waiters[o.lastID] = answer
	m.ID = o.lastID
	if m.Op == opReserve {
		m.Extra = max(0, o.cacheMax-len(o.cache))
	}
	o.requests = append(o.requests, m)
	o.wake()
	return o.lastID, answer, nil
}

// receive takes one message from the daemon.
func (o *outgoing) receive(m message) {
	if m.Op == opTrim {
		o.trim()
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	answer, ok := o.waiters[m.ID]
	delete(o.waiters, m.ID)
	for _, r := range m.Slots {
		o.held[r[0]] = r[1]
	}
	if ok {
		answer <- m
		return
	}
	for _, r := range m.Slots { // whoever asked has given up
		delete(o.held, r[0])
	}
	o.drops = append(o.drops, m.Slots...)
	o.wake()
}
