// Package erase removes a session for good: its messages, results, objects and KV
// blocks, and what lineage remembers of it.
//
// Read erase.go (the order, and why), then messages.go (streams), objects.go (the
// payload bucket) and plan.go (what makes it resumable).
//
// The order keeps two promises. What was started is finished by calling again: keys
// and references that only lineage knows are written down before it forgets them. And
// a restart in between brings nothing back to work: turns go from AGENT before their
// results go from RESULT, so no turn is computed again.
//
//	ask lineage -> plan in SNAP -> forget -> wait for a snapshot without it
//	-> AGENT, READY -> RESULT, OUT, CKPT, jobs, dead letters -> objects -> blocks
//	-> new files for SNAP, CKPT and READY -> plan removed
package erase

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/tier"
	"github.com/weir-dev/weir/streams"
)

// Errors of erasing.
var (
	// ErrWorking: turns of the session are in work. Cancel them, or let Session do it.
	ErrWorking = errors.New("turns of the session are in work")
	// ErrUnfinished: something is left. Calling again goes on.
	ErrUnfinished = errors.New("the session is not fully erased")
	// ErrUnavailable: NATS or lineage do not answer.
	ErrUnavailable = errors.New("weir is not reachable")
)

// Options say where to erase and how long to wait.
type Options struct {
	Conn *nats.Conn
	Cell string // default when empty
	// Cancel stops turns that are in work. Without it they make Session fail with
	// ErrWorking.
	Cancel bool
	// Wait bounds the wait for cancelled turns, and then for lineage's snapshot. 60 s.
	Wait time.Duration
	// Progress, when set, is told what is being done.
	Progress func(string)
}

// Report says what was removed.
type Report struct {
	Tenant  string `json:"tenant"`
	Session string `json:"session"`
	// Found: lineage knew the session, or an earlier call had begun to erase it.
	Found     bool           `json:"found"`
	Cancelled int            `json:"cancelled,omitempty"` // turns that were in work
	Messages  map[string]int `json:"messages"`            // by stream
	Objects   int            `json:"objects"`             // of the payload bucket
	Kept      int            `json:"kept,omitempty"`      // objects that other sessions refer to
	Blocks    int            `json:"blocks"`              // of KV memory, on all nodes
	Nodes     []string       `json:"nodes"`               // that were asked to remove blocks
	// Left says what may still be on a disk, until when, and why.
	Left []string `json:"left,omitempty"`
}

// eraser is one run.
type eraser struct {
	o      Options
	js     jetstream.JetStream
	report *Report
	plan   plan
	// ends are the last sequences before the session was forgotten, by stream: what
	// comes behind belongs to a new life of the session.
	ends map[string]uint64
}

// Session erases a session of a tenant. It may be called again, also after a crash of
// anything, and does what is left. Turns that are published while it runs begin a new
// life of the session and stay; for the session to end its agent must have stopped.
func Session(ctx context.Context, o Options, tenant, session string) (*Report, error) {
	if err := errors.Join(schemas.CheckID("tenant", tenant), schemas.CheckID("session", session)); err != nil {
		return nil, err
	}
	if o.Cell == "" {
		o.Cell = schemas.DefaultCell
	}
	if o.Wait <= 0 {
		o.Wait = time.Minute
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	js, err := jetstream.New(o.Conn)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	e := &eraser{
		o: o, js: js, ends: map[string]uint64{},
		report: &Report{Tenant: tenant, Session: session, Messages: map[string]int{}, Nodes: []string{}},
	}
	return e.report, e.run(ctx)
}

func (e *eraser) run(ctx context.Context) error {
	for _, step := range [...]struct {
		name string
		do   func(context.Context) error
	}{
		{"ending turns", e.settle},
		{"planning", e.prepare},
		{"forgetting", e.forget},
		{"removing messages", e.messages},
		{"removing dead letters", e.letters},
		{"removing objects", e.objects},
		{"removing KV blocks", e.blocks},
		{"cleaning files", e.files},
		{"finishing", e.finish},
	} {
		e.o.Progress(step.name)
		if err := step.do(ctx); err != nil {
			if errors.Is(err, ErrWorking) {
				return err
			}
			return fmt.Errorf("%w, %s: %w; call again to go on", ErrUnfinished, step.name, err)
		}
	}
	return nil
}

// ask asks lineage about the session.
func (e *eraser) ask(ctx context.Context, forget bool) (*schemas.SessionReply, error) {
	b, err := schemas.Encode(&schemas.SessionRequest{Header: schemas.H(), Tenant: e.report.Tenant, Session: e.report.Session, Forget: forget})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	for {
		m, err := e.o.Conn.RequestWithContext(ctx, schemas.SessionSubject(e.o.Cell), b)
		if errors.Is(err, nats.ErrNoResponders) { // it may be starting
			if sleep(ctx, askPause) == nil {
				continue
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%w: lineage of cell %s does not answer: %w", ErrUnavailable, e.o.Cell, err)
		}
		r := new(schemas.SessionReply)
		return r, schemas.Decode(m.Data, r)
	}
}

const (
	askWait  = 10 * time.Second
	askPause = 100 * time.Millisecond
	// settleGrace is how long lineage may take to read a result that its caller has.
	settleGrace = 500 * time.Millisecond
)

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// settle waits until no turn of the session is in work.
func (e *eraser) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, e.o.Wait)
	defer cancel()
	asked, began := map[string]bool{}, time.Now()
	for {
		r, err := e.ask(ctx, false)
		if err != nil {
			return err
		}
		e.report.Found = e.report.Found || r.Found
		if r.Pending == 0 {
			e.report.Cancelled = len(asked)
			return nil
		}
		if !e.o.Cancel && time.Since(began) < settleGrace {
			if err := sleep(ctx, askPause); err != nil {
				return err
			}
			continue
		}
		if !e.o.Cancel {
			return fmt.Errorf("%w: %d have no result yet; wait for them or cancel them (weir session delete --wait does), then erase again", ErrWorking, r.Pending)
		}
		if err := e.cancel(ctx, asked); err != nil {
			return err
		}
		if sleep(ctx, askPause) != nil {
			return fmt.Errorf("%w: %d did not end within %s of their cancels", ErrWorking, r.Pending, e.o.Wait)
		}
	}
}

