package cache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/weir-dev/weir/e2e/stack"
	"github.com/weir-dev/weir/schemas"
)

// Place is where the second turn runs.
type Place string

// The places.
const (
	Same    Place = "same"    // the executor that decoded the first turn
	Another Place = "another" // one that saw nothing of the first turn
	Swapped Place = "swapped" // prefill and decode executor have changed roles
	// Crashed is not asked for by the figure: every process but the supervisor was
	// killed between the turns.
	Crashed Place = "crashed"
)

// Places are those of the figure.
func Places() []Place { return []Place{Same, Another, Swapped} }

// Form is how the second turn is sent.
type Form string

// The forms.
const (
	Delta Form = "delta" // what is new, and the digest of the context before
	Full  Form = "full"  // all messages again, as text, to the gateway
)

// Scenario is one way to come back to a session.
type Scenario struct {
	Engine string
	Preset string
	Place  Place
	Form   Form
}

// String names the scenario in output.
func (s Scenario) String() string {
	return fmt.Sprintf("%s-%s/%s/%s", s.Engine, s.Preset, s.Place, s.Form)
}

// Outcome is what the second turn found.
type Outcome struct {
	Scenario
	Prompt, Generated int // tokens of the first turn
	Cached            int // of the second turn's prompt
	Share             float64
	First, Second     string // executors that decoded
	Problem           string
}

// Size of the first turn in tokens, as the issue of this figure asks for: its
// prompt has at least so many.
const (
	firstPrompt    = 2000
	firstGenerated = 200
)

// scenarioWait bounds one scenario.
const scenarioWait = 3 * time.Minute

// Run runs the places in both forms on one stack of one prefill and two decode
// executors.
func Run(ctx context.Context, engine, preset string, places []Place, emit func(*Outcome)) (out []Outcome, err error) {
	path, err := stack.ModelFile(preset)
	if err != nil {
		return nil, err
	}
	s, err := stack.Launch(ctx, stack.Options{Args: []string{
		"--engine", engine, "--model", path, "--prefill", "1", "--decode", "2", "--ctx", "4096", "--slots", "2", "--kv-mem", "256MiB",
	}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	for _, place := range places {
		for _, form := range []Form{Delta, Full} {
			o, err := one(ctx, s, Scenario{Engine: engine, Preset: preset, Place: place, Form: form})
			if err != nil {
				return out, fmt.Errorf("%v: %w\n%s", o.Scenario, err, s.Logs(10))
			}
			out = append(out, o)
			if emit != nil {
				emit(&o)
			}
		}
	}
	return out, nil
}

// one runs one scenario in a session of its own.
func one(ctx context.Context, s *stack.Stack, sc Scenario) (o Outcome, err error) {
	o.Scenario = sc
	ctx, cancel := context.WithTimeoutCause(ctx, scenarioWait, fmt.Errorf("it did not end within %s", scenarioWait))
	defer cancel()
	before, after := roles(sc.Place)
	if err := s.SetRoles(ctx, before); err != nil {
		return o, err
	}
	send, err := sender(s, sc)
	if err != nil {
		return o, err
	}
	first, err := send.turn(ctx, firstText(sc), firstGenerated)
	if err != nil {
		return o, fmt.Errorf("first turn: %w", err)
	}
	if sc.Place == Crashed {
		if err := crash(ctx, s); err != nil {
			return o, err
		}
	}
	if err := s.SetRoles(ctx, after); err != nil {
		return o, err
	}
	second, err := send.turn(ctx, "And what follows from that?", 16)
	if err != nil {
		return o, fmt.Errorf("second turn: %w", err)
	}
	o.Prompt, o.Generated, o.Cached = first.prompt, first.generated, second.cached
	o.Share = float64(o.Cached) / float64(o.Prompt+o.Generated)
	o.First, o.Second = first.decodeOn, second.decodeOn
	o.Problem = problem(sc.Place, first, second)
	return o, nil
}

// crash kills all children and waits until they run again. Their roles are in a
// stream, so SetRoles only has to wait for them.
func crash(ctx context.Context, s *stack.Stack) error {
	killed := map[string]int{}
	for id := range s.Processes() {
		pid, err := s.Kill(id, syscall.SIGKILL)
		if err != nil {
			return err
		}
		killed[id] = pid
	}
	for id, pid := range killed {
		if _, err := s.WaitRestarted(ctx, id, pid); err != nil {
			return err
		}
	}
	return nil
}

// problem says why a scenario did not show what it should have shown.
func problem(place Place, first, second answer) string {
	var ps []string
	if first.prompt < firstPrompt || first.generated != firstGenerated {
		ps = append(ps, fmt.Sprintf("the first turn had %d prompt and %d generated tokens", first.prompt, first.generated))
	}
	if first.cached >= 64 {
		ps = append(ps, fmt.Sprintf("the first turn found %d tokens", first.cached))
	}
	if want := map[Place]string{Same: "d0", Another: "d1", Swapped: "p0", Crashed: "d0"}[place]; first.decodeOn != "d0" || second.decodeOn != want {
		ps = append(ps, fmt.Sprintf("decoded on %s and then on %s", first.decodeOn, second.decodeOn))
	}
	return strings.Join(ps, "; ")
}

// roles for the first and the second turn.
func roles(p Place) (before, after map[string]schemas.Role) {
	before = map[string]schemas.Role{"p0": schemas.RolePrefill, "d0": schemas.RoleDecode, "d1": schemas.RoleStandby}
	switch p {
	case Another:
		after = map[string]schemas.Role{"p0": schemas.RolePrefill, "d0": schemas.RoleStandby, "d1": schemas.RoleDecode}
	case Swapped:
		after = map[string]schemas.Role{"p0": schemas.RoleDecode, "d0": schemas.RolePrefill, "d1": schemas.RoleStandby}
	default:
		after = before
	}
	return before, after
}

// firstText is a message of more than firstPrompt tokens: the random models have a
// token for 1.4 characters of such text. It begins differently in each scenario, so that
// none finds another's blocks.
func firstText(sc Scenario) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Session %v. ", sc)
	for i := 0; b.Len() < firstPrompt*3/2+100; i++ {
		fmt.Fprintf(&b, "Line %d: the tool returned %d rows in %d ms. ", i, i*7919%1009, i*104729%997)
	}
	return b.String()
}

// MinShare is the smallest share of the outcomes, 0 when there are none.
func MinShare(out []Outcome) float64 {
	if len(out) == 0 {
		return 0
	}
	return slices.MinFunc(out, func(a, b Outcome) int {
		switch {
		case a.Share < b.Share:
			return -1
		case a.Share > b.Share:
			return 1
		}
		return 0
	}).Share
}
