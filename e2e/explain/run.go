package explain

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/e2e/stack"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/explaincmd"
	"github.com/weir-dev/weir/services/turns"
)

// Detail is one case's outcome.
type Detail struct {
	Cause schemas.MissCause `json:"cause"` // that was planted
	Right bool              `json:"right"`
	// Got is the cause that was named; Problem what else was wrong.
	Got     schemas.MissCause `json:"got,omitempty"`
	Problem string            `json:"problem,omitempty"`
}

// Bounds of a run.
const (
	caseWait = 60 * time.Second
	smallMem = "4MiB"
)

// Run plants all cases on stacks of the default engine and model. right of total
// were explained right; the error means that a stack did not run.
func Run(ctx context.Context) (right, total int, details []Detail, err error) {
	all, err := run(ctx)
	for _, d := range all {
		total++
		if d.Right {
			right++
		}
	}
	return right, total, all, err
}

func run(ctx context.Context) ([]Detail, error) {
	var all []Detail
	err := onStack(ctx, stack.Options{Args: []string{"--prefill", "1", "--decode", "1", "--ctx", "4096", "--slots", "2", "--kv-mem", "256MiB"}}, func(p *planter) error {
		var err error
		all, err = p.plant(ctx, textCases(), all)
		return err
	})
	if err != nil {
		return all, err
	}
	// One executor does both, so nothing but the case's own blocks lies in the memory.
	// The same folder then serves another model, which changes what a session has.
	dir, err := os.MkdirTemp("", "weir-explain-")
	if err != nil {
		return all, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	small := []string{"--mixed", "1", "--ctx", "4096", "--slots", "1", "--kv-mem", smallMem}
	first := plant{cause: schemas.MissFirst, message: none, turns: []turn{{msgs: opening("m")}}}
	session := "model"
	err = onStack(ctx, stack.Options{Dir: dir, Args: small}, func(p *planter) error {
		if all, err = p.plant(ctx, memoryCases(), all); err != nil {
			return err
		}
		_, err := p.one(ctx, session, first)
		return err
	})
	if err != nil {
		return all, err
	}
	path, err := stack.ModelFile("tiny")
	if err != nil {
		return all, err
	}
	err = onStack(ctx, stack.Options{Dir: dir, Args: append(small, "--model", path)}, func(p *planter) error {
		d, err := p.one(ctx, session, plant{cause: schemas.MissModel, message: none, turns: []turn{{msgs: append(opening("m"), say("assistant", "I see."), say("user", "Go on."))}}})
		all = append(all, d)
		return err
	})
	if err != nil {
		return all, err
	}
	err = onStack(ctx, stack.Options{Args: []string{"--engine", "null", "--null-vision", "--kv-mem", "64MiB"}}, func(p *planter) error {
		ref, err := p.image(ctx)
		if err == nil {
			all, err = p.plant(ctx, mediaCases(ref), all)
		}
		return err
	})
	return all, err
}

// image puts a picture into the bucket, as a publisher without weir's code does, and
// returns a reference that does not tell its size.
func (p *planter) image(ctx context.Context) (string, error) {
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, 64, 64))); err != nil {
		return "", err
	}
	js, err := jetstream.New(p.nc)
	if err != nil {
		return "", err
	}
	bucket, err := js.ObjectStore(ctx, "PAYLOAD")
	if err != nil {
		return "", err
	}
	name := fmt.Sprintf("%x", sha256.Sum256(b.Bytes()))
	if _, err := bucket.PutBytes(ctx, name, b.Bytes()); err != nil {
		return "", err
	}
	return "weir-media:" + name + "?type=image/png", nil
}

