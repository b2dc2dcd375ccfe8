package simrun

import (
	"strings"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
)

// packet is a message on its way to a stream.
type packet struct {
	subject   string
	id        string
	expectSet bool
	expect    uint64
	body      []byte
	shared    schemas.Message // instead of body with ShareBodies
	kind      schemas.Kind    // of shared
	trace     schemas.Trace
}

// sharedSize is what a message counts with ShareBodies, in bytes: a typical one.
const sharedSize = 512

func (p *packet) size() int64 {
	if p.body == nil {
		return sharedSize
	}
	return int64(len(p.body) + len(p.subject) + len(p.id) + 32)
}

// stored is a message in a stream.
type stored struct {
	packet
	seq uint64
	at  schemas.Time
}

// stream is one stream in memory. msgs[i] has sequence base+i and is nil when removed.
type stream struct {
	cfg    streams.Stream
	base   uint64
	msgs   []*stored
	bytes  int64
	count  int64
	last   map[string]*subjectState
	ids    map[string]uint64
	idLog  []idTime
	byHead map[string][]*consumer // by the literal head of their filters
	all    []*consumer            // without filters
	names  map[string]*consumer
}

type subjectState struct {
	seqs []uint64 // of this subject, ascending; those removed are dropped from the front
}

type idTime struct {
	id string
	at schemas.Time
}

func newStream(cfg streams.Stream) *stream {
	return &stream{
		cfg: cfg, base: 1, last: map[string]*subjectState{}, ids: map[string]uint64{},
		byHead: map[string][]*consumer{}, names: map[string]*consumer{},
	}
}

// verdict is what a stream says to a publish.
type verdict struct {
	seq       uint64
	duplicate bool
	text      string // "" for stored, or schemas.ErrText…, or another reason
	gone      error
}

func (v verdict) err() error {
	switch {
	case v.gone != nil:
		return v.gone
	case v.text == "":
		return nil
	case v.text == schemas.ErrTextFull:
		return ErrFull
	}
	return &refusal{v.text}
}

type refusal struct{ text string }

func (r *refusal) Error() string { return "simrun: refused: " + r.text }

// take stores a packet in the stream that its subject belongs to and wakes the
// consumers. The order of checks is the server's: expected sequence, then id.
func (s *Sim) take(p *packet) verdict {
	st := s.streamFor(p.subject)
	if st == nil {
		return verdict{gone: ErrNoStream, text: ErrNoStream.Error()}
	}
	p.subject = streams.StoredSubject(p.subject)
	st.expire(s.now)
	if p.expectSet {
		if last := st.lastSeq(p.subject); last != p.expect {
			s.logf("%s conflict %s %s", st.cfg.Name, p.subject, p.id)
			return verdict{seq: last, text: schemas.ErrTextConflict}
		}
	}
	if seq, ok := st.ids[p.id]; ok && p.id != "" {
		s.logf("%s duplicate %s %s", st.cfg.Name, p.subject, p.id)
		return verdict{seq: seq, duplicate: true}
	}
	if size := p.size(); size > int64(st.cfg.MaxMsgSize) {
		return verdict{text: "message size exceeds maximum allowed"}
	}
	if !st.makeRoom(p) {
		s.logf("%s full %s %s", st.cfg.Name, p.subject, p.id)
		return verdict{text: schemas.ErrTextFull}
	}
	m := st.append(p, s.now)
	s.logf("%s stored %d %s %s %s", st.cfg.Name, m.seq, m.subject, m.id, m.body)
	st.eachMatching(m.subject, func(c *consumer) {
		c.queue = append(c.queue, m.seq)
		s.pump(c)
	})
	return verdict{seq: m.seq}
}

func (s *Sim) streamFor(subject string) *stream {
	root, _, _ := strings.Cut(subject, ".")
	if st := s.byName[streams.StreamOf(schemas.Root(root))]; st != nil {
		return st
	}
	for _, st := range s.streams {
		for _, f := range st.cfg.Subjects {
			if streams.Matches(f, subject) {
				return st
			}
		}
	}
	return nil
}

func (st *stream) append(p *packet, now schemas.Time) *stored {
	m := &stored{packet: *p, seq: st.base + uint64(len(st.msgs)), at: now}
	st.msgs = append(st.msgs, m)
	st.bytes += m.size()
	st.count++
	if !st.tracks() {
		return st.remember(m, now)
	}
	sub := st.last[m.subject]
	if sub == nil {
		sub = &subjectState{}
		st.last[m.subject] = sub
	}
	sub.seqs = append(sub.seqs, m.seq)
	if k := st.cfg.MaxMsgsPerSubject; k > 0 {
		for int64(len(sub.seqs)) > k {
			st.remove(sub.seqs[0])
		}
	}
	return st.remember(m, now)
}

