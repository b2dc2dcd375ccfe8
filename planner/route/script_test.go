package route

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/weir-dev/weir/schemas"
)

// TestScenarios plays the stories in testdata/stories. Each line of a script is one
// message to the router; the expected output is what the router sends.
//
//	exec ID role=R slots=N [ctx=N] [pool=P] [boot=B] [node=N] [bring=TPS] [kept=NAME/N,…] [held=turn/attempt/stage,…]   a heartbeat
//	dead ID [outside] [boot=B]                     the supervisor saw it end
//	ready TURN n=N [from=N] [of=NAME,…] [pool=P] [deadline=D]   a turn; D counts from now; its blocks are those of chain NAME
//	kv NODE epoch=N seq=N [stored=NAME/N,…] [evicted=NAME/N,…] [cleared] [medium=M]   a notice; NAME/N is a chain's first N blocks
//	list NODE epoch=N seq=N [has=NAME/N,…] [more] · nolist NODE   the answer to a question, or none
//	done TURN ID outcome [attempt=N] [stage=S] [to=ID] [cached=N] [code=C] [reason=…]
//	result TURN [on=ID] [cached=N] · published TURN [err=…] · cancel TURN · bus away|back · wait D · state
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
		var s *script
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "router" {
				s = newScript(t, d)
				return ""
			}
			return s.run(d)
		})
	})
}

const second = schemas.Time(time.Second)

type script struct {
	t    *testing.T
	r    *Router
	now  schemas.Time
	seq  uint64
	hbs  map[string]*schemas.Heartbeat // repeated while time passes
	mute map[string]bool
	asks map[string]uint64 // questions to nodes that are not answered
	seen strings.Builder
	load *schemas.Load // the last one
}

func newScript(t *testing.T, d *datadriven.TestData) *script {
	cfg := Config{Cell: "c0", Epoch: 7}
	for _, a := range d.CmdArgs {
		n, err := strconv.Atoi(a.Vals[0])
		if err != nil {
			t.Fatal(err)
		}
		switch a.Key {
		case "direct":
			cfg.DirectMax = n
		case "attempts":
			cfg.MaxAttempts = n
		case "jobs":
			cfg.PrefillJobs = n
		case "executors":
			cfg.MaxExecutors = n
		case "scan":
			cfg.ScanMax = n
		default:
			t.Fatalf("unknown setting %s", a.Key)
		}
	}
	s := &script{t: t, r: New(cfg), now: 1000 * second, hbs: map[string]*schemas.Heartbeat{}, mute: map[string]bool{}, asks: map[string]uint64{}}
	s.tell(&schemas.Msg{Kind: schemas.KindTick})
	return s
}

func (s *script) tell(m *schemas.Msg) {
	for _, o := range s.r.Step(s.now, m, nil) {
		if o.Kind == schemas.KindLoad {
			s.load = o.Load
			continue
		}
		if o.Kind == schemas.KindOp {
			s.asks[o.Op.Sync.Node] = o.Op.ID
		}
		fmt.Fprintln(&s.seen, short(&o))
	}
}

