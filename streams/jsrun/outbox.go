package jsrun

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
)

// pending is a publish that the server has not acknowledged. It keeps the
// encoded message for repeats.
type pending struct {
	msg      nats.Msg
	id       string
	confirm  bool
	expect   bool
	checking bool // a conflict is being looked into, see outbox.conflict
	dead     bool // a dead letter: its own failure makes no other
	sent     int
	size     int
	snap     uint32 // snapshot generation it belongs to
	next     schemas.Time
	giveUp   schemas.Time
	lastErr  string
	chain    *streams.Chain[ackRef]
}

// settled is how a publish ended.
type settled struct {
	seq       uint64
	duplicate bool
	err       string // "" for success
}

// outbox sends publishes in order and follows them until they are settled. It
// belongs to the runner's goroutine. Publishes are numbered; the number is the
// last token of the reply subject, so one subscription receives all answers.
//
//	base            next
//	 | p . p p . . p |        slots[base..next): p is pending, . is settled
type outbox struct {
	nc     *nats.Conn
	acks   chan *nats.Msg
	sub    *nats.Subscription
	prefix string
	slots  []*pending
	base   uint64
	count  int
	bytes  int
	held   bool // nothing is sent: NATS is away or its streams are being made
	stats  *Stats

	ackTimeout, retryFor time.Duration
}

// Back-off of repeats: doubles from the first to the second.
const (
	minBackoff = 50 * time.Millisecond
	maxBackoff = 2 * time.Second
)

func newOutbox(nc *nats.Conn, cfg *Config, stats *Stats) (*outbox, error) {
	o := &outbox{nc: nc, base: 1, stats: stats, ackTimeout: cfg.AckTimeout, retryFor: cfg.RetryFor}
	// Room for every outstanding publish, some sent twice; an answer that does
	// not fit is asked for again by the repeat.
	o.acks = make(chan *nats.Msg, min(8*cfg.MaxInflight, 1<<16))
	o.prefix = nc.NewInbox() + "."
	var err error
	o.sub, err = nc.ChanSubscribe(o.prefix+"*", o.acks)
	return o, err
}

func (o *outbox) close() { _ = o.sub.Unsubscribe() }

// add takes a publish and sends it unless the outbox is held.
func (o *outbox) add(p *pending, now schemas.Time) {
	token := o.base + uint64(len(o.slots))
	if p.expect && p.id == "" {
		// Without an id a repeat could not be told from somebody else's message.
		p.id = "x-" + nuid.Next()
		if p.msg.Header == nil {
			p.msg.Header = nats.Header{}
		}
		p.msg.Header[hdrMsgID] = []string{p.id}
	}
	p.size = len(p.msg.Data) + len(p.msg.Subject) + 128
	p.msg.Reply = o.prefix + strconv.FormatUint(token, 36)
	p.giveUp = now + schemas.Time(o.retryFor)
	o.slots = append(o.slots, p)
	o.count++
	o.bytes += p.size
	o.stats.Inflight.Store(int64(o.count))
	o.stats.Out.Add(1)
	o.send(p, now)
}

func (o *outbox) send(p *pending, now schemas.Time) {
	if o.held {
		p.next = schemas.Never
		return
	}
	p.next = now + schemas.Time(o.ackTimeout)
	if p.sent > 0 {
		o.stats.Retried.Add(1)
	}
	p.sent++
	if err := o.nc.PublishMsg(&p.msg); err != nil {
		p.lastErr = err.Error()
		p.next = now + schemas.Time(minBackoff)
		if errors.Is(err, nats.ErrMaxPayload) {
			p.giveUp = now
		}
	}
}

// at finds a pending publish by the reply subject of its answer.
func (o *outbox) at(reply string) (uint64, *pending) {
	tok, ok := strings.CutPrefix(reply, o.prefix)
	if !ok {
		return 0, nil
	}
	n, err := strconv.ParseUint(tok, 36, 64)
	if err != nil || n < o.base || n >= o.base+uint64(len(o.slots)) {
		return 0, nil
	}
	return n, o.slots[n-o.base]
}

