package jsrun

import (
	"strconv"
	"strings"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
)

// badInput answers for a message that cannot be decoded: a dead letter, what
// OnBad adds, and then the acknowledgement, because it would never get better.
func (r *Runner) badInput(d delivery) {
	r.cfg.Logger.Warn("input cannot be read", "service", r.cfg.Name, "subject", d.msg.Subject, "seq", d.msg.Seq, "error", d.err)
	d.in.stepped = max(d.in.stepped, d.msg.Seq)
	outs := []schemas.Msg{r.dead(d.msg.Subject, d.msg.Seq, d.body, schemas.CodeInvalid, d.err.Error())}
	if r.cfg.OnBad != nil {
		outs = append(outs, r.cfg.OnBad(d.msg.Subject, d.msg.Seq, d.body, d.err)...)
	}
	if d.in.cfg.Policy != streams.NoAck && !d.in.cfg.Core {
		outs = append(outs, schemas.Msg{Kind: schemas.KindAck, Subject: d.msg.Subject, Seq: d.msg.Seq})
	}
	r.apply(&d.msg, outs)
}

// deadLetter publishes one dead letter outside of a step.
func (r *Runner) deadLetter(subject string, seq uint64, body []byte, code, reason string) {
	in := schemas.Msg{Subject: subject, Seq: seq}
	r.apply(&in, []schemas.Msg{r.dead(subject, seq, body, code, reason)})
}

// dead makes a dead letter. Its id names the message, so that one that comes
// again makes one letter only.
func (r *Runner) dead(subject string, seq uint64, body []byte, code, reason string) schemas.Msg {
	stage, tenant, session := deadPlace(subject)
	d := &schemas.Dead{
		Header: schemas.H(), Stage: schemas.Stage(stage), Tenant: tenant, Session: session, Subject: cut(subject, 1024), Seq: seq,
		Code: code, Reason: cut(reason, 4096), AtNS: int64(r.cfg.Clock()), Body: body[:min(len(body), schemas.MaxDeadBody)],
	}
	r.stats.Dead.Add(1)
	m := schemas.Msg{Kind: schemas.KindDead, Subject: schemas.DeadSubject(stage, tenant), Dead: d}
	if seq > 0 {
		m.ID = "dead:" + stage + ":" + strconv.FormatUint(seq, 10)
	}
	return m
}

// deadPlace reads stage, tenant and session from a subject that may be broken.
func deadPlace(subject string) (stage, tenant, session string) {
	parts := strings.Split(cut(subject, 1024), ".")
	stage, tenant = schemas.CleanID(parts[0]), schemas.DefaultTenant
	layout := schemas.Layout(schemas.Root(parts[0]))
	tokens := parts[1:]
	if len(tokens) == len(layout)+1 { // AGENT with its partition
		tokens = tokens[1:]
	}
	for i, name := range layout {
		if i >= len(tokens) {
			break
		}
		switch name {
		case "tenant":
			tenant = schemas.CleanID(tokens[i])
		case "session":
			session = schemas.CleanID(tokens[i])
		}
	}
	return stage, tenant, session
}

func cut(s string, n int) string { return strings.ToValidUTF8(s[:min(len(s), n)], "?") }

// encodeAll encodes the bus messages of a step into r.encoded. One that cannot
// be encoded is replaced, in its place, by a dead letter, so that an input behind
// it is acknowledged only when the letter is stored; its Err says why. What OnBad
// adds stands right after.
func (r *Runner) encodeAll(in *schemas.Msg, outs []schemas.Msg) []schemas.Msg {
	r.encoded = r.encoded[:0]
	for i := 0; i < len(outs); i++ {
		m := &outs[i]
		if m.Kind >= schemas.KindTick || m.Kind == schemas.KindNone {
			r.encoded = append(r.encoded, nil)
			continue
		}
		if r.cfg.OnOut != nil {
			r.cfg.OnOut(in, m)
		}
		b, err := encode(m)
		r.encoded = append(r.encoded, b)
		if err == nil {
			continue
		}
		m.Err = err.Error()
		r.stats.Failed.Add(1)
		r.cfg.Logger.Error("output cannot be encoded", "service", r.cfg.Name, "subject", m.Subject, "error", err)
		if m.Kind == schemas.KindDead {
			continue // never a dead letter about a dead letter
		}
		extra := []schemas.Msg{r.dead(m.Subject, 0, nil, schemas.CodeInternal, err.Error())}
		if r.cfg.OnBad != nil {
			extra = append(extra, r.cfg.OnBad(in.Subject, in.Seq, nil, err)...)
		}
		outs = append(outs[:i+1], append(extra, outs[i+1:]...)...)
	}
	return outs
}

func encode(m *schemas.Msg) ([]byte, error) {
	if _, err := schemas.ParseSubject(m.Subject); err != nil {
		return nil, err
	}
	return schemas.Encode(m.Body())
}
