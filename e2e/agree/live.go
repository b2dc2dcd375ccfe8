package agree

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/e2e/scenarios"
	"github.com/weir-dev/weir/e2e/stack"
	"github.com/weir-dev/weir/schemas"
)

// liveWait bounds one live run, its start included.
const liveWait = 6 * time.Minute

// live plays the agents on a stack of simulated engines of that speed, for at most window
// seconds, 0 for all they have to do.
func live(ctx context.Context, set *scenarios.Set, model string, size Size, speed, window float64, policy Policy, agents []*session, record string) (_ *Played, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, liveWait, fmt.Errorf("the live run did not end within %s", liveWait))
	defer cancel()
	sc := scale(set.Scenarios[scenarios.Shift], size, speed)
	planner := "off"
	if policy == Weir {
		planner = "act"
	}
	args := []string{
		"--engine", "sim", "--speed", fmt.Sprint(speed), "--calib", filepath.Join(set.Dir, "calib", model+".json"), "--planner", planner,
		"--prefill", strconv.Itoa(startPrefill), "--decode", strconv.Itoa(sc.Cluster.Workers - startPrefill),
		"--slots", strconv.Itoa(sc.Cluster.MaxSeqs), "--ctx", "131072", "--kv-mem", "512MiB", "--admit=false",
	}
	if record != "" {
		args = append(args, "--record", record)
	}
	s, err := stack.Launch(ctx, stack.Options{Args: args})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	nc, err := s.Connect("agree")
	if err != nil {
		return nil, err
	}
	p, err := newPlayer(nc, sc.Phases[0].Concurrency, sc.Phases[1].Concurrency, agents)
	if err != nil {
		return nil, err
	}
	for name, w := range sc.Workloads {
		p.shared[name] = w.Shared
	}
	out, err := p.play(ctx, window)
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, s.Logs(20))
	}
	return out, nil
}

// player lets agents ask a live stack. It reads results only: frames of hundreds of
// streams would cost the machine more than the stack does.
type player struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	gate   *gate
	left   int
	shared map[string]int // tokens that every session of a class begins with

	mu    sync.Mutex
	waits map[string]chan *schemas.Result // by subject
	plans []*schemas.Plan
	bad   error
	ttft  float64
	e2e   float64
	turns int
	// resent counts turns that were sent again with all messages.
	resent int
	began  time.Time
}

func newPlayer(nc *nats.Conn, first, second int, agents []*session) (*player, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	p := &player{
		nc: nc, js: js, gate: newGate(agents, []int{first, second}), left: len(agents), shared: map[string]int{},
		waits: map[string]chan *schemas.Result{},
	}
	for subject, take := range map[string]nats.MsgHandler{
		schemas.ResultSubject(schemas.DefaultTenant, "*", "*"): p.result,
		schemas.PlanSubject(schemas.DefaultCell):               p.plan,
	} {
		sub, err := nc.Subscribe(subject, take)
		if err != nil {
			return nil, err
		}
		if err := sub.SetPendingLimits(1<<20, 1<<30); err != nil {
			return nil, err
		}
	}
	return p, nc.Flush()
}

func (p *player) result(m *nats.Msg) {
	r := &schemas.Result{}
	err := schemas.Decode(m.Data, r)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.bad = errors.Join(p.bad, fmt.Errorf("%s: %w", m.Subject, err))
		return
	}
	if c := p.waits[m.Subject]; c != nil {
		delete(p.waits, m.Subject)
		c <- r
	}
}

func (p *player) plan(m *nats.Msg) {
	d := &schemas.Plan{}
	err := schemas.Decode(m.Data, d)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.bad = errors.Join(p.bad, fmt.Errorf("%s: %w", m.Subject, err))
		return
	}
	p.plans = append(p.plans, d)
}

// errWindow ends what is compared of a run.
var errWindow = errors.New("the window is over")

// play lets all agents do their turns, or what they can until the window is over.
func (p *player) play(ctx context.Context, window float64) (*Played, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p.began = time.Now()
	if window > 0 {
		over := time.AfterFunc(time.Duration(window*float64(time.Second)), func() { cancel(errWindow) })
		defer over.Stop()
	}
	var wg sync.WaitGroup
	ends := make(chan *session)
	for left := p.left; left > 0; {
		for s := p.gate.next(); s != nil; s = p.gate.next() {
			wg.Go(func() {
				if err := p.agent(ctx, s); err != nil {
					cancel(fmt.Errorf("%s: %w", s.id, err))
				}
				select {
				case ends <- s:
				case <-ctx.Done():
				}
			})
		}
		select {
		case s := <-ends:
			p.gate.gone(s)
			left--
		case <-ctx.Done():
			wg.Wait()
			if err := context.Cause(ctx); !errors.Is(err, errWindow) {
				return nil, err
			}
			return p.played(window)
		}
	}
	wg.Wait()
	return p.played(time.Since(p.began).Seconds())
}