// short is one line for one message.
func short(m *schemas.Msg) string {
	switch m.Kind {
	case schemas.KindJob:
		j := m.Job
		flags := ""
		if j.Alone {
			flags += " alone"
		}
		if j.Local {
			flags += " local"
		}
		if j.DecodeOn != "" {
			flags += " then=" + j.DecodeOn
		}
		if j.PrefillOn != "" {
			flags += " prefilled-on=" + j.PrefillOn
		}
		for _, f := range j.Sources {
			flags += fmt.Sprintf(" bring %d from %d on from %s at %s", f.Extent.N, f.Extent.From, f.Node, f.Peer)
		}
		return fmt.Sprintf("job %s attempt %d: %s on %s%s", j.Ready.Turn, j.Attempt, j.Stage, strings.Split(m.Subject, ".")[2], flags)
	case schemas.KindOp:
		return fmt.Sprintf("ask %s for page %d", m.Op.Sync.Node, m.Op.Sync.Page)
	case schemas.KindAck:
		return fmt.Sprintf("ack %s %d", m.Subject, m.Seq)
	case schemas.KindResult:
		return fmt.Sprintf("result %s: %s: %s", m.Result.Turn, m.Result.Failure.Code, m.Result.Failure.Message)
	case schemas.KindCancel:
		return fmt.Sprintf("cancel on %s attempt %d: %s", strings.Split(m.Subject, ".")[2], m.Cancel.Attempt, m.Cancel.Reason)
	case schemas.KindDead:
		return fmt.Sprintf("dead letter %s %s: %s", m.Subject, m.Dead.Turn, m.Dead.Code)
	default:
		return fmt.Sprintf("kind %d on %s", m.Kind, m.Subject)
	}
}

func (s *script) run(d *datadriven.TestData) string {
	s.seen.Reset()
	lines := strings.Split(strings.TrimSpace(d.Cmd+" "+argLine(d)+"\n"+d.Input), "\n")
	for _, l := range lines {
		f := strings.Fields(l)
		if len(f) == 0 || f[0] == "do" {
			continue
		}
		s.line(f[0], f[1:])
	}
	if s.seen.Len() == 0 {
		return "-\n"
	}
	return s.seen.String()
}

func argLine(d *datadriven.TestData) string {
	var b strings.Builder
	for _, a := range d.CmdArgs {
		b.WriteString(a.String() + " ")
	}
	return b.String()
}

// options splits key=value words from flags.
func options(words []string) (map[string]string, map[string]bool) {
	kv, flags := map[string]string{}, map[string]bool{}
	for _, w := range words {
		if k, v, ok := strings.Cut(w, "="); ok {
			kv[k] = v
		} else {
			flags[w] = true
		}
	}
	return kv, flags
}

