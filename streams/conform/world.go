package conform

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
)

// World is a bus with the streams of a topology and services on it. Time in it
// passes only in Sleep.
type World interface {
	// Start runs a service until Stop, Crash or the end of the world.
	Start(s Service)
	// Stop ends a service in order, Crash as kill -9 would. The actor is not
	// touched by the runner afterwards.
	Stop(name string)
	Crash(name string)
	// Publish stores a message from outside; it returns an error when the stream
	// refuses. PublishCore does so without acknowledgement.
	Publish(subject, id string, body []byte) error
	PublishCore(subject string, body []byte)
	// Stored lists what a stream holds, in order. Purge empties it.
	Stored(stream string) []Stored
	Purge(stream string)
	// Sleep lets time pass until everything that is due has happened.
	Sleep(d time.Duration)
	Now() schemas.Time
}

// Stored is a message in a stream.
type Stored struct {
	Subject string
	ID      string
	Seq     uint64
	Body    []byte
	Trace   schemas.Trace
}

// Service is an actor with all that a runner needs to run it.
type Service struct {
	Name   string
	Actor  schemas.Actor
	Inputs []streams.Input
	// Local returns the completion of an operation and how long it takes.
	Local func(op *schemas.Op) (schemas.OpDone, time.Duration)
	OnBad func(subject string, seq uint64, body []byte, err error) []schemas.Msg
	// SnapshotEvery is 0 for a service without snapshots.
	SnapshotEvery time.Duration
}

// NewWorld runs f in a world with that topology.
type NewWorld func(t *testing.T, topo []streams.Stream, f func(t *testing.T, w World))

// actor is an actor made of a function; it counts and remembers what it gets.
type actor struct {
	on    func(a *actor, now schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg
	next  schemas.Time
	ticks []schemas.Time
	got   []string // one entry per message, see note
	count int      // the whole state that snapshots keep
}

func newActor(on func(a *actor, now schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg) *actor {
	return &actor{on: on, next: schemas.Never}
}

func (a *actor) Step(now schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
	if in.Kind == schemas.KindTick {
		a.ticks = append(a.ticks, now)
	} else {
		a.got = append(a.got, note(in))
	}
	if a.on == nil {
		return out
	}
	return a.on(a, now, in, out)
}

func (a *actor) Next() schemas.Time { return a.next }

func (a *actor) Snapshot(dst []byte) ([]byte, error) {
	return fmt.Appendf(dst, "count %d", a.count), nil
}

func (a *actor) Restore(b []byte) error {
	_, err := fmt.Sscanf(string(b), "count %d", &a.count)
	return err
}

// note is the short form of a message that the cases compare.
func note(m *schemas.Msg) string {
	again := ""
	if m.Redelivered {
		again = " again"
	}
	switch m.Kind {
	case schemas.KindTurn:
		return "turn " + m.Turn.Weir.Turn + again
	case schemas.KindReady:
		return "ready " + m.Ready.Turn + again
	case schemas.KindDone:
		return "done " + m.Done.Job + again
	case schemas.KindReport:
		return "report " + m.Report.Executor + again
	case schemas.KindHeartbeat:
		return fmt.Sprintf("heartbeat %s seq %d", m.Heartbeat.Executor, m.Seq)
	case schemas.KindPublished:
		if m.Err != "" && m.Seq > 0 {
			return fmt.Sprintf("published %s %s with %d", m.ID, m.Err, m.Seq)
		}
		return "published " + m.ID + " " + m.Err
	case schemas.KindOpDone:
		return fmt.Sprintf("op %d %s", m.OpDone.ID, m.OpDone.Err)
	default:
		return fmt.Sprintf("kind %d", m.Kind)
	}
}

func turnBody(id string) []byte {
	return fmt.Appendf(nil, `{"weir":{"turn":%q},"model":"m","messages":[{"role":"user","content":"hi"}]}`, id)
}

func doneMsg(job string) *schemas.Done {
	return &schemas.Done{Header: schemas.H(), Job: job, Attempt: 1, Stage: schemas.StageDecode, Executor: "e0", Outcome: schemas.OutcomeDecoded}
}

func readyMsg(turn string, pad int) *schemas.Ready {
	r := &schemas.Ready{
		Header: schemas.H(), Tenant: "t", Session: "s", Turn: turn, Branch: "main", Job: schemas.JobID("t", "s", turn), MaxNew: 1,
		Prompt: schemas.Prompt{N: 1, Tail: schemas.Tokens{1}},
	}
	r.Sampling.Grammar = strings.Repeat("x", pad)
	return r
}

func readyOut(turn string, pad int) schemas.Msg {
	return schemas.Msg{
		Kind: schemas.KindReady, Subject: schemas.ReadySubject("c0", "t", "s", turn), ID: "r-" + turn, Ready: readyMsg(turn, pad),
	}
}

func planOut(id string) schemas.Msg {
	return schemas.Msg{
		Kind: schemas.KindPlan, Subject: "plan.c0", ID: "p-" + id,
		Plan: &schemas.Plan{Header: schemas.H(), ID: id, Reason: "test"},
	}
}

func encoded(t *testing.T, m schemas.Message) []byte {
	t.Helper()
	b, err := schemas.Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// ids lists the message ids of a stream.
func ids(s []Stored) []string {
	out := make([]string, len(s))
	for i, m := range s {
		out[i] = m.ID
	}
	return out
}
