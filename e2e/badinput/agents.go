package badinput

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weir-dev/weir/e2e/stack"
	"github.com/weir-dev/weir/schemas"
)

// agent is one session of an agent that errs, on the bus.
type agent struct {
	b       *Bus
	session string
	turns   int
}

// say publishes an event and returns its sequence in AGENT.
func (a *agent) say(ctx context.Context, tenant string, kind schemas.EventKind, body string) (uint64, error) {
	ack, err := a.b.JS.Publish(ctx, schemas.AgentSubject(tenant, a.session, kind), []byte(body))
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// dead says something that must land among the dead letters for that reason.
func (a *agent) dead(ctx context.Context, kind schemas.EventKind, body, reason string) error {
	seq, err := a.say(ctx, schemas.DefaultTenant, kind, body)
	if err != nil {
		return err
	}
	d, err := a.b.Dead(ctx, seq)
	if err == nil && !strings.Contains(d.Reason, reason) {
		err = fmt.Errorf("%s %s: the dead letter says %q, want %q", kind, body, d.Reason, reason)
	}
	return err
}

// turn publishes a turn and waits for its result.
func (a *agent) turn(ctx context.Context, meta, messages string) (*schemas.Result, error) {
	a.turns++
	results, err := a.b.NC.SubscribeSync(schemas.ResultSubject(schemas.DefaultTenant, a.session, fmt.Sprintf("t%d", a.turns)))
	if err != nil {
		return nil, err
	}
	defer func() { _ = results.Unsubscribe() }() // the connection ends soon
	if err := a.b.NC.Flush(); err != nil {
		return nil, err
	}
	body := fmt.Sprintf(`{"weir":{"turn":"t%d"%s},"max_tokens":8,"messages":[%s]}`, a.turns, meta, messages)
	if _, err := a.say(ctx, schemas.DefaultTenant, schemas.EventTurn, body); err != nil {
		return nil, err
	}
	return NextResult(ctx, results)
}

// good is a turn that must be answered.
func (a *agent) good(ctx context.Context, meta, messages string) error {
	r, err := a.turn(ctx, meta, messages)
	if err == nil && r.Failure != nil {
		err = fmt.Errorf("a good turn failed: %s: %s", r.Failure.Code, r.Failure.Message)
	}
	return err
}

// info asks lineage about the session.
func (a *agent) info(ctx context.Context, cell, tenant string) (*schemas.SessionReply, error) {
	q, err := schemas.Encode(&schemas.SessionRequest{Header: schemas.H(), Tenant: tenant, Session: a.session})
	if err != nil {
		return nil, err
	}
	m, err := a.b.NC.RequestWithContext(ctx, schemas.SessionSubject(cell), q)
	if err != nil {
		return nil, err
	}
	r := new(schemas.SessionReply)
	return r, schemas.Decode(m.Data, r)
}

const (
	helloMessage = `{"role":"user","content":"hello"}`
	longMessages = `{"role":"system","content":"You are terse."},{"role":"user","content":"What is a harbour? It is a place."}`
)

// agentWait bounds each of the cases below.
const agentWait = 90 * time.Second

// Agents misuses what agents say about branches, each in a session of its own, and
// checks that it is told, that nothing else suffers, and that the session goes on.
func Agents(ctx context.Context, s *stack.Stack, b *Bus) []error {
	var errs []error
	for _, c := range []struct {
		name string
		do   func(ctx context.Context, s *stack.Stack, a *agent) error
	}{
		{"unknown and cyclic branches", badBranches},
		{"events late, twice, out of order and after the end", badOrder},
		{"another tenant's session", badTenant},
		{"tool results without calls", badResults},
		{"a compaction that keeps nothing", badCompaction},
		{"10,000 branches", manyBranches},
		{"2 MB of tool definitions", manyTools},
	} {
		try, cancel := context.WithTimeoutCause(ctx, agentWait, fmt.Errorf("it did not end within %s", agentWait))
		if err := c.do(try, s, &agent{b: b, session: NewSession()}); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", c.name, errors.Join(err, context.Cause(try))))
		}
		cancel()
	}
	return errs
}

