package replay

import (
	"container/heap"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/kvtier/lineage"
	"github.com/weir-dev/weir/kvtier/workload"
	"github.com/weir-dev/weir/schemas"
)

// Mode is how much the agents of a load say.
type Mode string

// The modes.
const (
	// Explicit agents name their branches, send what is new, and say what they wait
	// for and when they end.
	Explicit Mode = "weir"
	// Inferred agents send their whole history, and say nothing else.
	Inferred Mode = "inferred"
)

// epoch is when a load begins: some time, in Unix nanoseconds.
const epoch = 1_750_000_000_000_000_000

// ErrRecord is what errors of Record wrap.
var ErrRecord = errors.New("replay: the load cannot be recorded")

// event is something that an agent or an executor does.
type event struct {
	at   int64
	kind eventKind
	seq  int // of events at one time and of one kind, the first that was made
	call int
	say  *workload.Say
}

type eventKind uint8

const (
	eventResult eventKind = iota
	eventSay
	eventTurn
)

type events []event

func (h events) Len() int { return len(h) }

func (h events) Less(i, j int) bool {
	a, b := &h[i], &h[j]
	if a.at != b.at {
		return a.at < b.at
	}
	if a.kind != b.kind {
		return a.kind < b.kind
	}
	return a.seq < b.seq
}
func (h events) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *events) Push(x any)   { *h = append(*h, x.(event)) }
func (h *events) Pop() any {
	old := *h
	e := old[len(old)-1]
	*h = old[:len(old)-1]
	return e
}

// recorder is the bus, the tokenizer and the executors around one lineage actor.
type recorder struct {
	talk    *talk
	mode    Mode
	actor   *lineage.Lineage
	format  schemas.KVFormat
	render  nameRenderer
	chains  *chains
	log     *Log
	todo    events
	made    int // events so far
	agent   uint64
	results uint64
	ready   map[int]*sent
	roots   map[schemas.KeySpec]kvtier.Key
	known   map[int]string // digests of results, by call
	on      map[[2]int32]string
}

// sent is a call in work.
type sent struct {
	messages []message
	ready    *schemas.Ready
}

const (
	modelName = "replay"
	nodeName  = "n0"
)

// Record runs a load through lineage. The error of a load that cannot be run names the
// call.
func Record(s *workload.Schedule, mode Mode) (*Log, error) {
	if mode != Explicit && mode != Inferred {
		return nil, fmt.Errorf("%w: mode is %q, known are %s and %s", ErrRecord, mode, Explicit, Inferred)
	}
	x, err := newScript(s)
	if err != nil {
		return nil, err
	}
	r := &recorder{
		talk: newTalk(x), mode: mode, chains: newChains(len(s.Sessions)), ready: map[int]*sent{}, roots: map[schemas.KeySpec]kvtier.Key{},
		known: map[int]string{}, on: map[[2]int32]string{},
		format: schemas.KVFormat{Engine: "replay", Version: "1", Numerics: "none", Layout: 1},
		log:    &Log{Name: s.Name, Seed: s.Seed, Mode: mode, Sessions: len(s.Sessions), Calls: make([]Call, len(s.Calls))},
		// Room for the whole load: a session that is forgotten would have to send all again.
		actor: lineage.New(lineage.Config{Cell: schemas.DefaultCell, MaxTokens: 1 << 30, MaxBytes: 1 << 32, Models: []lineage.Model{
			{Name: modelName, Digest: "replay", Vocab: "names", Template: "names", Context: workload.MaxTokens, Size: vocabulary},
		}}),
	}
	if err := r.run(); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrRecord, s.Name, err)
	}
	r.finish()
	return r.log, r.log.Check()
}

