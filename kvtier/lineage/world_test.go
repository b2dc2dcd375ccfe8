package lineage

import (
	"encoding/json"
	"fmt"
	"sort"
	"strings"
	"testing"

	"github.com/weir-dev/weir/schemas"
)

const second = schemas.Time(1_000_000_000)

// world is the bus and the tokenizer around one lineage actor. A token is a byte;
// the template writes <role>content|, the end token of an answer is '|'.
type world struct {
	t       testing.TB
	cfg     Config
	l       *Lineage
	now     schemas.Time
	agent   []schemas.Msg // as stored: sequence is index plus 1
	results map[string]*schemas.Result
	resultN uint64
	ready   map[string]*schemas.Ready // READY messages, by turn
	readyAt map[string]bool           // still in READY
	full    map[schemas.Kind]bool     // streams that refuse
	slow    bool                      // operations wait for run
	// reasons: the template writes the reasoning of answers behind the last user's
	// message only; keeps: of all.
	reasons, keeps, uncached bool
	ops                      []*schemas.Op
	sent                     []schemas.Msg
	rejects                  []*schemas.Reject
	asked                    []string // kinds of operations
	confirm                  []schemas.Msg
}

func newWorld(t testing.TB, change func(*Config)) *world {
	w := &world{
		t: t, now: 1000 * second, results: map[string]*schemas.Result{}, ready: map[string]*schemas.Ready{}, readyAt: map[string]bool{},
		full: map[schemas.Kind]bool{},
		cfg:  Config{Cell: "c0", DecayNS: -1, RepeatNS: -1, Models: []Model{{Name: "m", Aliases: []string{"default"}, Digest: "d", Vocab: "v", Template: "tpl", Context: 4000, Size: 256}}},
	}
	if change != nil {
		change(&w.cfg)
	}
	w.l = New(w.cfg)
	w.step(&schemas.Msg{Kind: schemas.KindHeartbeat, Heartbeat: w.heartbeat()})
	return w
}

func (w *world) heartbeat() *schemas.Heartbeat {
	return &schemas.Heartbeat{Header: schemas.H(), Executor: "e0", Node: "n0", Pool: "m", Format: schemas.KVFormat{Engine: "fake", Version: "1", Numerics: "none", Layout: 1}}
}

func (w *world) step(m *schemas.Msg) {
	w.now += 1000
	w.apply(w.l.Step(w.now, m, nil))
}

func (w *world) apply(out []schemas.Msg) {
	for _, o := range out {
		if o.Body() != nil {
			if _, err := schemas.Encode(o.Body()); err != nil {
				w.t.Fatalf("lineage sent what cannot be encoded: %v", err)
			}
		}
		err := ""
		if w.full[o.Kind] {
			err = schemas.ErrTextFull
		}
		switch o.Kind {
		case schemas.KindOp:
			w.ops = append(w.ops, o.Op)
		case schemas.KindReady:
			switch {
			case err != "":
			case o.Ready.Cancel:
				w.sent = append(w.sent, o)
			default:
				if old := w.ready[o.Ready.Turn]; old != nil && fmt.Sprint(old.Prompt.Tail) != fmt.Sprint(o.Ready.Prompt.Tail) {
					w.t.Fatalf("turn %s was made ready twice, with other tokens", o.Ready.Turn)
				}
				w.ready[o.Ready.Turn], w.readyAt[o.Ready.Turn] = o.Ready, true
			}
		case schemas.KindResult:
			if err == "" && w.results[o.Result.Session+"/"+o.Result.Turn] != nil {
				err = schemas.ErrTextConflict
			}
			if err == "" {
				w.store(o.Result)
			}
		case schemas.KindFrame:
			w.rejects = append(w.rejects, o.Frame.Reject)
		default:
			w.sent = append(w.sent, o)
		}
		if o.Confirm {
			w.confirm = append(w.confirm, schemas.Msg{Kind: schemas.KindPublished, Subject: o.Subject, ID: o.ID, Err: err})
		}
	}
	if !w.slow {
		w.run()
	}
}

