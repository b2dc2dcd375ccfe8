package decide

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weir-dev/weir/planner/route"
	"github.com/weir-dev/weir/schemas"
)

const (
	model       = "m"
	perNode     = 4 // executors of one node
	slots       = 256
	blockTokens = 64
	// Each turn of a session adds so many blocks, up to most; then it begins anew.
	addBlocks  = 43
	mostBlocks = 1500
	sessions   = 4000 // of one cell
	inWork     = 1500 // turns that decode at a time in a cell of 256 executors
)

// routed is a cell around a router: a third of its executors prefill.
type routed struct {
	name   string
	r      *route.Router
	rng    *rand.Rand
	now    schemas.Time
	seq    uint64
	execs  []string
	roles  map[string]schemas.Role
	held   map[string][]schemas.Held
	all    []*agent
	idle   []*agent
	pre    []*schemas.Job // what executors prefill, oldest first
	dec    []*schemas.Job // what they decode
	by     map[string]*agent
	ended  int
	unmade int // turns that no step placed at once
	took   []time.Duration
	out    []schemas.Msg
}

// agent is one session.
type agent struct {
	id    string
	turn  int
	path  []schemas.Extent
	known int // blocks
}

// Router measures placements: the steps in which a turn comes in or a job goes out.
func Router(s Size) (Times, error) {
	cells := make([]*routed, s.Cells)
	for i := range cells {
		cells[i] = newRouted(fmt.Sprintf("c%d", i), s.Executors, uint64(i))
	}
	for n := range s.Turns {
		for _, c := range cells {
			if err := c.turn(n); err != nil {
				return Times{}, err
			}
		}
	}
	var all []time.Duration
	for _, c := range cells {
		if c.ended < s.Turns/2 {
			return Times{}, fmt.Errorf("decide: cell %s ended %d of %d turns", c.name, c.ended, s.Turns)
		}
		all = append(all, c.took...)
	}
	return times(all), nil
}

func newRouted(name string, executors int, seed uint64) *routed {
	c := &routed{
		name: name, r: route.New(route.Config{Cell: name, Epoch: 1, PrefillJobs: 8, PrefillTokens: 1 << 16}), rng: rand.New(rand.NewPCG(seed, 1)), now: 1000e9,
		roles: map[string]schemas.Role{}, held: map[string][]schemas.Held{}, by: map[string]*agent{},
	}
	for i := range executors {
		id := fmt.Sprintf("e%03d", i)
		c.execs = append(c.execs, id)
		c.roles[id] = schemas.RoleDecode
		if i%3 == 0 {
			c.roles[id] = schemas.RolePrefill
		}
	}
	for i := range sessions {
		a := &agent{id: fmt.Sprintf("s%04d", i)}
		c.all = append(c.all, a)
		c.idle = append(c.idle, a)
	}
	c.beats()
	c.now += 3e9 // heartbeats had their time
	c.beats()
	return c
}

// step hands the router a message and carries out what it wants. It reports whether a
// job went out.
func (c *routed) step(m *schemas.Msg) (placed bool) {
	began := time.Now()
	c.out = c.r.Step(c.now, m, c.out[:0])
	took := time.Since(began)
	var syncs []*schemas.Op
	for i := range c.out {
		switch o := &c.out[i]; o.Kind {
		case schemas.KindJob:
			placed = true
			s, err := schemas.ParseSubject(o.Subject)
			if err == nil {
				c.began(o.Job)
				x := s.Get("executor")
				c.held[x] = append(c.held[x], schemas.Held{Job: o.Job.Ready.Job, Attempt: o.Job.Attempt})
			}
		case schemas.KindOp:
			syncs = append(syncs, o.Op)
		}
	}
	if placed || m.Kind == schemas.KindReady {
		c.took = append(c.took, took)
	}
	for _, op := range syncs {
		if op.Sync != nil {
			c.step(&schemas.Msg{Kind: schemas.KindOpDone, OpDone: &schemas.OpDone{
				ID: op.ID, Sync: &schemas.SyncReply{Header: schemas.H(), Node: op.Sync.Node, Epoch: 1, Peer: op.Sync.Node + ":1"},
			}})
		}
	}
	return placed
}

// beats are the heartbeats of all executors, and the notice that makes a node known.
func (c *routed) beats() {
	for i, id := range c.execs {
		node := fmt.Sprintf("n%02d", i/perNode)
		if i%perNode == 0 && c.seq == 0 {
			c.step(&schemas.Msg{Kind: schemas.KindKV, KV: &schemas.KVNotice{Header: schemas.H(), Node: node, Epoch: 1, Seq: 1, Medium: schemas.MediumHost, Peer: node + ":1"}})
		}
		c.step(&schemas.Msg{Kind: schemas.KindHeartbeat, Heartbeat: &schemas.Heartbeat{
			Header: schemas.H(), Executor: id, Boot: "b", Node: node, Pool: model, Role: c.roles[id], Epoch: 1, Size: 4, Slots: slots, Context: 262_144,
			KVTokens: 8_000_000, PrefillTPS: 50_000, DecodeTPS: 80, Held: c.held[id],
		}})
	}
}