func (r *recorder) run() error {
	err := r.step(epoch-1, &schemas.Msg{Kind: schemas.KindHeartbeat, Heartbeat: &schemas.Heartbeat{
		Header: schemas.H(), Executor: "e0", Node: nodeName, Pool: modelName, Format: r.format,
	}})
	next := 0
	for err == nil && (next < len(r.talk.steps) || len(r.todo) > 0) {
		if next < len(r.talk.steps) {
			turn := event{at: epoch + r.talk.steps[next].At, kind: eventTurn, call: next}
			if len(r.todo) == 0 || (events{turn, r.todo[0]}).Less(0, 1) {
				next++
				err = r.happen(turn)
				continue
			}
		}
		err = r.happen(heap.Pop(&r.todo).(event))
	}
	if err == nil && len(r.ready) > 0 {
		err = fmt.Errorf("%d calls never became ready", len(r.ready))
	}
	return err
}

// happen does one event, after what lineage wants to do before it.
func (r *recorder) happen(e event) error {
	for n := r.actor.Next(); n <= schemas.Time(e.at) && n != schemas.Never; n = r.actor.Next() {
		if err := r.step(int64(n), &schemas.Msg{Kind: schemas.KindTick}); err != nil {
			return err
		}
		if r.actor.Next() == n {
			break
		}
	}
	switch e.kind {
	case eventTurn:
		return r.turn(e.at, e.call)
	case eventResult:
		return r.result(e.at, e.call)
	default:
		return r.say(e.at, e.call, e.say)
	}
}

func (r *recorder) later(at int64, kind eventKind, call int, say *workload.Say) {
	r.made++
	heap.Push(&r.todo, event{at: at, kind: kind, seq: r.made, call: call, say: say})
}

// step gives lineage a message and does what it asks for.
func (r *recorder) step(now int64, in *schemas.Msg) error {
	for _, m := range r.actor.Step(schemas.Time(now), in, nil) {
		if err := r.out(now, &m); err != nil {
			return err
		}
	}
	return nil
}

func (r *recorder) out(now int64, m *schemas.Msg) error {
	switch m.Kind {
	case schemas.KindOp:
		done := schemas.OpDone{ID: m.Op.ID}
		switch {
		case m.Op.Render != nil:
			done.Render = &schemas.RenderDone{Reply: r.render.render(&m.Op.Render.Request)}
		case m.Op.Lookup != nil:
			done.Lookup = &schemas.LookupDone{}
		default:
			return errors.New("lineage asks for what no load needs")
		}
		if err := r.step(now, &schemas.Msg{Kind: schemas.KindOpDone, OpDone: &done}); err != nil {
			return err
		}
	case schemas.KindBranch:
		r.log.Lineage.Changes++
		r.log.Ops = append(r.log.Ops, Op{At: now, Kind: OpBranch, Call: -1, Branch: m.Branch})
	case schemas.KindReady:
		if err := r.start(now, m.Ready); err != nil {
			return err
		}
	case schemas.KindResult:
		return fmt.Errorf("lineage refuses turn %s of session %s: %s", m.Result.Turn, m.Result.Session, m.Result.Failure.Message)
	case schemas.KindFrame:
		return fmt.Errorf("lineage rejects a turn: %s", m.Frame.Reject.Failure.Message)
	default:
		// Dead letters are counted by lineage.
	}
	if m.Confirm {
		return r.step(now, &schemas.Msg{Kind: schemas.KindPublished, Subject: m.Subject, ID: m.ID})
	}
	return nil
}

func (r *recorder) session(i int32) *workload.Session { return &r.talk.Sessions[i] }

// lineName is the branch of a line, as its agent calls it.
func lineName(line int32) string {
	if line == 0 {
		return schemas.DefaultBranch
	}
	return "l" + strconv.Itoa(int(line))
}

