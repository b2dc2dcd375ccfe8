package jsrun

import (
	"slices"
	"sync"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
)

// recentAcks is how many acknowledged sequences an input remembers, so that a
// message whose acknowledgement was lost is acknowledged again instead of handled
// again. It covers what can be on the way when a connection breaks.
const recentAcks = 4096

// input is one configured input with what is in hand. The feeder's goroutine
// adds to it, the runner's takes from it.
type input struct {
	cfg      streams.Input
	stream   streams.Stream
	root     schemas.Root
	consumer string // consumer name
	kick     chan struct{}

	stepped uint64 // last sequence handed to the actor; the runner's goroutine only

	mu      sync.Mutex
	held    map[uint64]string // sequence -> reply subject to acknowledge on
	seen    uint64            // last sequence that arrived
	seenAny bool
	acked   []uint64 // ring of the last acknowledged sequences
	ackedAt int
}

func newInput(cfg streams.Input, topo []streams.Stream, name string) *input {
	in := &input{cfg: cfg.WithDefaults(), consumer: name, kick: make(chan struct{}, 1), held: map[uint64]string{}}
	if cfg.Durable != "" {
		in.consumer = cfg.Durable
	}
	if !cfg.Core {
		in.stream, _ = streams.Find(topo, cfg.Stream)
	}
	for _, r := range schemas.Roots() {
		if !cfg.Core && streams.StreamOf(r) == cfg.Stream {
			in.root = r
		}
	}
	return in
}

// arrival says what to do with a message that arrived.
type arrival uint8

const (
	arrivalNew    arrival = iota
	arrivalInHand         // it is in hand already
	arrivalAcked          // it was acknowledged already: say so again
)

// arrive takes note of a message.
func (in *input) arrive(m meta, reply string) arrival {
	in.mu.Lock()
	defer in.mu.Unlock()
	again := in.seenAny && m.seq <= in.seen
	in.seenAny = true
	in.seen = max(in.seen, m.seq)
	if in.cfg.Policy == streams.NoAck {
		return arrivalNew
	}
	if again {
		if _, ok := in.held[m.seq]; ok {
			in.held[m.seq] = reply // the consumer may be another one since
			return arrivalInHand
		}
		if slices.Contains(in.acked, m.seq) {
			return arrivalAcked
		}
	}
	in.held[m.seq] = reply
	return arrivalNew
}

// take removes a message from those in hand. acked remembers that it is done.
func (in *input) take(seq uint64, acked bool) (reply string, ok bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	reply, ok = in.held[seq]
	if !ok {
		return "", false
	}
	delete(in.held, seq)
	if acked {
		if len(in.acked) < recentAcks {
			in.acked = append(in.acked, seq)
		} else {
			in.acked[in.ackedAt] = seq
			in.ackedAt = (in.ackedAt + 1) % recentAcks
		}
	}
	return reply, true
}

// replies returns and forgets all that is in hand.
func (in *input) replies() []string {
	in.mu.Lock()
	defer in.mu.Unlock()
	out := make([]string, 0, len(in.held))
	for _, r := range in.held {
		out = append(out, r)
	}
	clear(in.held)
	return out
}

// resumeAt is the first sequence that a new consumer must deliver so that
// nothing is missed; ok is false when nothing arrived yet.
func (in *input) resumeAt() (seq uint64, ok bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.seenAny {
		return 0, false
	}
	seq = in.seen + 1
	for s := range in.held {
		seq = min(seq, s)
	}
	return seq, true
}

// sawUpTo sets the point where a consumer of new messages began.
func (in *input) sawUpTo(seq uint64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.seenAny {
		in.seenAny, in.seen = true, seq
	}
}

func (in *input) poke() {
	select {
	case in.kick <- struct{}{}:
	default:
	}
}