// run completes operations and confirmations until none is left.
func (w *world) run() {
	for len(w.ops) > 0 || len(w.confirm) > 0 {
		if len(w.confirm) > 0 {
			m := w.confirm[0]
			w.confirm = w.confirm[1:]
			w.step(&m)
			continue
		}
		op := w.ops[0]
		w.ops = w.ops[1:]
		d := w.do(op)
		w.step(&schemas.Msg{Kind: schemas.KindOpDone, OpDone: &d})
	}
}

func (w *world) do(op *schemas.Op) schemas.OpDone {
	d := schemas.OpDone{ID: op.ID}
	switch {
	case op.Render != nil:
		w.asked = append(w.asked, "render")
		d.Render = &schemas.RenderDone{Reply: w.render(&op.Render.Request)}
	case op.Lookup != nil:
		w.asked = append(w.asked, "lookup")
		k := op.Lookup
		d.Lookup = &schemas.LookupDone{Result: w.results[k.Session+"/"+k.Turn], Ready: w.readyAt[k.Turn]}
		if d.Lookup.Ready {
			d.Lookup.Branch = w.ready[k.Turn].Branch
		}
	case op.Fetch != nil:
		w.asked = append(w.asked, "fetch")
		d.Fetch = &schemas.FetchDone{Failure: &schemas.Failure{Code: schemas.CodeInvalid, Message: "no such body"}}
		if op.Fetch.Ref.Bytes == 77 {
			t := &schemas.Turn{}
			t.Messages = []json.RawMessage{json.RawMessage(`{"role":"user","content":"large"}`)}
			d.Fetch = &schemas.FetchDone{Turn: t}
		}
	}
	return d
}

// publish stores an agent message; the actor gets it at once.
func (w *world) publish(session string, kind schemas.EventKind, body string) {
	w.t.Helper()
	m, err := schemas.DecodeMsg(schemas.AgentSubject("t", session, kind), []byte(body))
	if err != nil {
		w.t.Fatal(err)
	}
	w.now += second
	m.Seq, m.At = uint64(len(w.agent)+1), w.now
	w.agent = append(w.agent, m)
	w.step(&m)
}

func (w *world) turn(session, id, branch, content string, more string) {
	w.t.Helper()
	w.publish(session, schemas.EventTurn, fmt.Sprintf(
		`{"weir":{"turn":%q,"branch":%q%s},"messages":[{"role":"user","content":%q}]}`, id, branch, more, content))
}

// store keeps a result and tells the actor.
func (w *world) store(r *schemas.Result) {
	w.results[r.Session+"/"+r.Turn] = r
	delete(w.readyAt, r.Turn)
	w.resultN++
	w.step(&schemas.Msg{Kind: schemas.KindResult, Subject: schemas.ResultSubject("t", r.Session, r.Turn), Seq: w.resultN, At: w.now, Result: r})
}

// answer ends a turn that is ready with that text; odd tokens stand for it, so
// that splicing shows: the token of a byte is 128 more.
func (w *world) answer(id, text, end string, change ...func(*schemas.Result)) *schemas.Result {
	w.t.Helper()
	r := w.ready[id]
	if r == nil {
		w.t.Fatalf("turn %s is not ready", id)
	}
	res := &schemas.Result{
		Header: schemas.H(), Tenant: "t", Session: r.Session, Turn: id, Branch: r.Branch, Job: r.Job, Attempt: 1, Status: schemas.StatusOK,
		Text: text, Finish: "stop", End: end,
	}
	for i := range len(text + end) {
		res.Tokens = append(res.Tokens, int32((text + end)[i])+128)
	}
	for _, c := range change {
		c(res)
	}
	w.store(res)
	return res
}

// says gives a result the message that its text means.
func says(message string) func(*schemas.Result) {
	return func(r *schemas.Result) {
		r.Message, r.Parse = json.RawMessage(message), "fake"
		if strings.Contains(message, "tool_calls") {
			r.Finish = "tool_calls"
		}
	}
}

// branches lists the changes that tier nodes heard of since the last call.
func (w *world) branches() string {
	var b []string
	for _, m := range w.sent {
		if m.Kind == schemas.KindBranch {
			s := m.Branch.Branch + " " + string(m.Branch.State) + " " + m.Branch.Why
			if m.Branch.Inferred {
				s += "?"
			}
			b = append(b, strings.TrimSpace(s+" "+m.Branch.Tool))
		}
	}
	w.sent = nil
	return strings.Join(b, ", ")
}