// remember keeps a message's id for the window in which it may come again.
func (st *stream) remember(m *stored, now schemas.Time) *stored {
	if m.id != "" && st.cfg.Duplicates > 0 {
		st.ids[m.id] = m.seq
		st.idLog = append(st.idLog, idTime{m.id, now})
	}
	return m
}

// tracks tells whether the messages of each subject are listed. Where a subject hardly
// ever has two, such as one per job, a list each would cost more than it saves.
func (st *stream) tracks() bool { return st.cfg.MaxMsgsPerSubject > 0 }

// makeRoom applies the size limits; false means that the packet is refused.
func (st *stream) makeRoom(p *packet) bool {
	need := p.size()
	if k := st.cfg.MaxMsgsPerSubject; k > 0 {
		// What this message replaces makes room for it.
		if sub := st.last[p.subject]; sub != nil && int64(len(sub.seqs)) >= k {
			need -= st.get(sub.seqs[0]).size()
		}
	}
	for st.bytes+need > st.cfg.MaxBytes || st.cfg.MaxMsgs > 0 && st.count >= st.cfg.MaxMsgs {
		if st.cfg.Discard == streams.DiscardNew || st.count == 0 {
			return false
		}
		st.removeFirst()
	}
	return true
}

// expire removes what is older than the stream's age, and ids out of the window.
func (st *stream) expire(now schemas.Time) {
	if st.cfg.MaxAge > 0 {
		for len(st.msgs) > 0 {
			m := st.msgs[0]
			if m != nil && now-m.at < schemas.Time(st.cfg.MaxAge) {
				break
			}
			st.removeFirst()
		}
	}
	n := 0
	for n < len(st.idLog) && now-st.idLog[n].at >= schemas.Time(st.cfg.Duplicates) {
		delete(st.ids, st.idLog[n].id)
		n++
	}
	st.idLog = st.idLog[n:]
}

func (st *stream) get(seq uint64) *stored {
	if seq < st.base || seq >= st.base+uint64(len(st.msgs)) {
		return nil
	}
	return st.msgs[seq-st.base]
}

func (st *stream) lastSeq(subject string) uint64 {
	if !st.tracks() {
		for i := len(st.msgs) - 1; i >= 0; i-- {
			if m := st.msgs[i]; m != nil && m.subject == subject {
				return m.seq
			}
		}
		return 0
	}
	if sub := st.last[subject]; sub != nil && len(sub.seqs) > 0 {
		return sub.seqs[len(sub.seqs)-1]
	}
	return 0
}

func (st *stream) removeFirst() {
	for _, m := range st.msgs {
		if m != nil {
			st.remove(m.seq)
			return
		}
	}
}

// remove deletes one message.
func (st *stream) remove(seq uint64) {
	m := st.get(seq)
	if m == nil {
		return
	}
	st.msgs[seq-st.base] = nil
	st.bytes -= m.size()
	st.count--
	if sub := st.last[m.subject]; sub != nil {
		for i, q := range sub.seqs {
			if q == seq {
				sub.seqs = append(sub.seqs[:i], sub.seqs[i+1:]...)
				break
			}
		}
		if len(sub.seqs) == 0 {
			delete(st.last, m.subject)
		}
	}
	for len(st.msgs) > 0 && st.msgs[0] == nil {
		st.msgs = st.msgs[1:]
		st.base++
	}
}

// eachMatching calls f for the consumers whose filters take the subject. They
// are found by the literal heads of their filters, so that a stream with one
// consumer per executor does not try them all.
func (st *stream) eachMatching(subject string, f func(*consumer)) {
	for _, c := range st.all {
		f(c)
	}
	for end := range len(subject) + 1 {
		if end < len(subject) && subject[end] != '.' {
			continue
		}
		for _, c := range st.byHead[subject[:end]] {
			if c.in.Wants(subject) && c.firstHead(subject) == subject[:end] {
				f(c)
			}
		}
	}
	for _, c := range st.byHead[""] {
		if c.in.Wants(subject) && c.firstHead(subject) == "" {
			f(c)
		}
	}
}

// head is the part of a filter before its first wildcard, without the dot.
func head(filter string) string {
	parts := strings.Split(filter, ".")
	for i, p := range parts {
		if p == "*" || p == ">" {
			return strings.Join(parts[:i], ".")
		}
	}
	return filter
}
