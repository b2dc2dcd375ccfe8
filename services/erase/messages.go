package erase

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
	"github.com/weir-dev/weir/streams"
	"github.com/weir-dev/weir/streams/jsrun"
)

// subjects are the subjects of the session in a stream.
func (e *eraser) subjects(stream string) string {
	t, s := e.report.Tenant, e.report.Session
	switch stream {
	case streams.Agent:
		stored := streams.StoredSubject(schemas.AgentSubject(t, s, schemas.EventTurn))
		return strings.TrimSuffix(stored, string(schemas.EventTurn)) + "*"
	case streams.Ready:
		return schemas.ReadySubject("*", t, s, "*")
	case streams.Out:
		return schemas.OutSubject(t, s, "*")
	case streams.Ckpt:
		return schemas.CkptSubject(t, s, "*")
	case streams.Result:
		return schemas.ResultSubject(t, s, "*")
	}
	return ""
}

// find collects turns and objects from what is stored.
func (e *eraser) find(ctx context.Context) error {
	for _, name := range [...]string{streams.Agent, streams.Ready, streams.Result} {
		s, err := e.js.Stream(ctx, name)
		if err != nil {
			return err
		}
		err = jsrun.Each(ctx, s, e.subjects(name), 1, e.ends[name], func(m *jetstream.RawStreamMsg) error {
			return e.look(ctx, name, m)
		})
		if err != nil {
			return err
		}
	}
	slices.Sort(e.plan.Turns)
	e.plan.Turns = slices.Compact(e.plan.Turns)
	return nil
}

// look takes notes of one message.
func (e *eraser) look(ctx context.Context, stream string, m *jetstream.RawStreamMsg) error {
	sub, err := schemas.ParseSubject(m.Subject)
	if err != nil {
		return nil //nolint:nilerr // a subject that weir does not write names no turn
	}
	if stream != streams.Agent {
		e.plan.Turns = append(e.plan.Turns, sub.Get("turn"))
		return nil
	}
	if sub.Get("kind") != string(schemas.EventTurn) {
		return nil
	}
	turn := new(schemas.Turn)
	if schemas.Decode(m.Data, turn) != nil {
		turn = new(schemas.Turn) // refused by lineage; it has an id all the same
	}
	e.plan.Turns = append(e.plan.Turns, turnID(turn, m.Sequence))
	return e.refs(ctx, turn, m.Data)
}

// turnID is the id that lineage gives a turn.
func turnID(t *schemas.Turn, seq uint64) string {
	if t.Weir.Turn != "" {
		return t.Weir.Turn
	}
	return "t" + strconv.FormatUint(seq, 10)
}

// cancel asks that every turn without a result ends.
func (e *eraser) cancel(ctx context.Context, asked map[string]bool) error {
	agent, err := e.js.Stream(ctx, streams.Agent)
	if err != nil {
		return err
	}
	results, err := e.js.Stream(ctx, streams.Result)
	if err != nil {
		return err
	}
	have, err := results.Info(ctx, jetstream.WithSubjectFilter(e.subjects(streams.Result)))
	if err != nil {
		return err
	}
	c, err := turns.New(e.o.Conn, turns.Options{Deadline: e.o.Wait})
	if err != nil {
		return err
	}
	defer c.Close()
	return jsrun.Each(ctx, agent, e.subjects(streams.Agent), 1, agent.CachedInfo().State.LastSeq, func(m *jetstream.RawStreamMsg) error {
		if !strings.HasSuffix(m.Subject, "."+string(schemas.EventTurn)) {
			return nil
		}
		turn := new(schemas.Turn)
		if schemas.Decode(m.Data, turn) != nil {
			return nil
		}
		ref := turns.Ref{Tenant: e.report.Tenant, Session: e.report.Session, Turn: turnID(turn, m.Sequence)}
		if asked[ref.Turn] || have.State.Subjects[schemas.ResultSubject(ref.Tenant, ref.Session, ref.Turn)] > 0 {
			return nil
		}
		asked[ref.Turn] = true
		return c.Cancel(ctx, ref, "the session is erased")
	})
}

// newTurns counts turns that were published since the run began.
func (e *eraser) newTurns(ctx context.Context) (n int, err error) {
	s, err := e.js.Stream(ctx, streams.Agent)
	if err != nil {
		return 0, err
	}
	err = jsrun.Each(ctx, s, e.subjects(streams.Agent), e.ends[streams.Agent]+1, s.CachedInfo().State.LastSeq, func(m *jetstream.RawStreamMsg) error {
		if strings.HasSuffix(m.Subject, "."+string(schemas.EventTurn)) {
			n++
		}
		return nil
	})
	return n, err
}

// messages removes what stands under the session's name.
func (e *eraser) messages(ctx context.Context) error {
	for _, name := range [...]string{streams.Agent, streams.Ready, streams.Result, streams.Out, streams.Ckpt} {
		if err := e.wipe(ctx, name, e.subjects(name)); err != nil {
			return err
		}
	}
	for _, turn := range e.plan.Turns {
		job := schemas.JobID(e.report.Tenant, e.report.Session, turn)
		for name, subject := range map[string]string{
			streams.Prefill: schemas.JobSubject(schemas.StagePrefill, "*", "*", job),
			streams.Decode:  schemas.JobSubject(schemas.StageDecode, "*", "*", job),
			streams.Done:    schemas.DoneSubject("*", job),
		} {
			if err := e.wipe(ctx, name, subject); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *eraser) wipe(ctx context.Context, stream, subject string) error {
	s, err := e.js.Stream(ctx, stream)
	if err != nil {
		return fmt.Errorf("stream %s: %w", stream, err)
	}
	n, err := jsrun.Wipe(ctx, s, subject, e.ends[stream])
	if n > 0 {
		e.report.Messages[stream] += n
	}
	return err
}

// letters removes dead letters and branch notices, whose subjects do not name the
// session.
func (e *eraser) letters(ctx context.Context) error {
	err := e.drop(ctx, streams.Dead, schemas.DeadSubject("*", "*"), func(b []byte) bool {
		var d schemas.Dead
		if schemas.Decode(b, &d) != nil {
			return false
		}
		if d.Tenant == e.report.Tenant && d.Session == e.report.Session {
			return true
		}
		sub, err := schemas.ParseSubject(d.Subject)
		return err == nil && sub.Get("tenant") == e.report.Tenant && sub.Get("session") == e.report.Session
	})
	if err != nil {
		return err
	}
	return e.drop(ctx, streams.Branch, schemas.BranchSubject("*", "*"), func(b []byte) bool {
		var c schemas.BranchChange
		return schemas.Decode(b, &c) == nil && c.Tenant == e.report.Tenant && c.Session == e.report.Session
	})
}

// drop erases the messages of a stream that are the session's.
func (e *eraser) drop(ctx context.Context, stream, subject string, ours func([]byte) bool) error {
	s, err := e.js.Stream(ctx, stream)
	if err != nil {
		return fmt.Errorf("stream %s: %w", stream, err)
	}
	return jsrun.Each(ctx, s, subject, 1, e.ends[stream], func(m *jetstream.RawStreamMsg) error {
		if !ours(m.Data) {
			return nil
		}
		e.report.Messages[stream]++
		return s.SecureDeleteMsg(ctx, m.Sequence)
	})
}
