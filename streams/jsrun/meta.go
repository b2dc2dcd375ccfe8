package jsrun

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/weir-dev/weir/schemas"
)

// Header keys of NATS and of W3C trace context. NATS keeps the case of keys.
const (
	hdrMsgID       = "Nats-Msg-Id"
	hdrExpectSubj  = "Nats-Expected-Last-Subject-Sequence"
	hdrTTL         = "Nats-TTL"
	hdrStatus      = "Status"
	hdrDescription = "Description"
	hdrTraceParent = "traceparent"
	hdrTraceState  = "tracestate"
)

// meta is what the reply subject of a delivered message says.
type meta struct {
	delivered uint64 // 1 for the first delivery
	seq       uint64 // in the stream
	cseq      uint64 // in the consumer
	at        schemas.Time
}

// parseMeta reads $JS.ACK.[<domain>.<account>.]<stream>.<consumer>.<delivered>.
// <stream seq>.<consumer seq>.<time>.<pending>[.<random>].
func parseMeta(reply string) (m meta, ok bool) {
	if !strings.HasPrefix(reply, "$JS.ACK.") {
		return m, false
	}
	n := strings.Count(reply, ".") + 1
	skip := 4 // $JS ACK stream consumer
	switch {
	case n == 9:
	case n >= 11:
		skip = 6
	default:
		return m, false
	}
	rest := reply
	for range skip {
		_, rest, _ = strings.Cut(rest, ".")
	}
	var v [4]uint64
	for i := range v {
		var tok string
		tok, rest, _ = strings.Cut(rest, ".")
		u, err := strconv.ParseUint(tok, 10, 64)
		if err != nil {
			return m, false
		}
		v[i] = u
	}
	return meta{delivered: v[0], seq: v[1], cseq: v[2], at: schemas.Time(v[3])}, true
}

// pubAck is the server's answer to a publish.
type pubAck struct {
	Seq       uint64    `json:"seq"`
	Duplicate bool      `json:"duplicate"`
	Error     *apiError `json:"error"`
}

type apiError struct {
	Code        int    `json:"code"`
	ErrCode     int    `json:"err_code"`
	Description string `json:"description"`
}

// parsePubAck reads the answer; the plain case is read without reflection
// because it comes once per publish.
func parsePubAck(b []byte) (pubAck, error) {
	var a pubAck
	if i := bytes.Index(b, []byte(`"seq":`)); i >= 0 && !bytes.Contains(b, []byte(`"error"`)) {
		j := i + len(`"seq":`)
		for j < len(b) && b[j] == ' ' {
			j++
		}
		start := j
		for j < len(b) && b[j] >= '0' && b[j] <= '9' {
			a.Seq = a.Seq*10 + uint64(b[j]-'0')
			j++
		}
		if j > start && j-start < 20 {
			a.Duplicate = bytes.Contains(b[j:], []byte(`"duplicate"`))
			return a, nil
		}
		a = pubAck{}
	}
	err := json.Unmarshal(b, &a)
	return a, err
}

// traceOf reads the trace context of a message.
func traceOf(h nats.Header) schemas.Trace {
	if len(h) == 0 {
		return schemas.Trace{}
	}
	return schemas.Trace{Parent: first(h, hdrTraceParent), State: first(h, hdrTraceState)}
}

func first(h nats.Header, key string) string {
	if v := h[key]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// headerFor puts the parts of an outgoing message that travel in headers
// together; nil when there are none, which saves the server parsing them.
func headerFor(m *schemas.Msg, id string) nats.Header {
	n := 0
	for _, set := range [...]bool{id != "", m.ExpectSet, m.Trace.Parent != "", m.Trace.State != ""} {
		if set {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	h := make(nats.Header, n)
	vals := make([]string, 0, n)
	add := func(k, v string) {
		vals = append(vals, v)
		h[k] = vals[len(vals)-1 : len(vals) : len(vals)]
	}
	if id != "" {
		add(hdrMsgID, id)
	}
	if m.ExpectSet {
		add(hdrExpectSubj, strconv.FormatUint(m.ExpectSeq, 10))
	}
	if m.Trace.Parent != "" {
		add(hdrTraceParent, m.Trace.Parent)
	}
	if m.Trace.State != "" {
		add(hdrTraceState, m.Trace.State)
	}
	return h
}
