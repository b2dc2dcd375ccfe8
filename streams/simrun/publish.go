package simrun

import (
	"strconv"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
)

// publish follows one outgoing message until the stream's answer is back.
type publish struct {
	v       *service
	life    uint64
	p       *packet
	confirm bool
	dead    bool
	chain   *streams.Chain[ackRef]
	gen     uint32
	sent    int
	giveUp  schemas.Time
}

func (v *service) publish(m *schemas.Msg, body []byte, c *streams.Chain[ackRef]) {
	v.pubs++
	v.snap.open++
	p := &publish{
		v: v, life: v.life, p: packetOf(m, body), confirm: m.Confirm, dead: m.Kind == schemas.KindDead, chain: c,
		gen: v.snap.gen, giveUp: v.s.now + retryFor,
	}
	if p.p.expectSet && p.p.id == "" {
		p.p.id = "x-" + v.cfg.Name + "-" + strconv.FormatUint(v.life, 10) + "-" + strconv.FormatUint(v.pubs, 10)
	}
	v.send(p)
}

// send puts the message on the wire. It arrives even when the sender crashes
// meanwhile; the answer is then heard by nobody.
func (v *service) send(p *publish) {
	s := v.s
	p.sent++
	s.at(s.arrival(v.link, p.p.subject), prioBus, func() {
		q := *p.p
		ans := s.take(&q)
		if ans.text == "" && !p.confirm && s.o.Net.LoseAck == 0 && v.life == p.life && v.cfg.SnapshotEvery == 0 && !p.chain.Waits() {
			v.settle(p, ans, false) // nobody waits to hear of it
			return
		}
		back := s.arrival(v.link, "acks")
		lost := v.link.rnd.hit(s.o.Net.LoseAck)
		if lost {
			s.logf("answer to %s lost", p.p.subject)
			back = s.now + ackTimeout
		}
		s.at(back, prioDeliver, func() {
			switch {
			case v.life != p.life:
			case lost:
				v.send(p)
			default:
				v.answer(p, ans)
			}
		})
	})
}

// answer ends a publish or repeats it, by the rules of jsrun.
func (v *service) answer(p *publish, ans verdict) {
	s := v.s
	switch {
	case ans.text == "":
		v.settle(p, ans, false)
	case ans.text == schemas.ErrTextConflict:
		if p.sent > 1 {
			// The one in the way may be this very message.
			st := s.streamFor(p.p.subject)
			last := st.get(st.lastSeq(streams.StoredSubject(p.p.subject)))
			if last != nil && last.id == p.p.id {
				ans = verdict{seq: last.seq, duplicate: true}
			}
		}
		v.settle(p, ans, false)
	case ans.text == schemas.ErrTextFull && !p.confirm && s.now < p.giveUp:
		d := min(minBackoff<<min(p.sent, 8), maxBackoff)
		s.at(s.now+d, prioBus, func() {
			if v.life == p.life {
				v.send(p)
			}
		})
	default:
		v.settle(p, ans, true)
	}
}

func (v *service) settle(p *publish, ans verdict, failed bool) {
	v.snap.open--
	v.snapSettled(p.gen, failed)
	hasAcks := p.chain.Waits()
	p.chain.Settle(failed, v.settleInput)
	if failed && !p.confirm && !p.dead && !hasAcks {
		in := schemas.Msg{Subject: p.p.subject}
		v.apply(&in, []schemas.Msg{streams.DeadLetter(v.s.now, p.p.subject, 0, p.p.body, schemas.CodeInternal, "publish given up: "+ans.text)})
	}
	if p.confirm {
		v.step(&schemas.Msg{
			Kind: schemas.KindPublished, Subject: p.p.subject, ID: p.p.id, Seq: ans.seq, Redelivered: ans.duplicate, Err: ans.text,
		}, false)
	}
}

// settleInput acknowledges an input message, or gives it back when a publish
// before it failed.
func (v *service) settleInput(a ackRef, failed bool) {
	in := a.in
	if !in.held[a.seq] {
		return
	}
	delete(in.held, a.seq)
	if failed {
		v.s.nak(in.c, a.seq, nakDelay)
		return
	}
	in.acked[a.seq] = true
	if in.ackLog = append(in.ackLog, a.seq); len(in.ackLog) > recentAcks {
		delete(in.acked, in.ackLog[0])
		in.ackLog = in.ackLog[1:]
	}
	v.sendAck(in, a.seq)
}

// sendAck puts an acknowledgement on the wire; it may get lost.
func (v *service) sendAck(in *input, seq uint64) {
	s, c := v.s, in.c
	at := s.arrival(v.link, "ack "+in.lane)
	if v.link.rnd.hit(s.o.Net.Redeliver) {
		s.logf("acknowledgement of %s %d lost", in.cfg.Stream, seq)
		return
	}
	s.at(at, prioBus, func() {
		if c.st.names[c.name] == c {
			s.ack(c, seq)
		}
	})
}