func onStack(ctx context.Context, o stack.Options, f func(*planter) error) (err error) {
	s, err := stack.Launch(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	p := &planter{s: s}
	if p.bin, err = stack.Binary(); err != nil {
		return err
	}
	if p.client, err = s.Client(); err != nil {
		return err
	}
	if p.nc, err = s.Connect("e2e-explain"); err != nil {
		return err
	}
	if err := f(p); err != nil {
		return fmt.Errorf("%w\n%s", err, s.Logs(10))
	}
	return nil
}

// planter plants cases on one stack.
type planter struct {
	s      *stack.Stack
	bin    string
	client *turns.Client
	nc     *nats.Conn
	n      int
}

func (p *planter) plant(ctx context.Context, cases []plant, all []Detail) ([]Detail, error) {
	for _, c := range cases {
		d, err := p.one(ctx, "case-"+strings.ReplaceAll(string(c.cause), "_", "-"), c)
		all = append(all, d)
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

// one plants a case in a session and compares what is explained.
func (p *planter) one(ctx context.Context, session string, c plant) (Detail, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, caseWait, fmt.Errorf("the case of %s did not end within %s", c.cause, caseWait))
	defer cancel()
	d := Detail{Cause: c.cause}
	var before []message
	last := ""
	for i, t := range c.turns {
		where, msgs := session, append(append([]message(nil), before...), t.msgs...)
		if t.session != "" {
			where, msgs = session+"-"+t.session, t.msgs
		} else if t.whole != nil {
			msgs = t.whole(before)
		}
		link(msgs)
		id := fmt.Sprintf("t%d", p.n)
		p.n++
		r, err := p.ask(ctx, where, id, t, msgs)
		if err != nil {
			// The other cases are still worth to be tried, unless time is up.
			d.Problem = fmt.Sprintf("turn %d: %s", i+1, err)
			return d, context.Cause(ctx)
		}
		if t.session == "" {
			answer, err := answerOf(r)
			if err != nil {
				return d, err
			}
			before, last = append(msgs, answer), id
		}
	}
	rep, err := p.explain(ctx, session, last)
	if err != nil {
		return d, err
	}
	d.Got, d.Problem = compare(c, rep)
	d.Right = d.Problem == ""
	return d, nil
}

// link gives tool results the id of the call that stands before them.
func link(msgs []message) {
	var id any
	for _, m := range msgs {
		if calls, ok := m["tool_calls"].([]any); ok && len(calls) > 0 {
			if call, ok := calls[0].(map[string]any); ok {
				id = call["id"]
			}
		}
		if m["role"] == "tool" && id != nil {
			m["tool_call_id"] = id
		}
	}
}

// ask runs one turn, as an agent that sends all its messages again.
func (p *planter) ask(ctx context.Context, session, id string, t turn, msgs []message) (*schemas.Result, error) {
	most := t.max
	if most == 0 {
		most = 4
	}
	zero := 0.0
	req := &schemas.Turn{Weir: schemas.TurnMeta{Turn: id}, Body: schemas.Body{MaxTokens: &most, Temperature: &zero}}
	for _, m := range msgs {
		b, err := json.Marshal(m)
		if err != nil {
			return nil, err
		}
		req.Messages = append(req.Messages, b)
	}
	for _, tool := range t.tools {
		req.Tools = append(req.Tools, json.RawMessage(tool))
	}
	req.ChatTemplateKwargs = json.RawMessage(t.kwargs)
	if t.stop != "" {
		req.Stop = schemas.StopList{t.stop}
	}
	if t.force != "" {
		tokens, err := stack.Tokens(ctx, p.nc, p.s.Ready.Model, t.force)
		if err != nil {
			return nil, err
		}
		most = int64(len(tokens)) + 1 // so that it does not end for its length
		req.Weir.ForceOutput = tokens
	}
	if t.raw {
		return p.raw(ctx, session, id, req)
	}
	st, err := p.client.Publish(ctx, turns.Request{Session: session, Turn: req})
	if err != nil {
		return nil, err
	}
	defer st.Close()
	for {
		e, err := st.Next(ctx)
		if err != nil {
			return nil, err
		}
		if r := e.Result; r != nil {
			if r.Failure != nil {
				return nil, fmt.Errorf("%s: %s", r.Failure.Code, r.Failure.Message)
			}
			return r, nil
		}
	}
}

// raw publishes a turn as a program without weir's code does.
func (p *planter) raw(ctx context.Context, session, id string, req *schemas.Turn) (*schemas.Result, error) {
	body, err := schemas.Encode(req)
	if err != nil {
		return nil, err
	}
	results, err := p.nc.SubscribeSync(schemas.ResultSubject(schemas.DefaultTenant, session, id))
	if err != nil {
		return nil, err
	}
	defer func() { _ = results.Unsubscribe() }() // the connection ends soon
	js, err := jetstream.New(p.nc)
	if err != nil {
		return nil, err
	}
	if _, err := js.Publish(ctx, schemas.AgentSubject(schemas.DefaultTenant, session, schemas.EventTurn), body); err != nil {
		return nil, err
	}
	m, err := results.NextMsgWithContext(ctx)
	if err != nil {
		return nil, err
	}
	r := new(schemas.Result)
	if err := schemas.Decode(m.Data, r); err != nil {
		return nil, err
	}
	if r.Failure != nil {
		return nil, fmt.Errorf("%s: %s", r.Failure.Code, r.Failure.Message)
	}
	return r, nil
}

// answerOf is the message that an agent keeps of an answer.
func answerOf(r *schemas.Result) (message, error) {
	if len(r.Message) == 0 {
		return say("assistant", r.Text), nil
	}
	var m message
	if err := json.Unmarshal(r.Message, &m); err != nil {
		return nil, fmt.Errorf("the result's message: %w", err)
	}
	return m, nil
}

// explain runs the command as a person does.
func (p *planter) explain(ctx context.Context, session, id string) (*explaincmd.TurnReport, error) {
	cmd := exec.CommandContext(ctx, p.bin, "explain", "turn", session, id, "-o", "json", "--nats", p.s.Ready.NATS, "--cell", p.s.Ready.Cell)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("weir explain turn %s %s: %w: %s", session, id, err, errs.String())
	}
	rep := new(explaincmd.TurnReport)
	if err := json.Unmarshal(out.Bytes(), rep); err != nil {
		return nil, fmt.Errorf("weir explain turn %s %s: %w in %.500s", session, id, err, out.String())
	}
	return rep, nil
}

// compare says what is wrong with an explanation, "" if nothing is.
func compare(c plant, rep *explaincmd.TurnReport) (got schemas.MissCause, problem string) {
	m := rep.Miss
	if m == nil {
		return "", "no cause is named"
	}
	var bad []string
	if m.Cause != c.cause {
		bad = append(bad, fmt.Sprintf("cause %s instead of %s", m.Cause, c.cause))
	}
	if c.message != none {
		switch {
		case m.Message == nil || *m.Message != c.message:
			bad = append(bad, "message "+number(m.Message)+fmt.Sprintf(" instead of %d", c.message))
		case c.message >= 0 && c.byte >= 0 && (m.Byte == nil || *m.Byte != c.byte):
			bad = append(bad, "byte "+number(m.Byte)+fmt.Sprintf(" instead of %d", c.byte))
		case c.message >= 0 && m.After == "":
			bad = append(bad, "no text is shown")
		}
	}
	if m.Rule != c.rule {
		bad = append(bad, fmt.Sprintf("rule %q instead of %q", m.Rule, c.rule))
	}
	if c.rule != "" && m.Evicted == "" {
		bad = append(bad, "no time of the eviction")
	}
	if len(rep.Stages) < 3 {
		bad = append(bad, fmt.Sprintf("%d stages", len(rep.Stages)))
	}
	if len(bad) > 0 && len(rep.Notes) > 0 {
		bad = append(bad, "notes: "+strings.Join(rep.Notes, "; "))
	}
	return m.Cause, strings.Join(bad, "; ")
}

func number(n *int) string {
	if n == nil {
		return "none"
	}
	return fmt.Sprint(*n)
}
