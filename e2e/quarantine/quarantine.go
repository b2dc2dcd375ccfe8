// Package quarantine makes a device sick under load and takes the time until its
// executor is out of work, and in work again once the device is sound. The device is a
// fake: what an NVIDIA driver would say stands in a file. All the rest is the shipped
// stack: the judgement of the readings, reports, planner, assignments, role changes.
package quarantine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/e2e/load"
	"github.com/weir-dev/weir/e2e/stack"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/executor"
	"github.com/weir-dev/weir/services/tail"
	"github.com/weir-dev/weir/streams"
)

// Figures of one run, in seconds.
type Figures struct {
	// QuarantineS is from the fault until the executor reports that it takes no work and
	// holds none.
	QuarantineS float64 `json:"nvml.quarantine_s"`
	// ReleaseS is from the report that it is fit until it reports a role with work.
	ReleaseS float64 `json:"nvml.release_s"`
	Turns    int     `json:"turns"` // answered meanwhile; none failed
	// Phases: the cell could prefill and decode at every heartbeat in between.
	Phases bool `json:"phases"`
}

// Bounds of the waits. The goal for both figures is 10 s.
const (
	startWait = 30 * time.Second
	stepWait  = 40 * time.Second
)

// sick is the executor whose device fails.
const sick = "d0"

// Run runs it once on the null engine with two executors for each phase.
func Run(ctx context.Context) (_ *Figures, err error) {
	dir, err := os.MkdirTemp("", "weir-health-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s, err := stack.Launch(ctx, stack.Options{
		Args: []string{"--engine", "null", "--kv-mem", "128MiB", "--prefill", "2", "--decode", "2", "--planner", "act"},
		Env:  []string{executor.EnvFakeHealth + "=" + dir},
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	beats, err := s.Heartbeats()
	if err != nil {
		return nil, err
	}
	defer func() { _ = beats.Close() }() // its connection ends with the stack
	c, err := s.Client()
	if err != nil {
		return nil, err
	}
	l := load.Start(ctx, c, load.Options{Seed: 1})
	f, err := measure(ctx, s, beats, filepath.Join(dir, sick+".json"))
	err = errors.Join(err, l.Stop())
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, s.Logs(10))
	}
	f.Turns = l.Turns()
	return f, nil
}

// works: the executor may hold work.
func works(h *schemas.Heartbeat) bool {
	switch h.Role {
	case schemas.RolePrefill, schemas.RoleDecode, schemas.RoleMixed:
		return true
	}
	return false
}

func measure(ctx context.Context, s *stack.Stack, beats *stack.Heartbeats, file string) (*Figures, error) {
	f := &Figures{Phases: true}
	wait := func(limit time.Duration, what string, ok func(map[string]schemas.Heartbeat) bool) error {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		return beats.Wait(ctx, what, func(m map[string]schemas.Heartbeat) bool {
			if len(m) == 4 {
				f.Phases = f.Phases && phases(m)
			}
			return ok(m)
		})
	}
	if err := wait(startWait, "four executors that work", func(m map[string]schemas.Heartbeat) bool {
		n := 0
		for _, h := range m {
			if works(&h) {
				n++
			}
		}
		return n == 4
	}); err != nil {
		return nil, err
	}
	if err := decided(ctx, s); err != nil {
		return nil, err
	}
	// A page fault of one process: the device is sound once none has come for a while.
	if err := write(file, []schemas.GPU{{UUID: "GPU-fake", Name: "fake", XID: 31}}); err != nil {
		return nil, err
	}
	began := time.Now()
	if err := wait(stepWait, sick+" out of work", func(m map[string]schemas.Heartbeat) bool {
		h := m[sick]
		return h.Role == schemas.RoleStandby && len(h.Held) == 0
	}); err != nil {
		return nil, err
	}
	f.QuarantineS = time.Since(began).Seconds()
	if err := fit(ctx, s); err != nil {
		return nil, err
	}
	began = time.Now()
	if err := wait(stepWait, sick+" in work again", func(m map[string]schemas.Heartbeat) bool {
		h := m[sick]
		return works(&h)
	}); err != nil {
		return nil, err
	}
	f.ReleaseS = time.Since(began).Seconds()
	return f, nil
}

// phases: somebody prefills and somebody decodes.
func phases(m map[string]schemas.Heartbeat) bool {
	p, d := false, false
	for _, h := range m {
		p, d = p || h.Role.Takes(schemas.StagePrefill), d || h.Role.Takes(schemas.StageDecode)
	}
	return p && d
}

// decided waits for the planner's first decision: it listens to the cell for some
// seconds before it makes one.
func decided(ctx context.Context, s *stack.Stack) error {
	nc, err := s.Connect("e2e-quarantine")
	if err != nil {
		return err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	there := false
	err = tail.Last(ctx, js, streams.Plan, func(tail.Message) bool { there = true; return true }, schemas.PlanSubject(s.Ready.Cell))
	if there || err != nil {
		return err
	}
	return follow(ctx, s, schemas.PlanSubject(s.Ready.Cell), "a decision of the planner", func([]byte) bool { return true })
}

// fit waits for the report that says that the device is sound again.
func fit(ctx context.Context, s *stack.Stack) error {
	return follow(ctx, s, schemas.ReportSubject(s.Ready.Cell, sick), "the report that "+sick+" is fit", func(b []byte) bool {
		var r schemas.Report
		return schemas.Decode(b, &r) == nil && r.Unfit == ""
	})
}

// follow waits for a message on a subject.
func follow(ctx context.Context, s *stack.Stack, subject, what string, ok func([]byte) bool) error {
	nc, err := s.Connect("e2e-quarantine")
	if err != nil {
		return err
	}
	sub, err := nc.SubscribeSync(subject)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }() // its connection ends with the stack
	// A planner repeats a decision once a minute.
	ctx, cancel := context.WithTimeout(ctx, 70*time.Second)
	defer cancel()
	for {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return fmt.Errorf("quarantine: waiting for %s: %w", what, err)
		}
		if ok(m.Data) {
			return nil
		}
	}
}

func write(path string, gpus []schemas.GPU) error {
	b, err := json.Marshal(gpus)
	if err != nil {
		return err
	}
	tmp := path + ".part"
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
