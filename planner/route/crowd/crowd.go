// Package crowd makes the messages of a full cell for benchmarks of a router: many
// executors, more turns than they can take, contexts of agents that share a system
// prompt, heartbeats that list what is held, and notices of what nodes hold.
//
// It is a fake: executors do their jobs in random order, at once. Only what a message
// costs the router is measured with it, not how good the placement is.
package crowd

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"

	"github.com/weir-dev/weir/schemas"
)

// Config of a crowd.
type Config struct {
	Cell      string
	Executors int // a quarter of them prefill
	Waiting   int // turns that wait at any time
	Seed      uint64
}

const (
	perNode  = 4 // executors that share a node's memory
	slots    = 32
	kept     = 16
	context  = 200_000
	shared   = 12_000 // tokens of the system prompt
	beatNS   = 500_000_000
	perBeat  = 17 // other messages between two heartbeats: some 2,000 turns a second at 256 executors
	blockLen = 64
)

type job struct {
	ready   *schemas.Ready
	attempt int
	stage   schemas.Stage
	on      int // executor
	then    string
	at      int // in running
}

type session struct {
	id     string
	turn   int
	tokens int
	known  int // of them computed
}

// Crowd is a cell around a router. It is not safe for use by several goroutines.
type Crowd struct {
	cfg      Config
	rnd      *rand.Rand
	now      schemas.Time
	seq      uint64
	count    int
	jobs     map[string]*job
	running  []*job
	held     []map[string]*job
	kept     [][]schemas.Extent
	noticed  []uint64 // by node
	sessions map[string]*session
	idle     []*session
	inbox    []schemas.Msg
	names    map[string]int
	waiting  int
}

// New makes a crowd.
func New(cfg Config) *Crowd {
	c := &Crowd{
		cfg: cfg, rnd: rand.New(rand.NewPCG(cfg.Seed, 1)), now: 1_000_000_000_000, jobs: map[string]*job{}, sessions: map[string]*session{},
		held: make([]map[string]*job, cfg.Executors), kept: make([][]schemas.Extent, cfg.Executors), names: map[string]int{},
		noticed: make([]uint64, cfg.Executors/perNode+1),
	}
	for i := range cfg.Executors {
		c.held[i], c.names[c.name(i)] = map[string]*job{}, i
		c.beat(i)
	}
	for i := range cfg.Waiting + cfg.Executors*slots {
		s := &session{id: fmt.Sprintf("s%d", i), tokens: shared + 1000 + c.rnd.IntN(60_000)}
		s.known = s.tokens - 200 - c.rnd.IntN(min(4000, s.tokens-shared))
		c.sessions[s.id] = s
		c.idle = append(c.idle, s)
	}
	return c
}

func (c *Crowd) name(i int) string { return fmt.Sprintf("e%03d", i) }
func (c *Crowd) node(i int) string { return fmt.Sprintf("n%02d", i/perNode) }

func (c *Crowd) role(i int) schemas.Role {
	if i%4 == 0 {
		return schemas.RolePrefill
	}
	return schemas.RoleDecode
}

// Now is the crowd's time.
func (c *Crowd) Now() schemas.Time { return c.now }

// Waiting is how many turns have no place.
func (c *Crowd) Waiting() int { return c.waiting }

// Next is the next message to the router. What the router sends goes to Took.
func (c *Crowd) Next() schemas.Msg {
	for len(c.inbox) == 0 {
		c.fill()
	}
	m := c.inbox[0]
	c.inbox = c.inbox[1:]
	return m
}

func (c *Crowd) fill() {
	c.count++
	step := schemas.Time(beatNS / c.cfg.Executors / (perBeat + 1))
	c.now += step
	switch {
	case c.count%(perBeat+1) == 0:
		c.beat(c.count / (perBeat + 1) % c.cfg.Executors)
	case c.waiting < c.cfg.Waiting && len(c.idle) > 0:
		c.turn()
	case len(c.running) > 0:
		c.work(c.running[c.rnd.IntN(len(c.running))])
	default:
		c.inbox = append(c.inbox, schemas.Msg{Kind: schemas.KindTick})
	}
}