// settle forgets a publish.
func (o *outbox) settle(token uint64) {
	p := o.slots[token-o.base]
	o.slots[token-o.base] = nil
	o.count--
	o.bytes -= p.size
	o.stats.Inflight.Store(int64(o.count))
	for len(o.slots) > 0 && o.slots[0] == nil {
		o.slots = o.slots[1:]
		o.base++
	}
	if len(o.slots) == 0 {
		o.slots = nil // let go of the array that slicing walked along
	}
}

// hold stops sending. Time does not count against held publishes.
func (o *outbox) hold() {
	o.held = true
	for _, p := range o.slots {
		if p != nil {
			p.next = schemas.Never
		}
	}
}

// release sends everything that is pending again, in order, and starts the
// clock of each anew.
func (o *outbox) release(now schemas.Time) {
	o.held = false
	for _, p := range o.slots {
		if p != nil && !p.checking {
			p.giveUp = now + schemas.Time(o.retryFor)
			o.send(p, now)
		}
	}
}

// due returns when the next repeat is due, and repeats what is due now. Publishes
// whose time is up are returned by token.
func (o *outbox) due(now schemas.Time) (gaveUp []uint64) {
	if o.held {
		return nil
	}
	for i, p := range o.slots {
		if p == nil || p.checking || p.next > now {
			continue
		}
		if now >= p.giveUp {
			gaveUp = append(gaveUp, o.base+uint64(i))
			continue
		}
		if p.lastErr == "" {
			p.lastErr = "no acknowledgement within " + o.ackTimeout.String()
		}
		o.send(p, now)
	}
	return gaveUp
}

// again plans a repeat after an error that may pass.
func (o *outbox) again(p *pending, why string, now schemas.Time) {
	p.lastErr = why
	d := minBackoff << min(p.sent, 8)
	p.next = now + schemas.Time(min(d, maxBackoff))
}

// fate is what an answer of the server means for a publish.
type fate uint8

const (
	fateOK fate = iota
	fateConflict
	fateFull
	fateRetry
	fateNoStream // nobody listens: the stream is gone
	fateRefused
)

// JetStream error codes of publishes.
const (
	codeStoreFailed   = 10077
	codeWrongLast     = 10071
	codeWrongLastR    = 10164 // the same, on replicated streams
	codeTooLarge      = 10054
	codeStreamOffline = 10118
)

// judge reads an answer.
func judge(m *nats.Msg) (fate, settled) {
	if len(m.Data) == 0 {
		if first(m.Header, hdrStatus) == "503" {
			return fateNoStream, settled{err: "no stream takes the subject"}
		}
		return fateRetry, settled{err: "empty answer"}
	}
	a, err := parsePubAck(m.Data)
	switch {
	case err != nil:
		return fateRetry, settled{err: "unreadable answer"}
	case a.Error == nil && a.Seq > 0:
		return fateOK, settled{seq: a.Seq, duplicate: a.Duplicate}
	case a.Error == nil:
		return fateRetry, settled{err: "answer without a sequence"}
	}
	e := a.Error
	switch e.ErrCode {
	case codeWrongLast, codeWrongLastR:
		return fateConflict, settled{seq: standing(e.Description), err: schemas.ErrTextConflict}
	case codeStoreFailed, codeAccountLimit, codeInsufficient, codeMemoryLimit, codeStorageLimit:
		return fateFull, settled{err: schemas.ErrTextFull}
	case codeTooLarge:
		return fateRefused, settled{err: e.Description}
	}
	if e.Code == 503 || e.Code == 429 || e.Code == 408 || e.Code == 500 || e.ErrCode == codeStreamOffline {
		return fateRetry, settled{err: e.Description}
	}
	return fateRefused, settled{err: e.Description}
}

// standing is the last sequence that a refusal names, 0 where it names none: servers of a
// cluster leave it out while they agree on another publish.
func standing(text string) uint64 {
	n, _ := strings.CutPrefix(text, "wrong last sequence: ")
	seq, err := strconv.ParseUint(n, 10, 64)
	if err != nil {
		return 0
	}
	return seq
}
