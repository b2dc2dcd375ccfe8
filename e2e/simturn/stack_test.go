package simturn

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/gpuexec/nullengine"
	"github.com/weir-dev/weir/gpuexec/worker"
	"github.com/weir-dev/weir/kvtier/lineage"
	"github.com/weir-dev/weir/planner/route"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
	"github.com/weir-dev/weir/streams/simrun"
)

const cell = "c0"

// stack is a cell in simulation: one lineage, one router, executors that share a
// tier. All chance comes from one seed.
type stack struct {
	t    *testing.T
	sim  *simrun.Sim
	rnd  *rand.Rand
	tier *memTier
	lin  *lineage.Lineage
	log  hash.Hash

	roles               []schemas.Role
	boots               []int // lives of each executor; negative while it is down
	linDown, routerDown bool

	poison string // session whose turns end the executor that opens them
	deaths int
}

func newStack(t *testing.T, seed uint64, net simrun.Net, roles ...schemas.Role) *stack {
	s := &stack{t: t, rnd: rand.New(rand.NewPCG(seed, 2)), tier: newTier(), log: sha256.New(), roles: roles, boots: make([]int, len(roles))}
	var err error
	if s.sim, err = simrun.New(simrun.Options{Seed: seed, Net: net, Log: s.log}); err != nil {
		t.Fatal(err)
	}
	for i, r := range roles {
		s.assign(i, r)
	}
	s.startLineage()
	s.startRouter()
	for i := range roles {
		s.startExecutor(i)
	}
	return s
}

func execID(i int) string { return fmt.Sprintf("e%d", i) }