// chain names the first n blocks of a session's context: those of the system prompt
// are everybody's.
func (c *Crowd) chain(s *session, n int) string {
	name := s.id
	if n*blockLen <= shared {
		name = "system"
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", name, n))
	return hex.EncodeToString(sum[:])
}

func (c *Crowd) turn() {
	i := c.rnd.IntN(len(c.idle))
	s := c.idle[i]
	c.idle[i] = c.idle[len(c.idle)-1]
	c.idle = c.idle[:len(c.idle)-1]
	s.turn++
	c.seq++
	c.waiting++
	id := fmt.Sprintf("u%d", s.turn)
	p := schemas.Prompt{N: s.tokens, TailFrom: s.known / blockLen * blockLen}
	key := func(n int) string { return c.chain(s, n) }
	p.Path = schemas.CutAtStops(0, p.TailFrom/blockLen, key)
	p.Rest = schemas.CutAtStops(p.TailFrom/blockLen, (p.N-1)/blockLen, key)
	p.Tail = make(schemas.Tokens, p.N-p.TailFrom)
	c.inbox = append(c.inbox, schemas.Msg{Kind: schemas.KindReady, Seq: c.seq, Ready: &schemas.Ready{
		Header: schemas.H(), Tenant: "t" + s.id[len(s.id)-1:], Session: s.id, Turn: id, Branch: "main", Job: schemas.JobID("t", s.id, id), Pool: "m",
		MaxNew: 1000, Prompt: p, AdmittedNS: int64(c.now), DeadlineNS: int64(c.now) + 3_600_000_000_000,
	}})
}

// work ends one job.
func (c *Crowd) work(j *job) {
	s, p := c.sessions[j.ready.Session], &j.ready.Prompt
	c.noticed[j.on/perNode]++
	c.inbox = append(c.inbox, schemas.Msg{Kind: schemas.KindKV, KV: &schemas.KVNotice{
		Header: schemas.H(), Node: c.node(j.on), Epoch: 1, Seq: c.noticed[j.on/perNode], Medium: schemas.MediumHost, Peer: "p:1", Stored: p.Rest,
	}})
	if j.stage == schemas.StagePrefill {
		c.inbox = append(c.inbox, schemas.Msg{Kind: schemas.KindDone, Done: &schemas.Done{
			Header: schemas.H(), Job: j.ready.Job, Attempt: j.attempt, Stage: j.stage, Executor: c.name(j.on), Outcome: schemas.OutcomePrefilled, PassedTo: j.then,
			Cached: p.TailFrom,
		}})
		c.drop(j)
		if j.then != "" {
			c.run(&job{ready: j.ready, attempt: j.attempt, stage: schemas.StageDecode, on: c.names[j.then]})
		} else {
			c.waiting++
		}
		return
	}
	c.drop(j)
	last := schemas.Extent{Key: c.chain(s, (p.N-1)/blockLen), N: (p.N - 1) / blockLen}
	if k := append(c.kept[j.on], last); len(k) > kept {
		c.kept[j.on] = append([]schemas.Extent{}, k[1:]...)
	} else {
		c.kept[j.on] = k
	}
	c.inbox = append(c.inbox, schemas.Msg{Kind: schemas.KindResult, Result: &schemas.Result{
		Header: schemas.H(), Tenant: "t", Session: s.id, Turn: j.ready.Turn, Job: j.ready.Job, Attempt: j.attempt, Status: schemas.StatusOK,
		DecodeOn: c.name(j.on), Usage: schemas.Usage{Prompt: p.N, Cached: p.TailFrom, Completion: 300},
	}})
	s.known = s.tokens / blockLen * blockLen
	if s.tokens += 500 + c.rnd.IntN(2500); s.tokens > context/2 {
		s.tokens, s.known = shared+2000, 0
	}
	c.idle = append(c.idle, s)
}

func (c *Crowd) run(j *job) {
	c.drop(c.jobs[j.ready.Job])
	c.jobs[j.ready.Job], c.held[j.on][j.ready.Job], j.at = j, j, len(c.running)
	c.running = append(c.running, j)
}

func (c *Crowd) drop(j *job) {
	if j == nil {
		return
	}
	delete(c.jobs, j.ready.Job)
	delete(c.held[j.on], j.ready.Job)
	last := c.running[len(c.running)-1]
	c.running[j.at], last.at = last, j.at
	c.running = c.running[:len(c.running)-1]
}

// beat is the heartbeat of an executor.
func (c *Crowd) beat(i int) {
	h := &schemas.Heartbeat{
		Header: schemas.H(), Executor: c.name(i), Boot: "b", Node: c.node(i), Pool: "m", Role: c.role(i), Size: 4, Slots: slots, Context: context,
		KVTokens: slots * context, TierBlocks: 1 << 21, PrefillTPS: 60_000, DecodeTPS: 50, Kept: c.kept[i],
	}
	for _, j := range c.held[i] {
		h.Held = append(h.Held, schemas.Held{Job: j.ready.Job, Attempt: j.attempt, Stage: j.stage})
	}
	c.inbox = append(c.inbox, schemas.Msg{Kind: schemas.KindHeartbeat, Heartbeat: h})
}

// Took does what the router sent.
func (c *Crowd) Took(out []schemas.Msg) {
	for i := range out {
		switch m := &out[i]; m.Kind {
		case schemas.KindJob:
			s, err := schemas.ParseSubject(m.Subject)
			if err != nil {
				panic(err) // the router names subjects by schemas.JobSubject
			}
			c.waiting--
			c.run(&job{ready: m.Job.Ready, attempt: m.Job.Attempt, stage: m.Job.Stage, on: c.names[s.Get("executor")], then: m.Job.DecodeOn})
		case schemas.KindOp:
			c.inbox = append(c.inbox, schemas.Msg{Kind: schemas.KindOpDone, OpDone: &schemas.OpDone{ID: m.Op.ID, Sync: &schemas.SyncReply{
				Header: schemas.H(), Node: m.Op.Sync.Node, Epoch: 1, Peer: "p:1",
				Extents: schemas.CutAtStops(0, shared/blockLen, func(n int) string { return c.chain(&session{}, n) }),
			}}})
		default:
			// Acknowledgements, failures and loads change nothing here.
		}
	}
}
