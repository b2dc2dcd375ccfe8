package jsrun

import (
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
)

// badInput answers for a message that cannot be decoded: a dead letter, what
// OnBad adds, and then the acknowledgement, because it would never get better.
func (r *Runner) badInput(d delivery) {
	r.cfg.Logger.Warn("input cannot be read", "service", r.cfg.Name, "subject", d.msg.Subject, "seq", d.msg.Seq, "error", d.err)
	d.in.stepped = max(d.in.stepped, d.msg.Seq)
	outs := []schemas.Msg{streams.DeadLetter(r.cfg.Clock(), d.msg.Subject, d.msg.Seq, d.body, schemas.CodeInvalid, d.err.Error())}
	if r.cfg.OnBad != nil {
		outs = append(outs, r.cfg.OnBad(d.msg.Subject, d.msg.Seq, d.body, d.err)...)
	}
	if d.in.cfg.Policy != streams.NoAck && !d.in.cfg.Core {
		outs = append(outs, schemas.Msg{Kind: schemas.KindAck, Subject: d.msg.Subject, Seq: d.msg.Seq})
	}
	r.apply(&d.msg, outs)
}

// deadLetter publishes one dead letter outside of a step.
func (r *Runner) deadLetter(subject string, body []byte, reason string) {
	in := schemas.Msg{Subject: subject}
	r.apply(&in, []schemas.Msg{streams.DeadLetter(r.cfg.Clock(), subject, 0, body, schemas.CodeInternal, reason)})
}