func (s *stack) assign(i int, role schemas.Role) {
	s.roles[i] = role
	_, err := s.sim.PublishMsg(&schemas.Msg{
		Kind: schemas.KindAssignment, Subject: schemas.RoleSubject(cell, execID(i)), Assignment: &schemas.Assignment{Header: schemas.H(), Role: role},
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *stack) start(svc simrun.Service) {
	s.t.Helper()
	if err := s.sim.Start(svc); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stack) startLineage() {
	s.lin = lineage.New(lineage.Config{Cell: cell, Models: []lineage.Model{{
		Name: "null", Digest: "d", Vocab: nullengine.Vocab{}.Name(), Template: "tpl", Context: 4096, Size: nullengine.Vocab{}.Size(),
	}}})
	s.start(simrun.Service{
		Name: "lineage", Actor: s.lin, SnapshotEvery: 3 * time.Second, Local: s.lineageOp, OnBad: nil,
		Inputs: []streams.Input{
			{Stream: streams.Result, Policy: streams.NoAck, Deliver: streams.DeliverAll, Resume: true},
			{Stream: streams.Agent, Policy: streams.NoAck, Deliver: streams.DeliverAll, Resume: true},
			{Core: true, Filters: []string{schemas.HBSubject(cell, "*")}},
		},
	})
}

func (s *stack) startRouter() {
	s.start(simrun.Service{
		Name: "router", Actor: route.New(route.Config{Cell: cell, DirectMax: 128}),
		Inputs: []streams.Input{
			{
				Stream: streams.Ready, Filters: []string{schemas.ReadySubject(cell, "*", "*", "*")}, Durable: "router-" + cell,
				Policy: streams.Hold, Recreate: true,
			},
			{Stream: streams.Done, Filters: []string{schemas.DoneSubject(cell, "*")}, Policy: streams.NoAck, Deliver: streams.DeliverNew},
			{Stream: streams.Result, Policy: streams.NoAck, Deliver: streams.DeliverNew},
			{Core: true, Filters: []string{schemas.HBSubject(cell, "*")}},
		},
	})
}

func (s *stack) startExecutor(i int) {
	s.boots[i]++
	id := execID(i)
	e, err := nullengine.New(nullengine.Options{Slots: 4, Context: 4096})
	if err != nil {
		s.t.Fatal(err)
	}
	info := e.Info()
	format := schemas.KVFormat{Engine: info.Engine, Version: info.Version, Numerics: info.Numerics, Layout: 1}
	w := worker.New(worker.Config{
		Engine: e, Vocab: nullengine.Vocab{}, Tier: s.tier, Keys: keys{}, Format: format, Now: func() int64 { return int64(s.sim.Now()) },
	})
	s.start(simrun.Service{
		Name: id,
		Actor: gpuexec.NewExecutor(gpuexec.Config{
			Cell: cell, Executor: id, Node: "n0", Pool: "null", Boot: fmt.Sprintf("b%d", s.boots[i]), Limits: e.Limits(), Format: format,
		}),
		Inputs: []streams.Input{
			{Stream: streams.Role, Filters: []string{schemas.RoleSubject(cell, id)}, Policy: streams.NoAck, Deliver: streams.DeliverLastPerSubject},
			{Stream: streams.Prefill, Filters: []string{schemas.JobSubject(schemas.StagePrefill, cell, id, "*")}, Policy: streams.NoAck, Deliver: streams.DeliverNew},
			{Stream: streams.Decode, Filters: []string{schemas.JobSubject(schemas.StageDecode, cell, id, "*")}, Policy: streams.NoAck, Deliver: streams.DeliverNew},
			{Core: true, Filters: []string{schemas.CancelSubject(cell, id)}},
		},
		Local: func(now schemas.Time, op *schemas.Op) (schemas.OpDone, time.Duration) {
			if op.Delivered != nil || op.Tokens != nil {
				return s.ask(now, op), time.Millisecond
			}
			if op.Prefill != nil {
				op.Prefill.MaxBlocks = 2 // the clock stands still inside an operation
			}
			if s.poison != "" && op.Open != nil && op.Open.Ready.Session == s.poison {
				s.sim.At(now, func() { s.abort(i) })
			}
			d := w.Do(op)
			took := 300 * time.Microsecond
			if op.Decode != nil || op.Prefill != nil {
				took = 3 * time.Millisecond
			}
			d.TookNS = int64(took)
			return d, took
		},
	})
}

// crash ends a service as kill -9 does; it comes back later.
func (s *stack) crash(name string, back time.Duration, start func()) {
	s.sim.Crash(name)
	s.sim.At(s.sim.Now()+schemas.Time(back), start)
}

// abort ends an executor by itself.
func (s *stack) abort(i int) {
	s.deaths++
	s.sim.Crash(execID(i))
	s.died(i, false)
	s.sim.At(s.sim.Now()+schemas.Time(200*time.Millisecond), func() { s.startExecutor(i) })
}

// died is the supervisor's word about a process that ended.
func (s *stack) died(i int, outside bool) {
	h := &schemas.Heartbeat{Header: schemas.H(), Executor: execID(i), Dead: true, Outside: outside, Cause: "signal"}
	b, err := schemas.Encode(h)
	if err != nil {
		s.t.Fatal(err)
	}
	for range 4 { // core messages may be lost here
		s.sim.PublishCore(schemas.HBSubject(cell, execID(i)), b)
	}
}

// lineageOp does lineage's operations: the fake template and tokenizer, and looks
// into streams.
func (s *stack) lineageOp(_ schemas.Time, op *schemas.Op) (schemas.OpDone, time.Duration) {
	d := schemas.OpDone{ID: op.ID}
	switch {
	case op.Render != nil:
		d.Render = &schemas.RenderDone{Reply: render(&op.Render.Request)}
	case op.Lookup != nil:
		q := op.Lookup
		d.Lookup = &schemas.LookupDone{}
		if b := s.last(streams.Ready, schemas.ReadySubject(cell, q.Tenant, q.Session, q.Turn)); b != nil {
			var r schemas.Ready
			if err := schemas.Decode(b, &r); err != nil {
				s.t.Fatal(err)
			}
			d.Lookup.Ready, d.Lookup.Branch = true, r.Branch
		}
		if b := s.last(streams.Result, schemas.ResultSubject(q.Tenant, q.Session, q.Turn)); b != nil {
			d.Lookup.Result = &schemas.Result{}
			if err := schemas.Decode(b, d.Lookup.Result); err != nil {
				s.t.Fatal(err)
			}
		}
	default:
		d.Err = "no such operation"
	}
	return d, time.Duration(1+s.rnd.IntN(20)) * time.Millisecond
}

func (s *stack) last(stream, subject string) (body []byte) {
	for _, m := range s.sim.Stored(stream) {
		if m.Subject == subject {
			body = m.Body
		}
	}
	return body
}

// ask answers an executor's questions as services/executor does.
func (s *stack) ask(now schemas.Time, op *schemas.Op) schemas.OpDone {
	d := schemas.OpDone{ID: op.ID}
	if op.Tokens != nil {
		out := s.lin.Step(now, &schemas.Msg{Kind: schemas.KindTokensRequest, Reply: "r.1", TokensReq: op.Tokens}, nil)
		d.Tokens = out[0].TokensRep
		return d
	}
	q := op.Delivered
	d.Delivered = &schemas.DeliveredDone{Finished: s.last(streams.Result, schemas.ResultSubject(q.Tenant, q.Session, q.Turn)) != nil}
	if b := s.last(streams.Ckpt, schemas.CkptSubject(q.Tenant, q.Session, q.Turn)); b != nil {
		var c schemas.Checkpoint
		if err := schemas.Decode(b, &c); err != nil {
			s.t.Fatal(err)
		}
		d.Delivered.Tokens = c.Tokens
	}
	for _, f := range s.frames(q.Tenant, q.Session, q.Turn) {
		if have := len(d.Delivered.Tokens); f.First <= have && f.First+len(f.Tokens) > have {
			d.Delivered.Tokens = append(d.Delivered.Tokens, f.Tokens[have-f.First:]...)
		}
	}
	return d
}

func (s *stack) frames(tenant, session, turn string) (out []schemas.Frame) {
	subject := schemas.OutSubject(tenant, session, turn)
	for _, m := range s.sim.Stored(streams.Out) {
		if m.Subject != subject {
			continue
		}
		var f schemas.Frame
		if err := schemas.Decode(m.Body, &f); err != nil {
			s.t.Fatal(err)
		}
		if f.Reject == nil {
			out = append(out, f)
		}
	}
	return out
}

// render is a fixed ChatML template over the fake engine's alphabet.
func render(r *schemas.RenderRequest) schemas.RenderReply {
	var b bytes.Buffer
	for _, raw := range r.Messages {
		var m struct{ Role, Content string }
		if err := json.Unmarshal(raw, &m); err != nil {
			return schemas.RenderReply{Header: schemas.H(), Failure: &schemas.Failure{Code: schemas.CodeInvalid, Message: err.Error()}}
		}
		fmt.Fprintf(&b, "<|im_start|>%s\n%s<|im_end|>\n", m.Role, m.Content)
	}
	b.WriteString("<|im_start|>assistant\n")
	reply := schemas.RenderReply{Header: schemas.H(), Text: b.String()}
	rest := reply.Text
	for i := len(r.Known) - 1; i >= 0; i-- {
		k := r.Known[i]
		if k.Bytes > len(reply.Text) {
			continue
		}
		if sum := sha256.Sum256([]byte(reply.Text[:k.Bytes])); hex.EncodeToString(sum[:]) == k.Digest {
			reply.Matched, rest = i+1, reply.Text[k.Bytes:]
			break
		}
	}
	toks, err := nullengine.Vocab{}.Tokenize(rest, false, true)
	if err != nil {
		reply.Failure = &schemas.Failure{Code: schemas.CodeInvalid, Message: err.Error()}
	}
	reply.Tokens = toks
	return reply
}