// played sums up what was done in so many seconds.
func (p *player) played(end float64) (*Played, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := &Played{MakespanS: end, Turns: p.turns, Resent: p.resent}
	out.means(p.ttft, p.e2e)
	for _, d := range p.plans {
		if at := float64(d.AtNS-p.began.UnixNano()) / 1e9; at <= end {
			out.Changes = append(out.Changes, changes(at, d, liveExecutor)...)
		}
	}
	return out, p.bad
}

// agent does the turns of one session.
func (p *player) agent(ctx context.Context, s *session) error {
	known := ""
	for i := range s.turns {
		t := &s.turns[i]
		if err := pause(ctx, time.Duration(t.wait*float64(time.Second))); err != nil {
			return err
		}
		if t.fill == t.prompt {
			known = "" // it begins, or its context was compacted
		}
		asked := time.Now()
		r, err := p.ask(ctx, s, i, known)
		if err != nil {
			return fmt.Errorf("turn %d: %w", i, err)
		}
		known = r.KnownAs
		p.mu.Lock()
		p.turns++
		p.ttft += float64(r.Timing.TTFTNS) / 1e9
		p.e2e += time.Since(asked).Seconds()
		p.mu.Unlock()
	}
	return nil
}

// tries bounds how often a turn that is refused for want of room is asked again.
const tries = 20

func (p *player) ask(ctx context.Context, s *session, i int, known string) (*schemas.Result, error) {
	most := int64(s.turns[i].most)
	fill := s.turns[i].fill
	for try := range tries {
		content, err := json.Marshal(map[string]string{"role": "user", "content": p.text(s, i, fill)})
		if err != nil {
			return nil, err
		}
		id := fmt.Sprintf("u%d", i)
		if try > 0 {
			id += fmt.Sprintf("-%d", try)
		}
		t := &schemas.Turn{Weir: schemas.TurnMeta{Turn: id, Known: known, IgnoreEOS: true}}
		t.Messages, t.MaxTokens = []json.RawMessage{content}, &most
		r, err := p.once(ctx, s.id, t)
		if err != nil || r.Status == schemas.StatusOK {
			return r, err
		}
		switch {
		case r.Failure != nil && r.Failure.Code == schemas.CodeNeedFull && known != "":
			// The service has forgotten the session: all of it is sent again, as one message.
			known, fill = "", s.turns[i].prompt
			p.mu.Lock()
			p.resent++
			p.mu.Unlock()
			continue
		case r.Failure == nil || r.Failure.Code != schemas.CodeBusy:
			return nil, fmt.Errorf("failed: %+v", r.Failure)
		}
		if err := pause(ctx, time.Duration(max(r.Failure.RetryNS, 1e8))); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("refused %d times", tries)
}

func (p *player) once(ctx context.Context, session string, t *schemas.Turn) (*schemas.Result, error) {
	b, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(b)
	subject := schemas.ResultSubject(schemas.DefaultTenant, session, t.Weir.Turn)
	c := make(chan *schemas.Result, 1)
	p.mu.Lock()
	p.waits[subject] = c
	p.mu.Unlock()
	m := &nats.Msg{Subject: schemas.AgentSubject(schemas.DefaultTenant, session, schemas.EventTurn), Data: b, Header: nats.Header{}}
	m.Header.Set(jetstream.MsgIDHeader, schemas.DefaultTenant+"/"+session+"/"+t.Weir.Turn+":"+hex.EncodeToString(sum[:]))
	if _, err := p.js.PublishMsg(ctx, m); err != nil {
		return nil, err
	}
	select {
	case r := <-c:
		return r, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// overhead is about what a chat template adds to a message, in tokens.
const overhead = 40

// text is what is new in a turn: a token of the null engine's vocabulary is a byte.
func (p *player) text(s *session, i, fill int) string {
	n := max(1, fill-overhead)
	var b strings.Builder
	if shared := p.shared[s.class]; i == 0 && shared > 0 {
		b.WriteString(letters("shared-"+s.class, shared))
	}
	b.WriteString(letters(s.id+"/"+strconv.Itoa(i), n))
	return b.String()
}

func letters(name string, n int) string {
	sum := sha256.Sum256([]byte(name))
	rng := rand.NewChaCha8(sum)
	out := make([]byte, n)
	_, _ = rng.Read(out) // it never fails
	for i, c := range out {
		out[i] = 'a' + c%26
	}
	return string(out)
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// liveExecutor numbers p0, p1, …, then d0, d1, …, as the simulated cell numbers those
// that prefill first.
func liveExecutor(id string) (int, error) {
	if len(id) < 2 {
		return 0, fmt.Errorf("agree: %q is no executor of a stack", id)
	}
	n, err := strconv.Atoi(id[1:])
	switch {
	case err != nil:
		return 0, err
	case id[0] == 'p':
		return n, nil
	case id[0] == 'd':
		return startPrefill + n, nil
	}
	return 0, fmt.Errorf("agree: %q is no executor of a stack", id)
}
