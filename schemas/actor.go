package schemas

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
)

// Time is Unix time in nanoseconds. Actors are told the time; they never ask.
type Time int64

// Never is a time that does not come: what Next returns when nothing is due.
const Never Time = math.MaxInt64

// Actor is a machine that is told the time and handed a message, and answers
// with messages. It has no clock, goroutine, lock or I/O, so the same code runs
// on JetStream (streams/jsrun) and on a virtual clock (streams/simrun).
//
//	            in: message, tick, completion
//	                     |
//	runner ---- Step(now, in, out) ----> out: publishes, acks, local operations
//	   ^                                        |
//	   +------ completions come back as messages+
//
// Runners call the methods of one actor from one goroutine.
type Actor interface {
	// Step handles one message and appends what it wants to happen to out. The
	// runner owns both; an actor keeps no reference to out, and copies nothing
	// out of in that it does not own afterwards. Order of out is the order of effects.
	Step(now Time, in *Msg, out []Msg) []Msg
	// Next is the time at which the actor wants a KindTick message, or Never.
	Next() Time
	// Snapshot appends the actor's state to dst. Restore(Snapshot) continues as
	// if nothing had happened.
	Snapshot(dst []byte) ([]byte, error)
	Restore(b []byte) error
}

// Kind says which field of a Msg is set and what the runner does with it.
type Kind uint8

// Kinds of messages. Those of the bus come in and go out; the others are local.
const (
	KindNone Kind = iota

	// On the bus; the field of the same name is set.
	KindTurn
	KindEvent
	KindReady
	KindJob
	KindDone
	KindFrame
	KindResult
	KindCheckpoint
	KindAssignment
	KindHeartbeat
	KindReport
	KindKV
	KindBranch
	KindPlan
	KindMode
	KindLoad
	KindDead
	KindLease
	KindCancel
	KindTokensRequest // comes with Reply
	KindTokensReply   // goes to the Reply of its request, which is its Subject
	KindSessionRequest
	KindSessionReply

	// KindTick: the time asked for by Next has come.
	KindTick
	// KindAck (out): the input with stream sequence Seq of the input named by
	// Subject's root is finished. The runner acknowledges it only after every
	// publish that stands before it in the same Step was acknowledged.
	KindAck
	// KindPublished (in): the server acknowledged, or finally refused, an
	// outgoing message that had Confirm set. ID and Subject are that message's;
	// Err is "" on success, Seq the sequence it got. With ErrTextConflict Seq is that of
	// the last message on Subject, 0 when there is none.
	KindPublished
	// KindBus (in): the connection to NATS went away (Err set) or came back.
	KindBus
	// KindOp (out) and KindOpDone (in): an effect outside the bus, see ops.go.
	KindOp
	KindOpDone
)

// Errors that a KindPublished message may carry in Err. Everything else is the
// server's text.
const (
	// ErrTextConflict: the expected last sequence did not match; somebody was first.
	ErrTextConflict = "conflict"
	// ErrTextFull: the stream refuses new messages, it is full.
	ErrTextFull = "full"
)

// Msg is what goes in and out of an actor: one tagged struct for all kinds, so
// that a step allocates nothing for the envelope.
type Msg struct {
	Kind    Kind
	Subject string
	// Seq (in) is the stream sequence of the message, 0 for core messages;
	// (out, KindAck) the sequence to acknowledge.
	Seq uint64
	// At (in) is when the stream stored the message; 0 when unknown.
	At Time
	// ID (out) is the Nats-Msg-Id; empty for none.
	ID string
	// ExpectSet (out): publish only if ExpectSeq is the last sequence on Subject.
	ExpectSet bool
	ExpectSeq uint64
	// Confirm (out): tell the actor by KindPublished how the publish ended.
	Confirm bool
	// Core (out): publish without storing and without an acknowledgement. The
	// streams that capture the subject still store it, unconfirmed.
	Core bool
	// Redelivered (in): the message may have been handled before.
	Redelivered bool
	Err         string
	// Digest (in, agent messages) is the SHA-256 of the body in hex: two publishes
	// of one turn id are the same turn only if it is equal.
	Digest string
	// Reply (in) is where an answer to a request goes.
	Reply string
	// Trace is the W3C trace context that came with the message or goes with it.
	Trace Trace

	Turn       *Turn
	Event      *Event
	Ready      *Ready
	Job        *Job
	Done       *Done
	Frame      *Frame
	Result     *Result
	Checkpoint *Checkpoint
	Assignment *Assignment
	Heartbeat  *Heartbeat
	Report     *Report
	KV         *KVNotice
	Branch     *BranchChange
	Plan       *Plan
	Mode       *PlannerMode
	Load       *Load
	Dead       *Dead
	Lease      *Lease
	Cancel     *Cancel
	TokensReq  *TokensRequest
	TokensRep  *TokensReply
	SessionReq *SessionRequest
	SessionRep *SessionReply

	Op     *Op
	OpDone *OpDone
}

