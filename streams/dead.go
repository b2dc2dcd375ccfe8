package streams

import (
	"strconv"
	"strings"

	"github.com/weir-dev/weir/schemas"
)

// Bounds of what a dead letter repeats of a message that may be anything, in bytes.
const (
	maxDeadSubject = 1024
	maxDeadReason  = 4096
)

// DeadLetter makes the dead letter of a message that cannot be processed. Its id
// names the message, so that one that comes again makes one letter only. Seq is
// 0 for messages that are in no stream.
func DeadLetter(now schemas.Time, subject string, seq uint64, body []byte, code, reason string) schemas.Msg {
	stage, tenant, session := deadPlace(subject)
	d := &schemas.Dead{
		Header: schemas.H(), Stage: schemas.Stage(stage), Tenant: tenant, Session: session,
		Subject: cut(subject, maxDeadSubject), Seq: seq, Code: code, Reason: cut(reason, maxDeadReason),
		AtNS: int64(now), Body: body[:min(len(body), schemas.MaxDeadBody)],
	}
	m := schemas.Msg{Kind: schemas.KindDead, Subject: schemas.DeadSubject(stage, tenant), Dead: d}
	if seq > 0 {
		m.ID = "dead:" + stage + ":" + strconv.FormatUint(seq, 10)
	}
	return m
}

// deadPlace reads stage, tenant and session from a subject that may be broken.
func deadPlace(subject string) (stage, tenant, session string) {
	parts := strings.Split(cut(subject, maxDeadSubject), ".")
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

// Encoded is an outgoing bus message with its bytes. Err is set instead when it
// could not be encoded; it is then not sent.
type Encoded struct {
	schemas.Msg
	Body []byte
	Err  error
}

// EncodeStep encodes all bus messages of a Step before any is sent. One that
// cannot be encoded keeps its place with Err set, and right behind it stand a
// dead letter and what onBad adds, so that an input is acknowledged only when
// those are stored. before may change each message first (trace context); both
// functions may be nil. The result is appended to dst.
func EncodeStep(dst []Encoded, now schemas.Time, in *schemas.Msg, outs []schemas.Msg, before func(in, out *schemas.Msg),
	onBad func(subject string, seq uint64, body []byte, err error) []schemas.Msg,
) []Encoded {
	add := func(m schemas.Msg) error {
		e := Encoded{Msg: m}
		if IsBus(m.Kind) {
			if before != nil {
				before(in, &e.Msg)
			}
			e.Body, e.Err = encode(&e.Msg)
		}
		dst = append(dst, e)
		return e.Err
	}
	for i := range outs {
		err := add(outs[i])
		if err == nil || outs[i].Kind == schemas.KindDead {
			continue
		}
		// What cannot be encoded among these is dropped with its Err: there is
		// no dead letter about a dead letter.
		_ = add(DeadLetter(now, outs[i].Subject, 0, nil, schemas.CodeInternal, err.Error()))
		if onBad == nil {
			continue
		}
		for _, m := range onBad(in.Subject, in.Seq, nil, err) {
			_ = add(m)
		}
	}
	return dst
}

// IsBus reports whether messages of that kind travel on the bus.
func IsBus(k schemas.Kind) bool { return k > schemas.KindNone && k < schemas.KindTick }

func encode(m *schemas.Msg) ([]byte, error) {
	// A reply goes to the inbox of whoever asked.
	if m.Kind != schemas.KindTokensReply && m.Kind != schemas.KindSessionReply {
		if _, err := schemas.ParseSubject(m.Subject); err != nil {
			return nil, err
		}
	}
	return schemas.Encode(m.Body())
}