// turn publishes a call.
func (r *recorder) turn(now int64, i int) error {
	st := &r.talk.steps[i]
	all, kept, whole := r.talk.prompt(i)
	r.ready[i] = &sent{messages: all}
	t := &schemas.Turn{Weir: schemas.TurnMeta{Turn: callID(i)}}
	from := 0
	if r.mode == Explicit {
		t.Weir.Branch = lineName(st.Line)
		switch {
		case st.prev >= 0 && whole && len(all) > kept && r.known[st.prev] != "":
			t.Weir.Known, from = r.known[st.prev], kept
		case st.prev < 0 && st.base >= 0 && whole:
			t.Weir.Parent = lineName(r.talk.steps[st.base].Line)
		}
	}
	for _, m := range all[from:] {
		t.Messages = append(t.Messages, m.raw)
	}
	s := r.session(st.Session)
	r.agent++
	return r.step(now, &schemas.Msg{
		Kind: schemas.KindTurn, Subject: schemas.AgentSubject(s.Tenant, s.ID, schemas.EventTurn), Seq: r.agent, At: schemas.Time(now), Digest: callID(i), Turn: t,
	})
}

// say publishes what an agent says of a line.
func (r *recorder) say(now int64, i int, y *workload.Say) error {
	s := r.session(r.talk.steps[i].Session)
	e := &schemas.Event{Header: schemas.H(), Branch: lineName(y.Line), Tool: y.Tool, ExpectedNS: y.Expect}
	if y.Kind == string(schemas.EventBranchFork) {
		e.Parent = lineName(r.talk.steps[i].Line)
	}
	r.agent++
	return r.step(now, &schemas.Msg{
		Kind: schemas.KindEvent, Subject: schemas.AgentSubject(s.Tenant, s.ID, schemas.EventKind(y.Kind)), Seq: r.agent, At: schemas.Time(now), Event: e,
	})
}

// start is a call whose prompt is known: an executor begins with it.
func (r *recorder) start(now int64, q *schemas.Ready) error {
	i, err := strconv.Atoi(q.Turn[1:])
	if err != nil || r.ready[i] == nil {
		return fmt.Errorf("turn %q was never sent", q.Turn)
	}
	st, c := &r.talk.steps[i], &r.log.Calls[i]
	if int32(q.Prompt.N) != st.In {
		return fmt.Errorf("call %d has %d tokens, lineage made %d of them", i, st.In, q.Prompt.N)
	}
	root, err := r.root(q.Keys)
	if err != nil {
		return err
	}
	path, err := r.chains.prompt(nil, st.Session, st.prompt, st.In/blockTokens, root)
	if err != nil {
		return fmt.Errorf("call %d: %w", i, err)
	}
	*c = Call{Session: st.Session, Line: st.Line, In: st.In, Path: path, Look: (st.In - 1) / blockTokens, Blocks: st.In / blockTokens}
	if err := r.check(c, q.Prompt.Path...); err != nil {
		return fmt.Errorf("call %d: the prompt's path: %w", i, err)
	}
	line := [2]int32{st.Session, st.Line}
	if was, ok := r.on[line]; ok && was != q.Branch {
		r.log.Lineage.Renamed++
	}
	r.on[line], r.ready[i].ready = q.Branch, q
	r.log.Lineage.Turns++
	r.log.Ops = append(r.log.Ops, Op{At: now, Kind: OpStart, Call: int32(i)})
	r.later(now+st.For, eventResult, i, nil)
	return nil
}

// check compares extents of lineage with the keys that an executor computes.
func (r *recorder) check(c *Call, es ...schemas.Extent) error {
	for _, e := range es {
		n := int32(e.From + e.N)
		if n == 0 {
			continue
		}
		if n > c.Blocks {
			return fmt.Errorf("%d blocks of %d", n, c.Blocks)
		}
		if k := r.chains.blocks[c.at(n-1)].Key; e.Key != hex.EncodeToString(k[:]) {
			return fmt.Errorf("block %d is %s, lineage says %.12s", n-1, k.Short(), e.Key)
		}
	}
	return nil
}