// turn lets one session begin a turn, and as many end as are too many.
func (c *routed) turn(n int) error {
	c.now += 1e6
	if n%500 == 499 {
		c.beats()
	}
	if len(c.idle) > 0 {
		i := c.rng.IntN(len(c.idle))
		a := c.idle[i]
		c.idle[i] = c.idle[len(c.idle)-1]
		c.idle = c.idle[:len(c.idle)-1]
		r := c.ready(a)
		c.by[r.Job] = a
		c.seq++
		if !c.step(&schemas.Msg{Kind: schemas.KindReady, Seq: c.seq, Ready: r}) {
			c.unmade++
		}
	}
	// A prefill executor has two jobs or three, all decode executors together inWork.
	for len(c.pre) > len(c.execs)/3*2 {
		j := c.pre[0]
		c.pre = c.pre[1:]
		if err := c.end(j); err != nil {
			return err
		}
	}
	for len(c.dec) > inWork*len(c.execs)/256 {
		j := c.dec[0]
		c.dec = c.dec[1:]
		if err := c.end(j); err != nil {
			return err
		}
	}
	return nil
}

func (c *routed) began(j *schemas.Job) {
	if j.Stage == schemas.StagePrefill {
		c.pre = append(c.pre, j)
	} else {
		c.dec = append(c.dec, j)
	}
}

func (c *routed) ready(a *agent) *schemas.Ready {
	if a.known+addBlocks > mostBlocks {
		a.path, a.known = nil, 0
	}
	a.turn++
	r := &schemas.Ready{
		Header: schemas.H(), Tenant: "t", Session: a.id, Turn: fmt.Sprintf("u%d", a.turn), Branch: "main", Pool: model, MaxNew: 1000,
		AdmittedNS: int64(c.now), DeadlineNS: int64(c.now) + 3600e9,
	}
	r.Job = schemas.JobID(r.Tenant, r.Session, r.Turn)
	tail := addBlocks*blockTokens + 10
	r.Prompt = schemas.Prompt{N: a.known*blockTokens + tail, TailFrom: a.known * blockTokens, Tail: zeros[:tail], Path: a.path}
	next := schemas.Extent{Key: key(a.id, a.turn), From: a.known, N: addBlocks}
	r.Prompt.Rest = []schemas.Extent{next}
	a.path = append(a.path[:len(a.path):len(a.path)], next)
	a.known += addBlocks
	return r
}

var zeros = make(schemas.Tokens, (addBlocks+1)*blockTokens)

// key names a prefix as block keys do.
func key(session string, turn int) string {
	sum := sha256.Sum256([]byte(fmt.Sprint(session, " ", turn)))
	return hex.EncodeToString(sum[:])
}

// end ends the stage that an executor has.
func (c *routed) end(j *schemas.Job) error {
	for _, id := range c.execs {
		for i, h := range c.held[id] {
			if h.Job == j.Ready.Job {
				c.held[id] = append(c.held[id][:i:i], c.held[id][i+1:]...)
				return c.over(j, id)
			}
		}
	}
	return fmt.Errorf("decide: nobody has job %s", j.Ready.Job)
}

func (c *routed) over(j *schemas.Job, x string) error {
	r := j.Ready
	if j.Stage == schemas.StagePrefill {
		if j.DecodeOn != "" { // the executor passes it on
			next := *j
			next.Stage = schemas.StageDecode
			c.began(&next)
			c.held[j.DecodeOn] = append(c.held[j.DecodeOn], schemas.Held{Job: r.Job, Attempt: j.Attempt})
		}
		c.step(&schemas.Msg{Kind: schemas.KindDone, Done: &schemas.Done{
			Header: schemas.H(), Job: r.Job, Attempt: j.Attempt, Stage: j.Stage, Executor: x, Outcome: schemas.OutcomePrefilled, PassedTo: j.DecodeOn, Cached: r.Prompt.TailFrom,
		}})
		return nil
	}
	c.step(&schemas.Msg{Kind: schemas.KindResult, Result: &schemas.Result{
		Header: schemas.H(), Tenant: r.Tenant, Session: r.Session, Turn: r.Turn, Job: r.Job, Attempt: j.Attempt, Status: schemas.StatusOK, DecodeOn: x,
		PrefillOn: j.PrefillOn, Usage: schemas.Usage{Prompt: r.Prompt.N, Cached: r.Prompt.TailFrom, Completion: 200},
	}})
	a := c.by[r.Job]
	if a == nil {
		return fmt.Errorf("decide: job %s ended twice", r.Job)
	}
	delete(c.by, r.Job)
	c.idle = append(c.idle, a)
	c.ended++
	return nil
}