// forget makes lineage forget the session and waits until what it has saved does not
// hold it any more. Should lineage restart in between it reads the session again from
// its old snapshot, and is told again.
func (e *eraser) forget(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, e.o.Wait)
	defer cancel()
	for {
		if err := e.forgetOnce(ctx); err != nil {
			return err
		}
		if !e.report.Found && len(e.plan.Turns) == 0 {
			return nil // nothing of it was ever here
		}
		before, err := e.snapshot(ctx)
		if err != nil {
			return err
		}
		// Each time it is told, lineage saves its state soon. A state that is taken
		// from now on does not hold the session.
		now := time.Now()
		if err := e.forgetOnce(ctx); err != nil {
			return err
		}
		if err := e.nextSnapshot(ctx, before, now); err != nil {
			return err
		}
		again, err := e.ask(ctx, false)
		if err != nil {
			return err
		}
		if !again.Found || again.Pending > 0 {
			return nil // gone, or a new life has begun
		}
		if n, err := e.newTurns(ctx); err != nil || n > 0 {
			return err
		}
	}
}

// forgetOnce tells lineage to forget, and writes down what it answers. An answer that
// was too large for one message is followed by another.
func (e *eraser) forgetOnce(ctx context.Context) error {
	e.plan.Asked = true
	if err := e.savePlan(ctx); err != nil {
		return err
	}
	for {
		r, err := e.ask(ctx, true)
		if err != nil {
			return err
		}
		more := r.Error != "" && len(r.Keys)+len(r.Refs) > 0
		e.plan.Told = e.plan.Told || r.Found && r.Error == ""
		if err := e.learn(ctx, r); err != nil {
			return err
		}
		switch {
		case r.Error == "":
			return nil
		case more:
		case !e.o.Cancel:
			return fmt.Errorf("%w: %s", ErrWorking, r.Error)
		case sleep(ctx, askPause) != nil:
			return fmt.Errorf("%w: %s", ErrWorking, r.Error)
		}
	}
}

// snapshot is the last snapshot of lineage: its sequence and when its state was taken.
type snapshot struct {
	seq uint64
	at  int64 // Unix time in ns
}

func (e *eraser) snapshot(ctx context.Context) (snapshot, error) {
	s, err := e.js.Stream(ctx, streams.Snap)
	if err != nil {
		return snapshot{}, err
	}
	m, err := s.GetLastMsgForSubject(ctx, schemas.SnapSubject("lineage", "0"))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return snapshot{}, nil
	}
	if err != nil {
		return snapshot{}, err
	}
	var snap schemas.Snap
	if err := schemas.Decode(m.Data, &snap); err != nil {
		return snapshot{}, err
	}
	return snapshot{m.Sequence, snap.AtNS}, nil
}

// nextSnapshot waits for a snapshot whose state was taken after a time.
func (e *eraser) nextSnapshot(ctx context.Context, before snapshot, after time.Time) error {
	for {
		now, err := e.snapshot(ctx)
		if err != nil {
			return err
		}
		if now.seq > before.seq && now.at > after.UnixNano() {
			return nil
		}
		if err := sleep(ctx, askPause); err != nil {
			return fmt.Errorf("lineage saved no new state within %s: %w", e.o.Wait, err)
		}
	}
}

// blocks removes the session's blocks from every node of the cell.
func (e *eraser) blocks(ctx context.Context) error {
	nodes, err := tier.Nodes(ctx, e.o.Conn, e.o.Cell)
	if err != nil {
		return err
	}
	if len(nodes) == 0 && len(e.plan.Keys) > 0 {
		return errors.New("no tier node answers")
	}
	e.report.Nodes = append(e.report.Nodes, nodes...)
	if e.plan.Asked && !e.plan.Told && e.report.Found {
		e.report.Left = append(e.report.Left, "KV memory: an earlier run ended just when lineage forgot the session, so its blocks are not known; they go by eviction, or with a restart of the stack")
	}
	for _, n := range nodes {
		removed, err := tier.Erase(ctx, e.o.Conn, n, e.plan.Keys)
		e.report.Blocks += removed
		if err != nil {
			return err
		}
	}
	return nil
}