func (r *recorder) root(k schemas.KeySpec) (kvtier.Key, error) {
	if root, ok := r.roots[k]; ok {
		return root, nil
	}
	root, err := lineage.Root(k, r.format)
	if err == nil {
		r.roots[k] = root
	}
	return root, err
}

// result is the answer of a call.
func (r *recorder) result(now int64, i int) error {
	st, c, sent := &r.talk.steps[i], &r.log.Calls[i], r.ready[i]
	delete(r.ready, i)
	raw, text, tokens := r.talk.answer(i)
	r.talk.answered(i, sent.messages, raw)
	root, err := r.root(sent.ready.Keys)
	if err != nil {
		return err
	}
	// The last token was sampled and never fed back: its KV does not exist.
	tail := appendTokens(nil, st.Session, span(nil, st.prompt, st.In-st.In%blockTokens, st.In))
	if len(tokens) > 0 {
		tail = append(tail, tokens[:len(tokens)-1]...)
	}
	last := r.chains.root(root)
	if c.Blocks > 0 {
		last = c.at(c.Blocks - 1)
	}
	if c.Path, err = r.chains.answer(c.Path, last, c.Blocks, root, tail); err != nil {
		return err
	}
	c.Blocks = max(st.In, st.In+st.Out-1) / blockTokens
	r.log.Ops = append(r.log.Ops, Op{At: now, Kind: OpEnd, Call: int32(i)})
	res := &schemas.Result{
		Header: schemas.H(), Tenant: sent.ready.Tenant, Session: sent.ready.Session, Turn: sent.ready.Turn, Branch: sent.ready.Branch, Job: sent.ready.Job,
		Attempt: 1, Status: schemas.StatusOK, Text: text, Message: raw, Parse: sent.ready.Parse, Tokens: tokens, Finish: "stop", End: "|",
	}
	if st.Finish == workload.FinishTools {
		res.Finish = "tool_calls"
	}
	r.known[i] = res.Known()
	if st.prev >= 0 {
		delete(r.known, st.prev)
	}
	r.results++
	ops := len(r.log.Ops)
	if err := r.step(now, &schemas.Msg{
		Kind: schemas.KindResult, Subject: schemas.ResultSubject(res.Tenant, res.Session, res.Turn), Seq: r.results, At: schemas.Time(now), Result: res,
	}); err != nil {
		return err
	}
	for _, o := range r.log.Ops[ops:] {
		if b := o.Branch; b != nil && b.Branch == res.Branch && b.Session == res.Session && b.Why == "result" {
			if int32(b.Tail.N) != c.Blocks {
				return fmt.Errorf("call %d: lineage counts %d computed blocks, an executor %d", i, b.Tail.N, c.Blocks)
			}
			if err := r.check(c, b.Tail); err != nil {
				return fmt.Errorf("call %d: the end of the branch: %w", i, err)
			}
		}
	}
	for k := range st.Say {
		if y := &st.Say[k]; r.mode == Explicit {
			r.later(now+y.After, eventSay, i, y)
		}
	}
	return nil
}

// finish fills in what the baselines need.
func (r *recorder) finish() {
	l := r.log
	l.Blocks, l.Roots = r.chains.blocks, r.chains.roots
	c := r.actor.Counts()
	l.Lineage.Forgotten, l.Lineage.Dropped = c.Forgotten, c.Dropped.Total()
	l.waits, l.ends = make([]wait, len(l.Calls)), make([]bool, len(l.Calls))
	for i := range r.talk.steps {
		st := &r.talk.steps[i]
		l.waits[i] = wait{class: "user", ns: -1}
		if st.Finish == workload.FinishTools {
			l.waits[i].class = "tool:" + st.Tool
		}
		if p := st.prev; p >= 0 {
			l.waits[p].ns = max(0, st.At-r.talk.steps[p].At-r.talk.steps[p].For)
		}
		for _, y := range st.Say {
			l.ends[i] = l.ends[i] || y.Kind == string(schemas.EventSessionEnd)
		}
	}
}
