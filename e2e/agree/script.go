package agree

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/weir-dev/weir/services/sim"
)

// Size is how much of the shift is played.
type Size struct {
	Share float64 // of its sessions
	// Slots is the factor on its concurrency. A tenth of the sessions in a tenth of the
	// slots takes as long as all of them in all slots; more slots are shorter.
	Slots float64
	// Context is where a context is compacted, in tokens; 0 leaves the shift's own bound.
	Context int
	Seed    uint64
}

// Full is the size of the figure: a tenth of the shift's sessions (800 of math, 250 that
// use a computer) on all of its nine executors, in 8 of 10 of its slots, so that all
// begin at once and the planner is pressed. Contexts are compacted at 20,000 tokens
// instead of 100,000: the lineage service of a cell remembers 12 Mi tokens, those of 250
// whole sessions are more, and what it forgets a client has to send again.
func Full() Size { return Size{Share: 0.1, Slots: 0.8, Context: 20_000, Seed: 1} }

// Window is how much of a run of Full is compared, in seconds at the lowest speed. All
// changes of role of the simulated run fall into its first two minutes; what follows are
// the last of the long answers, which take as long as one answer takes.
const Window = 200

// scale makes a small, fast form of the shift: fewer sessions in fewer slots, whose
// tools answer speed times as fast.
func scale(sc *sim.Scenario, size Size, speed float64) *sim.Scenario {
	out := *sc
	out.Phases = slices.Clone(sc.Phases)
	for i := range out.Phases {
		p := &out.Phases[i]
		p.Sessions = max(1, int(float64(p.Sessions)*size.Share))
		p.Concurrency = max(1, int(float64(p.Concurrency)*size.Slots))
	}
	out.Workloads = maps.Clone(sc.Workloads)
	for name, w := range out.Workloads {
		one := *w
		if size.Context > one.AfterLimit && one.Limit > size.Context {
			one.Limit = size.Context
		}
		out.Workloads[name] = &one
		if w.Wait == nil {
			continue
		}
		wait := *w.Wait
		if l := wait.Lognormal; l != nil {
			faster := *l
			faster.Median, faster.Min, faster.Max = l.Median/speed, l.Min/speed, l.Max/speed
			wait.Lognormal = &faster
		}
		for i := range wait.Uniform {
			wait.Uniform = slices.Clone(wait.Uniform)
			wait.Uniform[i] /= speed
		}
		one.Wait = &wait
	}
	links := &out.Cluster.Links
	links.HostLocal, links.HostShared, links.P2D = links.HostLocal*speed, links.HostShared*speed, links.P2D*speed
	return &out
}

// session is one agent of the script.
type session struct {
	id    string
	class string
	phase int
	turns []turn
}

// turn is what an agent asks, in tokens, and how long it waits before, in seconds.
type turn struct {
	wait               float64
	prompt, fill, most int // whole prompt, what is new in it, tokens of the answer
}

// script takes the agents out of the turns of a simulated run, in the order in which
// they began.
func script(records []sim.TurnRecord) []*session {
	by := map[string]*session{}
	first := map[string]float64{}
	last := map[string]float64{}
	var out []*session
	records = slices.Clone(records)
	slices.SortStableFunc(records, func(a, b sim.TurnRecord) int {
		return cmp.Or(strings.Compare(a.Session, b.Session), cmp.Compare(a.Turn, b.Turn))
	})
	for _, r := range records {
		if r.Failed != "" {
			continue
		}
		s := by[r.Session]
		if s == nil {
			s = &session{id: r.Session, class: r.Class, phase: r.Phase}
			by[r.Session], first[r.Session], last[r.Session] = s, r.Ready, r.Ready
			out = append(out, s)
		}
		s.turns = append(s.turns, turn{wait: max(0, r.Ready-last[r.Session]), prompt: r.Prompt, fill: r.New, most: r.Output})
		last[r.Session] = r.End
	}
	slices.SortStableFunc(out, func(a, b *session) int {
		return cmp.Or(cmp.Compare(a.phase, b.phase), cmp.Compare(first[a.id], first[b.id]), strings.Compare(a.id, b.id))
	})
	return out
}

// gate says which session begins next: those of a phase in order as slots become free,
// and those of the next phase in the slots that the last ones give up, as in the
// simulated cell.
type gate struct {
	phases [][]*session
	slots  []int
	active []int
}

func newGate(all []*session, slots []int) *gate {
	g := &gate{phases: make([][]*session, len(slots)), slots: slots, active: make([]int, len(slots))}
	for _, s := range all {
		g.phases[s.phase] = append(g.phases[s.phase], s)
	}
	return g
}

// next takes a session that may begin, or nil.
func (g *gate) next() *session {
	total := 0
	for _, n := range g.active {
		total += n
	}
	for i := range g.phases {
		if len(g.phases[i]) == 0 {
			continue
		}
		most := g.slots[i]
		if i > 0 && g.active[i-1] > 0 {
			most = max(most, g.slots[i-1])
		}
		if g.active[i] >= g.slots[i] || total >= most {
			return nil
		}
		s := g.phases[i][0]
		g.phases[i] = g.phases[i][1:]
		g.active[i]++
		return s
	}
	return nil
}

func (g *gate) gone(s *session) { g.active[s.phase]-- }