func (s *script) num(v string, or int) int {
	if v == "" {
		return or
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *script) line(cmd string, words []string) {
	name := ""
	if len(words) > 0 {
		name = words[0]
	}
	kv, flags := options(words)
	switch cmd {
	case "exec":
		s.exec(name, kv)
	case "mute":
		s.mute[name] = true
	case "dead":
		delete(s.hbs, name)
		s.tell(&schemas.Msg{Kind: schemas.KindHeartbeat, Heartbeat: &schemas.Heartbeat{
			Header: schemas.H(), Executor: name, Dead: true, Outside: flags["outside"], Boot: kv["boot"], Cause: "signal: aborted",
		}})
	case "ready":
		s.seq++
		r := turnReady(name, s.num(kv["n"], 10), s.num(kv["from"], 0))
		nameBlocks(r, kv["of"])
		r.AdmittedNS = int64(s.now) - int64(s.num(kv["age"], 0))*int64(second)
		if kv["pool"] != "" {
			r.Pool = kv["pool"]
		}
		if kv["deadline"] != "" {
			r.DeadlineNS = int64(s.now) + int64(s.duration(kv["deadline"]))
		}
		s.tell(&schemas.Msg{Kind: schemas.KindReady, Seq: s.seq, Ready: r})
	case "cancel":
		s.seq++
		r := turnReady(name, 0, 0)
		r.Cancel, r.Reason = true, "the caller has gone"
		s.tell(&schemas.Msg{Kind: schemas.KindReady, Seq: s.seq, Ready: r})
	case "done":
		s.done(name, words[1], words[2], kv)
	case "result":
		s.tell(&schemas.Msg{Kind: schemas.KindResult, Result: &schemas.Result{
			Header: schemas.H(), Tenant: "t", Session: "s", Turn: name, Status: schemas.StatusOK, PrefillOn: kv["on"], DecodeOn: kv["on"],
			Usage: schemas.Usage{Cached: s.num(kv["cached"], 0)},
		}})
	case "kv":
		medium := schemas.MediumHost
		if kv["medium"] != "" {
			medium = schemas.Medium(kv["medium"])
		}
		s.tell(&schemas.Msg{Kind: schemas.KindKV, KV: &schemas.KVNotice{
			Header: schemas.H(), Node: name, Epoch: uint64(s.num(kv["epoch"], 1)), Seq: uint64(s.num(kv["seq"], 1)), Medium: medium, Peer: name + ":1",
			Stored: chains(kv["stored"]), Evicted: chains(kv["evicted"]), Moved: chains(kv["moved"]), Cleared: flags["cleared"],
		}})
	case "list":
		s.answer(name, &schemas.OpDone{Sync: &schemas.SyncReply{
			Header: schemas.H(), Node: name, Epoch: uint64(s.num(kv["epoch"], 1)), Seq: uint64(s.num(kv["seq"], 0)), Peer: name + ":1",
			Extents: chains(kv["has"]), More: flags["more"],
		}})
	case "nolist":
		s.answer(name, &schemas.OpDone{Err: "nobody answers"})
	case "published":
		s.tell(&schemas.Msg{Kind: schemas.KindPublished, Subject: schemas.ResultSubject("t", "s", name), Err: kv["err"]})
	case "bus":
		e := ""
		if name == "away" {
			e = "connection closed"
		}
		s.tell(&schemas.Msg{Kind: schemas.KindBus, Err: e})
	case "wait":
		s.wait(s.duration(name))
	case "freeze": // the router's process stands still
		s.now += s.duration(name)
		s.tell(&schemas.Msg{Kind: schemas.KindTick})
	case "state":
		s.state()
	case "load": // what the last Load message said of a pool
		for _, p := range s.load.Pools {
			if p.Pool == name {
				fmt.Fprintf(&s.seen, "%+v\n", p)
			}
		}
	default:
		s.t.Fatalf("unknown command %q", cmd)
	}
}

func (s *script) duration(v string) schemas.Time {
	d, err := time.ParseDuration(v)
	if err != nil {
		s.t.Fatal(err)
	}
	return schemas.Time(d)
}

func turnReady(turn string, n, from int) *schemas.Ready {
	return &schemas.Ready{
		Header: schemas.H(), Tenant: "t", Session: "s", Turn: turn, Branch: "main", Job: schemas.JobID("t", "s", turn), Pool: "m", MaxNew: 8,
		Prompt: schemas.Prompt{N: n, TailFrom: from, Tail: make(schemas.Tokens, max(0, n-from))},
	}
}

func (s *script) exec(id string, kv map[string]string) {
	h := &schemas.Heartbeat{
		Header: schemas.H(), Executor: id, Boot: "b1", Pool: "m", Role: schemas.Role(kv["role"]), Slots: s.num(kv["slots"], 4), Context: s.num(kv["ctx"], 100_000),
		PrefillTPS: float64(s.num(kv["tps"], 0)), BringTPS: float64(s.num(kv["bring"], 0)), Node: kv["node"],
	}
	for _, w := range strings.Split(kv["kept"], ",") {
		if es := chains(w); len(es) > 0 {
			last := es[len(es)-1]
			h.Kept = append(h.Kept, schemas.Extent{Key: last.Key, N: last.From + last.N})
		}
	}
	if kv["boot"] != "" {
		h.Boot = kv["boot"]
	}
	if kv["pool"] != "" {
		h.Pool = kv["pool"]
	}
	for _, w := range strings.Split(kv["held"], ",") {
		if p := strings.Split(w, "/"); len(p) == 3 {
			h.Held = append(h.Held, schemas.Held{Job: schemas.JobID("t", "s", p[0]), Attempt: s.num(p[1], 1), Stage: schemas.Stage(p[2])})
		}
	}
	s.hbs[id] = h
	delete(s.mute, id)
	s.tell(&schemas.Msg{Kind: schemas.KindHeartbeat, Heartbeat: h})
}

func (s *script) done(turn, exec, outcome string, kv map[string]string) {
	d := &schemas.Done{
		Header: schemas.H(), Job: schemas.JobID("t", "s", turn), Attempt: s.num(kv["attempt"], 1), Stage: schemas.StageDecode, Executor: exec,
		Outcome: schemas.Outcome(outcome), PassedTo: kv["to"], Cached: s.num(kv["cached"], 0), Code: kv["code"], Reason: strings.ReplaceAll(kv["reason"], "_", " "),
	}
	if kv["stage"] != "" {
		d.Stage = schemas.Stage(kv["stage"])
	} else if d.Outcome == schemas.OutcomePrefilled {
		d.Stage = schemas.StagePrefill
	}
	s.tell(&schemas.Msg{Kind: schemas.KindDone, Done: d})
}

// wait lets time pass in ticks; executors that are not mute repeat their last
// heartbeat every 500 ms.
func (s *script) wait(d schemas.Time) {
	const tick = second / 10
	for end := s.now + d; s.now < end; {
		s.now += tick
		if s.now%(second/2) == 0 {
			ids := make([]string, 0, len(s.hbs))
			for id := range s.hbs {
				ids = append(ids, id)
			}
			sort.Strings(ids)
			for _, id := range ids {
				if !s.mute[id] {
					s.tell(&schemas.Msg{Kind: schemas.KindHeartbeat, Heartbeat: s.hbs[id]})
				}
			}
		}
		s.tell(&schemas.Msg{Kind: schemas.KindTick})
	}
}

func (s *script) state() {
	w, p := s.r.Load()
	fmt.Fprintf(&s.seen, "waiting %d, placed %d\n", w, p)
	for _, id := range s.r.ids {
		x := s.r.execs[id]
		fmt.Fprintf(&s.seen, "%s: alive %v, prefills %d (%d tokens), decodes %d, alone %v, reserved %v\n",
			id, x.alive, len(x.prefills), x.tokens, len(x.decodes), x.alone != nil, x.reserved != nil)
	}
}

// answer completes the question that a node was asked.
func (s *script) answer(node string, d *schemas.OpDone) {
	d.ID = s.asks[node]
	delete(s.asks, node)
	s.tell(&schemas.Msg{Kind: schemas.KindOpDone, OpDone: d})
}

// blockName is the key of the last of the first n blocks of a chain.
func blockName(chain string, n int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", chain, n))
	return hex.EncodeToString(sum[:])
}

// nameBlocks gives a prompt's blocks the names of a chain. A name such as a:8+b is
// chain a for 8 blocks and then chain b.
func nameBlocks(r *schemas.Ready, chain string) {
	if chain == "" {
		return
	}
	p := &r.Prompt
	known, all := p.TailFrom/blockTokens, (p.N-1)/blockTokens
	key := func(n int) string { return keyIn(chain, n) }
	p.Path, p.Rest = schemas.CutAtStops(0, known, key), schemas.CutAtStops(known, all, key)
}

func keyIn(chain string, n int) string {
	stem, rest, ok := strings.Cut(chain, "+")
	name, at, _ := strings.Cut(stem, ":")
	if i, err := strconv.Atoi(at); ok && err == nil && n > i {
		return blockName(rest, n)
	}
	return blockName(name, n)
}

// chains are extents of the first N blocks of chains: "a/9,b/4".
func chains(words string) (es []schemas.Extent) {
	for _, w := range strings.Split(words, ",") {
		i := strings.LastIndexByte(w, '/')
		if i < 0 {
			continue
		}
		n, err := strconv.Atoi(w[i+1:])
		if err != nil {
			panic(err)
		}
		es = append(es, schemas.CutAtStops(0, n, func(end int) string { return keyIn(w[:i], end) })...)
	}
	return es
}