// chat publishes a turn that sends these messages and nothing else of weir's.
func (w *world) chat(session, id string, messages ...string) {
	w.t.Helper()
	w.publish(session, schemas.EventTurn, fmt.Sprintf(`{"weir":{"turn":%q},"messages":[%s]}`, id, strings.Join(messages, ",")))
}

func user(text string) string { return message("user", text) }

func message(role, text string) string {
	b, err := json.Marshal(map[string]string{"role": role, "content": text})
	if err != nil {
		panic(err)
	}
	return string(b)
}

// prompt is the whole prompt of a turn as text, spliced tokens in upper case hex
// brackets: what a READY message names, tail and head together.
func (w *world) prompt(id string) string {
	w.t.Helper()
	r := w.ready[id]
	if r == nil {
		return "not ready"
	}
	toks := r.Prompt.Tail
	if r.Prompt.TailFrom > 0 {
		req := &schemas.TokensRequest{Header: schemas.H(), Tenant: "t", Session: r.Session, Turn: id, To: r.Prompt.TailFrom}
		out := w.l.Step(w.now, &schemas.Msg{Kind: schemas.KindTokensRequest, Reply: "r.1", TokensReq: req}, nil)
		if len(out) != 1 || out[0].TokensRep.Error != "" {
			w.t.Fatalf("the head of %s: %+v", id, out)
		}
		toks = append(out[0].TokensRep.Tokens[:r.Prompt.TailFrom:r.Prompt.TailFrom], toks...)
	}
	if len(toks) != r.Prompt.N {
		w.t.Fatalf("%d tokens, the prompt has %d", len(toks), r.Prompt.N)
	}
	var b strings.Builder
	spliced := false
	for _, t := range toks {
		if t >= 128 != spliced {
			spliced = !spliced
			b.WriteString(map[bool]string{true: "{", false: "}"}[spliced])
		}
		b.WriteByte(byte(t % 128))
	}
	return b.String()
}

// failure is the code of a turn's failed result.
func (w *world) failure(session, id string) string {
	r := w.results[session+"/"+id]
	switch {
	case r == nil:
		return "no result"
	case r.Failure == nil:
		return "ok"
	}
	return r.Failure.Code
}

// tick lets time pass to when the actor wants to be called.
func (w *world) tick() bool {
	at := w.l.Next()
	if at == schemas.Never {
		return false
	}
	w.now = max(w.now, at)
	w.step(&schemas.Msg{Kind: schemas.KindTick})
	return true
}

// restart replaces the actor by one that restores a snapshot and reads AGENT and
// RESULT behind it.
func (w *world) restart(snap []byte, seqs map[string]uint64) {
	w.ops, w.confirm = nil, nil
	w.now += second
	w.l = New(w.cfg)
	if err := w.l.Restore(snap); err != nil {
		w.t.Fatal(err)
	}
	w.step(&schemas.Msg{Kind: schemas.KindHeartbeat, Heartbeat: w.heartbeat()})
	for i := range w.agent {
		if m := w.agent[i]; m.Seq > seqs["AGENT"] {
			w.step(&m)
		}
	}
}

func (w *world) snapshot() ([]byte, map[string]uint64) {
	w.t.Helper()
	b, err := w.l.Snapshot(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return b, w.l.Seqs()
}

// sessions is the part of a snapshot that two histories are compared by.
func (w *world) sessions() string {
	b, _ := w.snapshot()
	var st state
	if err := json.Unmarshal(b, &st); err != nil {
		w.t.Fatal(err)
	}
	for i := range st.Sessions {
		s := &st.Sessions[i]
		s.Used, s.Clock = 0, 0
		for j := range s.Branches {
			s.Branches[j].At, s.Branches[j].Made, s.Branches[j].Turned = 0, 0, 0
		}
		sort.Slice(s.Turns, func(a, b int) bool { return s.Turns[a].ID < s.Turns[b].ID })
	}
	out, err := json.MarshalIndent(st.Sessions, "", " ")
	if err != nil {
		w.t.Fatal(err)
	}
	return string(out)
}

func want(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n got %s\nwant %s", what, got, want)
	}
}
