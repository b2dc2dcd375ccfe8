package record

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/weir-dev/weir/schemas"
)

// Header is the first line of a part.
type Header struct {
	Record  int             `json:"record"` // Version
	Actor   string          `json:"actor"`  // router or planner
	Cell    string          `json:"cell"`
	Epoch   uint64          `json:"epoch"` // of the lease: one life of the actor
	Part    int             `json:"part"`  // from 1
	AtNS    int64           `json:"at_ns"` // when the part began, Unix time
	Weir    string          `json:"weir"`  // version of the build
	Config  json.RawMessage `json:"config"`
	FirstNo int             `json:"first_no"` // number of the part's first line, from 1
}

// Version of the format.
const Version = 1

// Line is one step of the actor, or what else happened to it. T is the time that it
// was told, Unix time in nanoseconds.
type Line struct {
	T   int64     `json:"t"`
	In  *Message  `json:"in,omitempty"`
	Out []Message `json:"out,omitempty"`
	// Restore is the state that the actor was given, Snapshot the SHA-256 of the state
	// that it gave, in hex.
	Restore  *[]byte `json:"restore,omitempty"`
	Snapshot string  `json:"snapshot,omitempty"`
	// Stopped says why nothing more was recorded although the actor went on.
	Stopped string `json:"stopped,omitempty"`
}

// Message is a schemas.Msg as JSON: the envelope, and the body as it is on the bus.
type Message struct {
	Kind        string          `json:"kind"`
	Subject     string          `json:"subject,omitempty"`
	Seq         uint64          `json:"seq,omitempty"`
	At          int64           `json:"at,omitempty"`
	ID          string          `json:"id,omitempty"`
	ExpectSet   bool            `json:"expect,omitempty"`
	ExpectSeq   uint64          `json:"expect_seq,omitempty"`
	Confirm     bool            `json:"confirm,omitempty"`
	Core        bool            `json:"core,omitempty"`
	Redelivered bool            `json:"redelivered,omitempty"`
	Err         string          `json:"err,omitempty"`
	Digest      string          `json:"digest,omitempty"`
	Reply       string          `json:"reply,omitempty"`
	Parent      string          `json:"traceparent,omitempty"`
	State       string          `json:"tracestate,omitempty"`
	Body        json.RawMessage `json:"body,omitempty"`
}

// pack copies a message as it is now: actors go on to own parts of it.
func pack(m *schemas.Msg) (Message, error) {
	name := ""
	for i := range kinds {
		if kinds[i].kind == m.Kind {
			name = kinds[i].name
		}
	}
	if name == "" {
		return Message{}, fmt.Errorf("a message of kind %d cannot be recorded by this build", m.Kind)
	}
	out := Message{
		Kind: name, Subject: m.Subject, Seq: m.Seq, At: int64(m.At), ID: m.ID, ExpectSet: m.ExpectSet, ExpectSeq: m.ExpectSeq, Confirm: m.Confirm,
		Core: m.Core, Redelivered: m.Redelivered, Err: m.Err, Digest: m.Digest, Reply: m.Reply, Parent: m.Trace.Parent, State: m.Trace.State,
	}
	var body any = m.Body()
	switch m.Kind {
	case schemas.KindOp:
		body = m.Op
	case schemas.KindOpDone:
		body = m.OpDone
	case schemas.KindTick, schemas.KindAck, schemas.KindPublished, schemas.KindBus:
		return out, nil
	default:
	}
	var err error
	if out.Body, err = json.Marshal(body); err != nil {
		return Message{}, fmt.Errorf("a %s message cannot be recorded: %w", name, err)
	}
	return out, nil
}

// unpack makes the message again.
func (r *Message) unpack() (schemas.Msg, error) {
	m := schemas.Msg{
		Subject: r.Subject, Seq: r.Seq, At: schemas.Time(r.At), ID: r.ID, ExpectSet: r.ExpectSet, ExpectSeq: r.ExpectSeq, Confirm: r.Confirm,
		Core: r.Core, Redelivered: r.Redelivered, Err: r.Err, Digest: r.Digest, Reply: r.Reply, Trace: schemas.Trace{Parent: r.Parent, State: r.State},
	}
	for i := range kinds {
		k := &kinds[i]
		if k.name != r.Kind {
			continue
		}
		m.Kind = k.kind
		if k.body == nil {
			return m, nil
		}
		d := json.NewDecoder(bytes.NewReader(r.Body))
		d.DisallowUnknownFields()
		if err := d.Decode(k.body(&m)); err != nil {
			return m, fmt.Errorf("the body of a %s message cannot be read by this build: %w", r.Kind, err)
		}
		return m, nil
	}
	return m, fmt.Errorf("a message of kind %q is not known to this build", r.Kind)
}

