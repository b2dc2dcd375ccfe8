package badinput

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/weir-dev/weir/e2e/stack"
)

// Answered is the code of an input that is odd and must be answered all the same.
const Answered = "answered"

// answerWait bounds the wait for one answer: what takes longer counts as hung.
const answerWait = 60 * time.Second

// Input is one request and what must come of it.
type Input struct {
	Name string
	// Body is published on agent.… as it is, and posted to the gateway.
	Body func() []byte
	// Path of the gateway, /v1/chat/completions by default; "-" leaves HTTP out.
	Path string
	// Code is the code of the failure, or Answered; Status is HTTP's.
	Code   string
	Status int
	// BusCode is the code over NATS where it differs, "-" leaves NATS out.
	BusCode string
	// Says must occur in the message, whichever way it came.
	Says string
	// Dead: the message cannot be read, so over NATS a dead letter tells of it too.
	Dead bool
}

// Outcome is what came of an input on one way.
type Outcome struct {
	Way    string // http or nats
	Status int    // HTTP only
	Code   string // of the failure, or Answered
	Text   string // the failure's message, or the answer
	Dead   string // the dead letter's reason, NATS only
	Took   time.Duration
}

// Problem says how an outcome differs from what must come of the input.
func (in *Input) Problem(o *Outcome) error {
	want := in.Code
	if o.Way == "nats" && in.BusCode != "" {
		want = in.BusCode
	}
	var errs []error
	if o.Code != want {
		errs = append(errs, fmt.Errorf("the code is %q, want %q", o.Code, want))
	}
	if o.Way == "http" && o.Status != in.Status {
		errs = append(errs, fmt.Errorf("the status is %d, want %d", o.Status, in.Status))
	}
	if o.Code != Answered && len(o.Text) < 10 {
		errs = append(errs, fmt.Errorf("the message %q says too little", o.Text))
	}
	if in.Says != "" && !strings.Contains(o.Text, in.Says) {
		errs = append(errs, fmt.Errorf("the message does not contain %q", in.Says))
	}
	if o.Way == "nats" && in.Dead != (o.Dead != "") {
		errs = append(errs, fmt.Errorf("the dead letter is %q, wanted %v", o.Dead, in.Dead))
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%s over %s: %w (code %q, status %d, %.300q)", in.Name, o.Way, errors.Join(errs...), o.Code, o.Status, o.Text)
}

// Run sends inputs to a stack, both ways, some at once. It returns one error per
// outcome that is not as it must be.
func Run(ctx context.Context, s *stack.Stack, ins []Input, seen func(*Input, *Outcome)) []error {
	bus, err := NewBus(s)
	if err != nil {
		return []error{err}
	}
	defer bus.Close()
	var mu sync.Mutex
	var errs []error
	var wg sync.WaitGroup
	work := make(chan *Input)
	for range 4 {
		wg.Go(func() {
			for in := range work {
				for _, o := range both(ctx, s, bus, in) {
					mu.Lock()
					if seen != nil {
						seen(in, &o)
					}
					if err := in.Problem(&o); err != nil {
						errs = append(errs, err)
					}
					mu.Unlock()
				}
			}
		})
	}
	for i := range ins {
		work <- &ins[i]
	}
	close(work)
	wg.Wait()
	return errs
}

// both sends an input on the ways that it has. What fails to come back is an
// outcome with the code "none".
func both(ctx context.Context, s *stack.Stack, bus *Bus, in *Input) (out []Outcome) {
	body := in.Body()
	if in.Path != "-" {
		out = append(out, post(ctx, s.Ready.HTTP, in.Path, body))
	}
	if in.BusCode != "-" {
		out = append(out, bus.turn(ctx, body, in.Dead))
	}
	return out
}
