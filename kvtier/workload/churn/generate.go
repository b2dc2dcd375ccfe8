package churn

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/weir-dev/weir/kvtier/workload"
)

// stream is the source of random numbers of that name, so that one part of a schedule
// does not change with how much another one draws.
func stream(seed uint64, format string, args ...any) *rand.Rand {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, format, args...)
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// systemTokens is the length of the shared prompt k of a kind. It does not depend on
// the seed: prompts are what all sessions have in common.
func systemTokens(p *Params, kind, k int) int {
	d := p.System
	switch kind {
	case sharedSub:
		d = p.SubSystem
	case sharedScreen:
		d = p.ScreenSystem
	}
	return int(d.Draw(stream(1, "system/%d/%d", kind, k)) + 0.5)
}

// Generate makes the schedule of a seed. Equal parameters and seeds give equal
// schedules. Each of p.Agents agents runs sessions one after the other; the first
// one of each is met at a random time of it, as if it had begun before.
func Generate(p Params, seed uint64) (*workload.Schedule, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	g := generator{p: &p, seed: seed, out: &workload.Schedule{Name: "churn", Seed: seed}}
	for i := range p.Agents {
		g.agent(i)
	}
	g.oneShots()
	g.finish()
	return g.out, g.out.Check()
}

type generator struct {
	p    *Params
	seed uint64
	out  *workload.Schedule
}

func (g *generator) agent(i int) {
	r := stream(g.seed, "agent/%d", i)
	s := &session{p: g.p, r: r}
	tenant := fmt.Sprintf("t%d", s.pick(g.p.Tenants, func(k int) float64 { return math.Pow(float64(k+1), -g.p.TenantZipf) }))
	at, horizon := ns(r.Float64()*g.p.Ramp), ns(g.p.Horizon)
	for n := 0; at <= horizon && len(g.out.Calls) <= maxGenerated; n++ {
		s := g.session(i, n)
		done, from := s.done(), int64(0)
		if n == 0 {
			from = int64(r.Float64() * float64(done))
		}
		g.add(tenant, s, from, at-from)
		at += done - from + max(ns(g.p.Gap.Draw(r)), millisecond)
	}
}

// maxGenerated bounds the calls of a schedule that has not been cut yet.
const maxGenerated = workload.MaxCalls / 2

// session generates the n-th session of an agent.
func (g *generator) session(agent, n int) *session {
	s := &session{p: g.p, r: stream(g.seed, "session/%d/%d", agent, n)}
	s.reason = s.hit(g.p.Reasoning)
	if s.hit(g.p.Screens) {
		s.window = s.draw(g.p.ScreenWindow)
		tokens := systemTokens(g.p, sharedScreen, 0)
		s.screens(shared(sharedScreen, 0, tokens), tokens)
	} else {
		s.window = s.draw(g.p.Window)
		if s.hit(g.p.SmallShare) {
			s.window = s.draw(g.p.SmallWindow)
		}
		k := min(int(s.r.ExpFloat64()*g.p.SystemMean), g.p.Systems-1)
		tokens := systemTokens(g.p, sharedAgent, k)
		s.agent(shared(sharedAgent, k, tokens), tokens)
	}
	s.sorted()
	return s
}

// add puts the calls of s from that time on into the schedule, shift later.
func (g *generator) add(tenant string, s *session, from, shift int64) {
	n := int32(len(g.out.Sessions))
	g.out.Sessions = append(g.out.Sessions, workload.Session{Tenant: tenant})
	for _, c := range s.calls {
		if c.At >= from && c.At+shift <= ns(g.p.Horizon) {
			c.At += shift
			c.Session = n
			g.out.Calls = append(g.out.Calls, c)
		}
	}
}

// oneShots are sessions of one call in the background.
func (g *generator) oneShots() {
	r := stream(g.seed, "one-shots")
	if g.p.OneShots == 0 {
		return
	}
	at := int64(0)
	for len(g.out.Calls) <= maxGenerated {
		if at += ns(r.ExpFloat64() / g.p.OneShots); at > ns(g.p.Horizon) {
			return
		}
		s := &session{p: g.p, r: r}
		l := s.newLine(workload.Run{}, 0)
		l.grow(s.draw(g.p.OneShotPrompt), &s.ids)
		s.ask(l, 0, s.draw(g.p.Output), s.wait(g.p.Answer))
		g.add("background", s, 0, at)
	}
}

// finish orders the calls, keeps the first MaxCalls, and numbers the sessions that are
// left in the order in which they appear.
func (g *generator) finish() {
	o := g.out
	slices.SortStableFunc(o.Calls, func(a, b workload.Call) int { return cmp.Compare(a.At, b.At) })
	o.Calls = o.Calls[:min(len(o.Calls), g.p.MaxCalls)]
	number := make([]int32, len(o.Sessions))
	var kept []workload.Session
	for i := range o.Calls {
		c := &o.Calls[i]
		if number[c.Session] == 0 {
			kept = append(kept, workload.Session{ID: fmt.Sprintf("s%05d", len(kept)), Tenant: o.Sessions[c.Session].Tenant})
			number[c.Session] = int32(len(kept))
		}
		c.Session = number[c.Session] - 1
	}
	o.Sessions = kept
}
