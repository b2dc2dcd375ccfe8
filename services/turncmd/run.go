package turncmd

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/telemetry"
	"github.com/weir-dev/weir/services/turns"
	"github.com/weir-dev/weir/streams/jsrun"
)

// cancelWait is how long the command waits, after Ctrl-C, for the turn's end.
const cancelWait = 5 * time.Second

// run publishes the turn and prints the answer.
func (f *flags) run(cmd *cobra.Command, text string, given bool) error {
	if err := f.check(given); err != nil {
		return err
	}
	turn, err := f.turnOf(cmd, text)
	if err != nil {
		return err
	}
	nc, err := jsrun.Connect(jsrun.ConnectOptions{URL: f.natsURL, Name: "weir-turn", Creds: f.creds})
	if err != nil {
		return asExit(fmt.Errorf("%w; is weir running there? Start it with \"weir up\", or give --nats", err))
	}
	defer nc.Close()
	traces, err := telemetry.New(cmd.Context(), telemetry.Config{Version: cmd.Root().Version, TraceFile: f.traceFile, Always: true})
	if err != nil {
		return asExit(err)
	}
	t := traces.Tracer("turn")
	var opts turns.Options
	if t != nil {
		opts.Span = t.Publish
	}
	c, err := turns.New(nc, opts)
	if err != nil {
		return asExit(err)
	}
	defer c.Close()
	err = f.traced(cmd, c, turn, t)
	wait, done := context.WithTimeout(context.WithoutCancel(cmd.Context()), flushWait)
	defer done()
	if e := traces.Shutdown(wait); e != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), "spans not exported:", e)
	}
	return asExit(err)
}

// flushWait bounds the wait for a collector at the end.
const flushWait = 2 * time.Second

// traced puts the command's own span around the turn when spans go anywhere. A
// turn without an exporter here is sampled all the same: who sends one by hand
// wants to see where its time went.
func (f *flags) traced(cmd *cobra.Command, c *turns.Client, turn *schemas.Turn, t *telemetry.Tracer) error {
	trace := traceOf(os.Getenv("TRACEPARENT"))
	if t == nil && trace.Parent == "" {
		trace = drawTrace()
	}
	trace, end := t.Command("weir turn", trace)
	res, err := f.follow(cmd, c, turn, trace)
	end(res, err)
	return err
}

// follow reads the answer to its end. The first Ctrl-C cancels the turn and
// waits for its result; the second one ends at once.
func (f *flags) follow(cmd *cobra.Command, c *turns.Client, turn *schemas.Turn, trace schemas.Trace) (*schemas.Result, error) {
	stop, unstop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer unstop()
	session := f.session
	if session == "" {
		session = turns.NewID("s")
	}
	p := newPrinter(cmd.OutOrStdout(), cmd.ErrOrStderr(), f, session)
	p.trace = trace.Parent
	s, err := c.Publish(stop, turns.Request{Tenant: f.tenant, Session: session, Turn: turn, Trace: trace})
	if err != nil {
		return nil, p.failed(err)
	}
	defer s.Close()
	p.published(s.Ref())
	if f.detach {
		return nil, p.stored()
	}
	res, err := turns.Collect(stop, s, p.event)
	if err != nil && stop.Err() != nil {
		unstop() // from here on Ctrl-C ends the process
		wait, done := context.WithTimeout(context.WithoutCancel(cmd.Context()), cancelWait)
		defer done()
		if err := s.Cancel(wait, "interrupted"); err != nil {
			return nil, fmt.Errorf("interrupted, and the turn could not be cancelled: %w", err)
		}
		res, err = turns.Collect(wait, s, p.event)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, errors.New("interrupted; the turn is being cancelled")
	case err != nil:
		return nil, p.failed(err)
	}
	return res, p.result(res)
}

var traceparent = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// traceOf is the caller's trace, if it is one.
func traceOf(parent string) schemas.Trace {
	if traceparent.MatchString(parent) {
		return schemas.Trace{Parent: parent}
	}
	return schemas.Trace{}
}

// drawTrace begins a sampled trace.
func drawTrace() schemas.Trace {
	var id [24]byte
	_, _ = rand.Read(id[:]) // never fails, see its documentation
	return schemas.Trace{Parent: "00-" + hex.EncodeToString(id[:16]) + "-" + hex.EncodeToString(id[16:]) + "-01"}
}
