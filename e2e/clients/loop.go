package clients

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weir-dev/weir/e2e/stack"
	"github.com/weir-dev/weir/schemas"
)

// Steps is the number of tool calls of a loop.
const Steps = 10

// looped is what a tool loop's program prints.
type looped struct {
	Calls   int
	Answers int
	Text    bool // the last answer is text
}

// loop runs a program of ten tool calls and an answer, and returns how often lineage
// saw its session wait for a tool. The program names no session.
func (p *Programs) loop(ctx context.Context, s *stack.Stack, program string, args ...string) (waits int, err error) {
	seen, err := watch(s)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, seen.stop()) }()
	var r looped
	if err := p.run(ctx, s, &r, program, append(args, strconv.Itoa(Steps))...); err != nil {
		return 0, err
	}
	if r.Calls != Steps || r.Answers != Steps+1 || !r.Text {
		return 0, fmt.Errorf("%s: %+v, want %d calls, an answer more, and text at the end", program, r, Steps)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	sessions, err := seen.sessions(ctx)
	if err != nil {
		return 0, err
	}
	if len(sessions) != 1 {
		return 0, fmt.Errorf("%s: its turns are in %d sessions (%v), want one", program, len(sessions), sessions)
	}
	for name, turns := range sessions {
		if turns != Steps+1 {
			return 0, fmt.Errorf("%s: session %s has %d turns, want %d", program, name, turns, Steps+1)
		}
		info, err := Session(ctx, s, name)
		if err != nil {
			return 0, err
		}
		if !info.Found {
			return 0, fmt.Errorf("%s: lineage does not know session %s", program, name)
		}
		for _, b := range info.Branches {
			waits += b.ToolWaits
		}
	}
	if waits < Steps {
		return waits, fmt.Errorf("%s: lineage saw %d tool waits, want %d", program, waits, Steps)
	}
	return waits, nil
}

// sightings are the turns that are published.
type sightings struct {
	nc  *nats.Conn
	sub *nats.Subscription
}

func watch(s *stack.Stack) (*sightings, error) {
	nc, err := s.Connect("e2e-clients")
	if err != nil {
		return nil, err
	}
	sub, err := nc.SubscribeSync(schemas.AgentSubject("*", "*", schemas.EventTurn))
	if err != nil {
		return nil, err
	}
	return &sightings{nc, sub}, nc.Flush()
}

func (w *sightings) stop() error { return w.sub.Unsubscribe() }

// sessions counts the turns that were published so far by session.
func (w *sightings) sessions(ctx context.Context) (map[string]int, error) {
	// The server answers after it has sent everything that came before.
	if err := w.nc.FlushWithContext(ctx); err != nil {
		return nil, err
	}
	n, _, err := w.sub.Pending()
	if err != nil {
		return nil, err
	}
	out := map[string]int{}
	for range n {
		m, err := w.sub.NextMsgWithContext(ctx)
		if err != nil {
			return nil, err
		}
		at, err := schemas.ParseSubject(m.Subject)
		if err != nil {
			return nil, err
		}
		out[at.Get("session")]++
	}
	return out, nil
}

// Session asks lineage about a session of the default tenant.
func Session(ctx context.Context, s *stack.Stack, name string) (*schemas.SessionReply, error) {
	nc, err := s.Connect("e2e-clients")
	if err != nil {
		return nil, err
	}
	b, err := schemas.Encode(&schemas.SessionRequest{Header: schemas.H(), Tenant: schemas.DefaultTenant, Session: name})
	if err != nil {
		return nil, err
	}
	m, err := nc.RequestWithContext(ctx, schemas.SessionSubject(s.Ready.Cell), b)
	if err != nil {
		return nil, fmt.Errorf("asking lineage about session %s: %w", name, err)
	}
	r := new(schemas.SessionReply)
	if err := schemas.Decode(m.Data, r); err != nil {
		return nil, err
	}
	if r.Error != "" {
		return nil, errors.New(r.Error)
	}
	return r, nil
}