func badBranches(ctx context.Context, _ *stack.Stack, a *agent) error {
	return errors.Join(
		a.dead(ctx, schemas.EventToolWait, `{"v":1,"tool":"make"}`, "session"), // nothing is known of it yet
		a.good(ctx, "", helloMessage),
		a.dead(ctx, schemas.EventToolWait, `{"v":1,"branch":"nobody","tool":"make"}`, "nobody"),
		a.dead(ctx, schemas.EventBranchFork, `{"v":1,"branch":"b","parent":"nobody"}`, "nobody"),
		a.dead(ctx, schemas.EventBranchFork, `{"v":1,"branch":"b","parent":"b"}`, "b"),
		first(a.say(ctx, schemas.DefaultTenant, schemas.EventBranchFork, `{"v":1,"branch":"b","parent":"main"}`)),
		a.dead(ctx, schemas.EventBranchFork, `{"v":1,"branch":"main","parent":"b"}`, "main"),
		a.good(ctx, `,"branch":"b"`, helloMessage),
		a.good(ctx, `,"branch":"main"`, helloMessage),
	)
}

func first(_ uint64, err error) error { return err }

func badOrder(ctx context.Context, s *stack.Stack, a *agent) error {
	if err := a.good(ctx, "", helloMessage); err != nil {
		return err
	}
	var errs []error
	for _, e := range []struct {
		kind schemas.EventKind
		body string
	}{
		{schemas.EventUserWait, `{"v":1}`},
		{schemas.EventToolWait, `{"v":1,"tool":"make","expected_ns":9223372036854775807}`},
		{schemas.EventToolWait, `{"v":1,"tool":"make","expected_ns":1}`},
		{schemas.EventToolWait, `{"v":1,"tool":"make","expected_ns":1}`},
		{schemas.EventCompacted, `{"v":1}`},
		{schemas.EventPrefixRewrite, `{"v":1}`},
		{schemas.EventBranchEnd, `{"v":1}`},
		{schemas.EventBranchEnd, `{"v":1}`},
		{schemas.EventSessionEnd, `{"v":1}`},
		{schemas.EventSessionEnd, `{"v":1}`},
	} {
		errs = append(errs, first(a.say(ctx, schemas.DefaultTenant, e.kind, e.body)))
	}
	errs = append(errs,
		a.dead(ctx, schemas.EventToolWait, `{"v":1,"tool":"make"}`, "ended"),
		a.good(ctx, "", helloMessage), // the agent is back
	)
	r, err := a.info(ctx, s.Ready.Cell, schemas.DefaultTenant)
	if err == nil && (len(r.Branches) == 0 || r.Branches[0].State == schemas.BranchEnded) {
		err = fmt.Errorf("a session that goes on is told as %+v", r.Branches)
	}
	return errors.Join(append(errs, err)...)
}

func badTenant(ctx context.Context, s *stack.Stack, a *agent) error {
	if err := a.good(ctx, "", helloMessage); err != nil {
		return err
	}
	seq, err := a.say(ctx, "other", schemas.EventSessionEnd, `{"v":1}`)
	if err != nil {
		return err
	}
	if _, err := a.b.Dead(ctx, seq); err != nil {
		return err
	}
	r, err := a.info(ctx, s.Ready.Cell, schemas.DefaultTenant)
	if err == nil && (len(r.Branches) != 1 || r.Branches[0].State != schemas.BranchUserWaiting) {
		err = fmt.Errorf("another tenant's event changed the session: %+v", r.Branches)
	}
	if o, err2 := a.info(ctx, s.Ready.Cell, "other"); err2 != nil || o.Found {
		err = errors.Join(err, err2, fmt.Errorf("the other tenant has the session: %+v", o))
	}
	return errors.Join(err, a.good(ctx, "", helloMessage))
}

