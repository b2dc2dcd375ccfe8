package jsrun

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
)

// answer handles the server's answer to a publish.
func (r *Runner) answer(m *nats.Msg) {
	token, p := r.box.at(m.Subject)
	if p == nil || p.checking {
		return // the answer to a repeat of a publish that is settled
	}
	what, res := judge(m)
	now := r.cfg.Clock()
	switch what {
	case fateOK:
		r.settle(token, res)
	case fateConflict:
		if p.sent > 1 || p.confirm && res.seq == 0 {
			r.checkConflict(token, p)
			return
		}
		r.settle(token, res)
	case fateFull:
		if p.confirm || now >= p.giveUp {
			r.settleFailed(token, res.err)
			return
		}
		r.box.again(p, res.err, now)
	case fateNoStream:
		r.box.again(p, res.err, now)
		r.streamsMissing(now)
	case fateRetry:
		r.box.again(p, res.err, now)
	case fateRefused:
		r.settleFailed(token, res.err)
	}
}

// settle ends a publish that the server took, or that lost to somebody else's:
// a conflict is an outcome, not a failure, so inputs behind it are acknowledged.
func (r *Runner) settle(token uint64, res settled) {
	p := r.box.slots[token-r.box.base]
	r.box.settle(token)
	r.snap.settled(p.snap, false)
	if res.err != "" {
		r.stats.Conflicts.Add(1)
	}
	if p.chain != nil {
		p.chain.Settle(false, r.settleInput)
	}
	if p.confirm {
		r.step(&schemas.Msg{
			Kind: schemas.KindPublished, Subject: p.msg.Subject, ID: p.id, Seq: res.seq,
			Redelivered: res.duplicate, Err: res.err,
		}, nil)
	}
}

// settleFailed ends a publish that is given up.
func (r *Runner) settleFailed(token uint64, why string) {
	p := r.box.slots[token-r.box.base]
	r.box.settle(token)
	r.snap.settled(p.snap, true)
	r.stats.Failed.Add(1)
	r.cfg.Logger.Error("publish given up", "service", r.cfg.Name, "subject", p.msg.Subject, "id", p.id, "attempts", p.sent, "error", why)
	comesAgain := p.chain.Waits()
	if p.chain != nil {
		p.chain.Settle(true, r.settleInput)
	}
	if !comesAgain && !p.confirm && !p.dead {
		// Nobody hears of it otherwise: no input comes again, no confirmation is due.
		r.deadLetter(p.msg.Subject, p.msg.Data, "publish given up: "+why)
	}
	if p.confirm {
		r.step(&schemas.Msg{Kind: schemas.KindPublished, Subject: p.msg.Subject, ID: p.id, Err: why}, nil)
	}
}

// checkConflict looks whether the message that stands in the way is our own,
// whose acknowledgement was lost: the server compares the expected sequence
// before it looks for duplicates.
func (r *Runner) checkConflict(token uint64, p *pending) {
	p.checking = true
	subject, id := p.msg.Subject, p.id
	stream, ok := streams.ForSubject(r.cfg.Topology, subject)
	r.bus.wg.Go(func() {
		seq, ours := uint64(0), false
		err := error(nil)
		if ok {
			seq, ours, err = r.lastIs(stream.Name, streams.StoredSubject(subject), id)
		}
		r.posted.call(func() { r.conflictChecked(token, seq, ours, err) })
	})
}

func (r *Runner) lastIs(stream, subject, id string) (seq uint64, ours bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	st, err := r.js.Stream(ctx, stream)
	if err != nil {
		return 0, false, err
	}
	m, err := st.GetLastMsgForSubject(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	return m.Sequence, first(m.Header, hdrMsgID) == id, nil
}

func (r *Runner) conflictChecked(token, seq uint64, ours bool, err error) {
	if token < r.box.base || r.box.slots[token-r.box.base] == nil {
		return
	}
	p := r.box.slots[token-r.box.base]
	p.checking = false
	switch {
	case err != nil:
		r.box.again(p, err.Error(), r.cfg.Clock())
	case ours:
		r.settle(token, settled{seq: seq, duplicate: true})
	default:
		r.settle(token, settled{seq: seq, err: schemas.ErrTextConflict})
	}
}