// body makes the empty body of a kind, which the message then holds.
func body[T any](field func(*schemas.Msg) **T) func(*schemas.Msg) any {
	return func(m *schemas.Msg) any {
		p := field(m)
		*p = new(T)
		return *p
	}
}

// kinds names the kinds of messages. Names are part of the format.
var kinds = [...]struct {
	kind schemas.Kind
	name string
	body func(*schemas.Msg) any // nil: there is none
}{
	{schemas.KindTurn, "turn", body(func(m *schemas.Msg) **schemas.Turn { return &m.Turn })},
	{schemas.KindEvent, "event", body(func(m *schemas.Msg) **schemas.Event { return &m.Event })},
	{schemas.KindReady, "ready", body(func(m *schemas.Msg) **schemas.Ready { return &m.Ready })},
	{schemas.KindJob, "job", body(func(m *schemas.Msg) **schemas.Job { return &m.Job })},
	{schemas.KindDone, "done", body(func(m *schemas.Msg) **schemas.Done { return &m.Done })},
	{schemas.KindFrame, "frame", body(func(m *schemas.Msg) **schemas.Frame { return &m.Frame })},
	{schemas.KindResult, "result", body(func(m *schemas.Msg) **schemas.Result { return &m.Result })},
	{schemas.KindCheckpoint, "checkpoint", body(func(m *schemas.Msg) **schemas.Checkpoint { return &m.Checkpoint })},
	{schemas.KindAssignment, "assignment", body(func(m *schemas.Msg) **schemas.Assignment { return &m.Assignment })},
	{schemas.KindHeartbeat, "heartbeat", body(func(m *schemas.Msg) **schemas.Heartbeat { return &m.Heartbeat })},
	{schemas.KindReport, "report", body(func(m *schemas.Msg) **schemas.Report { return &m.Report })},
	{schemas.KindKV, "kv", body(func(m *schemas.Msg) **schemas.KVNotice { return &m.KV })},
	{schemas.KindBranch, "branch", body(func(m *schemas.Msg) **schemas.BranchChange { return &m.Branch })},
	{schemas.KindPlan, "plan", body(func(m *schemas.Msg) **schemas.Plan { return &m.Plan })},
	{schemas.KindMode, "mode", body(func(m *schemas.Msg) **schemas.PlannerMode { return &m.Mode })},
	{schemas.KindLoad, "load", body(func(m *schemas.Msg) **schemas.Load { return &m.Load })},
	{schemas.KindDead, "dead", body(func(m *schemas.Msg) **schemas.Dead { return &m.Dead })},
	{schemas.KindLease, "lease", body(func(m *schemas.Msg) **schemas.Lease { return &m.Lease })},
	{schemas.KindCancel, "cancel", body(func(m *schemas.Msg) **schemas.Cancel { return &m.Cancel })},
	{schemas.KindTokensRequest, "tokens_request", body(func(m *schemas.Msg) **schemas.TokensRequest { return &m.TokensReq })},
	{schemas.KindTokensReply, "tokens_reply", body(func(m *schemas.Msg) **schemas.TokensReply { return &m.TokensRep })},
	{schemas.KindSessionRequest, "session_request", body(func(m *schemas.Msg) **schemas.SessionRequest { return &m.SessionReq })},
	{schemas.KindSessionReply, "session_reply", body(func(m *schemas.Msg) **schemas.SessionReply { return &m.SessionRep })},
	{schemas.KindTick, "tick", nil},
	{schemas.KindAck, "ack", nil},
	{schemas.KindPublished, "published", nil},
	{schemas.KindBus, "bus", nil},
	{schemas.KindOp, "op", body(func(m *schemas.Msg) **schemas.Op { return &m.Op })},
	{schemas.KindOpDone, "op_done", body(func(m *schemas.Msg) **schemas.OpDone { return &m.OpDone })},
}