func badResults(ctx context.Context, _ *stack.Stack, a *agent) error {
	r, err := a.turn(ctx, "", helloMessage+`,{"role":"tool","tool_call_id":"call_1","content":"done"}`)
	if err != nil {
		return err
	}
	if f := r.Failure; f == nil || f.Code != schemas.CodeInvalid || !strings.Contains(f.Message, "tool_call_id") {
		err = fmt.Errorf("a tool result without a call: %+v", f)
	}
	call := `{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"ls","arguments":"{}"}}]}`
	return errors.Join(err, a.good(ctx, "", helloMessage+","+call+`,{"role":"tool","tool_call_id":"call_1","content":"done"}`))
}

func badCompaction(ctx context.Context, s *stack.Stack, a *agent) error {
	err := errors.Join(
		a.good(ctx, `,"branch":"main"`, longMessages),
		first(a.say(ctx, schemas.DefaultTenant, schemas.EventCompacted, `{"v":1,"branch":"main"}`)),
		a.good(ctx, `,"branch":"main"`, helloMessage),
		a.good(ctx, "", `{"role":"user","content":"Summary: nothing."}`),
	)
	r, err2 := a.info(ctx, s.Ready.Cell, schemas.DefaultTenant)
	if err2 == nil && (!r.Found || len(r.Branches) == 0) {
		err2 = fmt.Errorf("the session is lost: %+v", r)
	}
	return errors.Join(err, err2)
}

// branches that one session has in the case below.
const branchCount = 10_000

func manyBranches(ctx context.Context, s *stack.Stack, a *agent) error {
	if err := a.good(ctx, "", longMessages); err != nil {
		return err
	}
	for i := range branchCount {
		if _, err := a.b.JS.PublishAsync(schemas.AgentSubject(schemas.DefaultTenant, a.session, schemas.EventBranchFork),
			fmt.Appendf(nil, `{"v":1,"branch":"b%d","parent":"main"}`, i)); err != nil {
			return err
		}
	}
	select {
	case <-a.b.JS.PublishAsyncComplete():
	case <-ctx.Done():
		return errors.New("the events were not stored")
	}
	err := errors.Join(
		a.good(ctx, fmt.Sprintf(`,"branch":"b%d"`, branchCount-1), longMessages),
		a.good(ctx, "", longMessages), // placed among all of them
	)
	r, err2 := a.info(ctx, s.Ready.Cell, schemas.DefaultTenant)
	if err2 == nil && len(r.Branches)+r.Left < branchCount {
		err2 = fmt.Errorf("%d branches are left of %d", len(r.Branches)+r.Left, branchCount)
	}
	return errors.Join(err, err2)
}

func manyTools(ctx context.Context, s *stack.Stack, a *agent) error {
	type function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	}
	type tool struct {
		Type     string   `json:"type"`
		Function function `json:"function"`
	}
	var tools []tool
	for i := range 200 {
		f := function{fmt.Sprintf("tool_%d", i), strings.Repeat("It looks into a file. ", 480), json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"}}}`)}
		tools = append(tools, tool{"function", f})
	}
	var errs []error
	for _, choice := range []string{"auto", "required"} {
		body, err := json.Marshal(map[string]any{"messages": []json.RawMessage{json.RawMessage(helloMessage)}, "tools": tools, "tool_choice": choice, "max_tokens": 4})
		if err != nil {
			return err
		}
		if len(body) < 2<<20 {
			return fmt.Errorf("the tool definitions have %d bytes only", len(body))
		}
		o := post(ctx, s.Ready.HTTP, "", body)
		if o.Status != 400 || len(o.Text) < 10 {
			errs = append(errs, fmt.Errorf("tool_choice %s: status %d, code %s: %s", choice, o.Status, o.Code, o.Text))
		}
	}
	return errors.Join(append(errs, a.good(ctx, "", helloMessage))...)
}
