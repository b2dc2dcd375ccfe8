package chaos

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/e2e/stack"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/executor"
	"github.com/weir-dev/weir/services/turns"
	"github.com/weir-dev/weir/streams"
)

// poisonToken is a token of the preset vocabulary that no good turn uses.
const poisonToken = 299

// PoisonReport is what a poison turn did.
type PoisonReport struct {
	Deaths      int // executors that ended
	DeadLetters int
	Good        int // good turns with an answer
	OthersLost  int // good turns without one
	Code        string
	Problems    []string
}

// Poison publishes one turn that aborts every engine that computes it, in the
// midst of good ones, on four executors.
func Poison(ctx context.Context, engine string, good int) (*PoisonReport, error) {
	s, err := stack.Launch(ctx, stack.Options{
		Env: []string{executor.EnvFaultAbort + "=" + strconv.Itoa(poisonToken)},
		Args: []string{
			"--engine", engine, "--prefill", "2", "--decode", "2", "--ctx", "1024", "--slots", "6", "--kv-mem", "256MiB", "--direct-max=-1",
		},
	})
	if err != nil {
		return nil, err
	}
	rep := &PoisonReport{}
	err = rep.run(ctx, s, good)
	if stop := s.Stop(); err == nil {
		err = stop
	}
	for _, e := range s.Events() {
		if e.Event == "ended" && !e.Outside {
			rep.Deaths++
		}
	}
	return rep, err
}

func (rep *PoisonReport) run(ctx context.Context, s *stack.Stack, good int) error {
	c, err := s.Client()
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var next atomic.Int64
	turn := func(session int, id string, bad bool) {
		p := &prompt{tokens: make(schemas.Tokens, 150), output: 24}
		for i := range p.tokens {
			p.tokens[i] = int32(300 + (i*7+session*3)%200)
		}
		if bad {
			p.tokens[100] = poisonToken
		}
		res, err := ask(ctx, c, "poison"+strconv.Itoa(session), p.turn(id))
		mu.Lock()
		defer mu.Unlock()
		switch {
		case bad && err == nil && res.Failure != nil:
			rep.Code = res.Failure.Code
		case bad:
			rep.Problems = append(rep.Problems, fmt.Sprintf("the poison turn: %v, result %+v", err, res))
		case err == nil && res.Status == schemas.StatusOK:
			rep.Good++
		default:
			rep.OthersLost++
			rep.Problems = append(rep.Problems, fmt.Sprintf("turn %s: %v, result %+v", id, err, res))
		}
	}
	var wg sync.WaitGroup
	for w := range 10 {
		wg.Go(func() {
			for {
				n := int(next.Add(1)) - 1
				if n >= good || ctx.Err() != nil {
					return
				}
				turn(w, "g"+strconv.Itoa(n), false)
				if n == good/10 {
					wg.Go(func() { turn(1000, "poison", true) })
				}
			}
		})
	}
	wg.Wait()
	return rep.letters(ctx, c)
}

func ask(ctx context.Context, c *turns.Client, session string, t *schemas.Turn) (*schemas.Result, error) {
	s, err := c.Publish(ctx, turns.Request{Session: session, Turn: t})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return turns.Collect(ctx, s, nil)
}

func (rep *PoisonReport) letters(ctx context.Context, c *turns.Client) error {
	js, err := jetstream.New(c.Conn())
	if err != nil {
		return err
	}
	st, err := js.Stream(ctx, streams.Dead)
	if err != nil {
		return err
	}
	info, err := st.Info(ctx)
	if err != nil {
		return err
	}
	rep.DeadLetters = int(info.State.Msgs)
	return nil
}