// Trace is a W3C trace context.
type Trace struct {
	Parent string // traceparent
	State  string // tracestate
}

// Body returns the message that Kind says is set, or nil for local kinds.
func (m *Msg) Body() Message {
	switch m.Kind {
	case KindTurn:
		return m.Turn
	case KindEvent:
		return m.Event
	case KindReady:
		return m.Ready
	case KindJob:
		return m.Job
	case KindDone:
		return m.Done
	case KindFrame:
		return m.Frame
	case KindResult:
		return m.Result
	case KindCheckpoint:
		return m.Checkpoint
	case KindAssignment:
		return m.Assignment
	case KindHeartbeat:
		return m.Heartbeat
	case KindReport:
		return m.Report
	case KindKV:
		return m.KV
	case KindBranch:
		return m.Branch
	case KindPlan:
		return m.Plan
	case KindMode:
		return m.Mode
	case KindLoad:
		return m.Load
	case KindDead:
		return m.Dead
	case KindLease:
		return m.Lease
	case KindCancel:
		return m.Cancel
	case KindTokensRequest:
		return m.TokensReq
	case KindTokensReply:
		return m.TokensRep
	case KindSessionRequest:
		return m.SessionReq
	case KindSessionReply:
		return m.SessionRep
	default:
		return nil
	}
}

// DecodeMsg turns the bytes of a message on that subject into a Msg whose Kind
// follows from the subject. The error says what is wrong with subject or body.
func DecodeMsg(subject string, body []byte) (Msg, error) {
	s, err := ParseSubject(subject)
	if err != nil {
		return Msg{}, err
	}
	m := Msg{Subject: subject}
	switch s.Root {
	case RootAgent:
		sum := sha256.Sum256(body)
		m.Digest = hex.EncodeToString(sum[:])
		switch kind := EventKind(s.Get("kind")); {
		case kind == EventTurn:
			m.Kind, m.Turn = KindTurn, new(Turn)
		case kind.known():
			m.Kind, m.Event = KindEvent, new(Event)
		default:
			return Msg{}, fmt.Errorf("%w: %q is not a kind of event; known are turn and %s", ErrSubject, kind, knownEvents)
		}
	case RootReady:
		m.Kind, m.Ready = KindReady, new(Ready)
	case RootPrefill, RootDecode:
		m.Kind, m.Job = KindJob, new(Job)
	case RootDone:
		m.Kind, m.Done = KindDone, new(Done)
	case RootKV:
		m.Kind, m.KV = KindKV, new(KVNotice)
	case RootBranch:
		m.Kind, m.Branch = KindBranch, new(BranchChange)
	case RootRole:
		m.Kind, m.Assignment = KindAssignment, new(Assignment)
	case RootReport:
		m.Kind, m.Report = KindReport, new(Report)
	case RootPlan:
		m.Kind, m.Plan = KindPlan, new(Plan)
	case RootMode:
		m.Kind, m.Mode = KindMode, new(PlannerMode)
	case RootLoad:
		m.Kind, m.Load = KindLoad, new(Load)
	case RootOut:
		m.Kind, m.Frame = KindFrame, new(Frame)
	case RootCkpt:
		m.Kind, m.Checkpoint = KindCheckpoint, new(Checkpoint)
	case RootResult:
		m.Kind, m.Result = KindResult, new(Result)
	case RootDead:
		m.Kind, m.Dead = KindDead, new(Dead)
	case RootLease:
		m.Kind, m.Lease = KindLease, new(Lease)
	case RootHB:
		m.Kind, m.Heartbeat = KindHeartbeat, new(Heartbeat)
	case RootCancel:
		m.Kind, m.Cancel = KindCancel, new(Cancel)
	case RootTokens:
		m.Kind, m.TokensReq = KindTokensRequest, new(TokensRequest)
	case RootSession:
		m.Kind, m.SessionReq = KindSessionRequest, new(SessionRequest)
	case RootSnap, RootSync:
		return Msg{}, bad("%s is not a message for actors", s.Root)
	}
	if err := Decode(body, m.Body()); err != nil {
		return Msg{}, err
	}
	return m, nil
}
