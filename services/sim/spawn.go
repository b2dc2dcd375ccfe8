package sim

import (
	"math"

	"github.com/weir-dev/weir/schemas"
)

// spawner decides which session begins next.
//
// Phases of fixed work begin their sessions in order, each as slots become free: those
// of the next phase take the slots that the last sessions of the phase before give up.
// Phases with slots per class, or by time, keep each class's slots filled; a class whose
// slots become fewer loses its sessions as they end.
type spawner struct {
	seed  uint64
	start schemas.Time

	fixed  []fixedPhase
	timed  []timedPhase
	slot   int     // of timed: nanoseconds that each lasts, 0 for the whole run
	length float64 // seconds of the whole run by time

	names  []string // classes, sorted
	active map[string]int
	drawn  map[string]int // sessions begun, by class
	of     int            // sessions of the fixed work
	over   bool           // the time is up: nobody goes on
}

type fixedPhase struct {
	w                     *Workload
	concurrency, sessions int
	begun, active         int
}

type timedPhase struct {
	slots map[string]Slots
	load  map[string]*Workload
	drift bool
}

func newSpawner(w *world) spawner {
	p := spawner{seed: w.o.Seed, start: w.start + startNS, active: map[string]int{}, drawn: map[string]int{}}
	load := w.o.Load
	seen := map[string]bool{}
	for i := range w.sc.Phases {
		ph := &w.sc.Phases[i]
		n := ph.Concurrency
		if n == 0 {
			n = w.o.Concurrency
		}
		if ph.Sessions > 0 {
			p.fixed = append(p.fixed, fixedPhase{w: w.sc.Workloads[ph.Workload], concurrency: scaled(float64(n), load), sessions: ph.Sessions})
			p.of += ph.Sessions
			continue
		}
		t := timedPhase{slots: map[string]Slots{}, load: map[string]*Workload{}, drift: ph.Drift != ""}
		mix := ph.Mix
		if ph.Workload != "" {
			mix = map[string]Slots{ph.Workload: {float64(n), float64(n)}}
		}
		for name, s := range mix {
			t.slots[name] = Slots{s[0] * load, s[1] * load}
			t.load[name] = w.sc.Workloads[name]
			seen[name] = true
		}
		p.timed = append(p.timed, t)
	}
	p.names = sortedKeys(seen)
	p.length = w.durationS
	if n := len(p.timed); n > 1 {
		p.slot = int(w.periodS / float64(n) * 1e9)
	}
	return p
}

func scaled(n, load float64) int { return max(1, int(math.Round(n*load))) }

// phase is which timed phase rules at that time.
func (p *spawner) phase(now schemas.Time) int {
	if p.slot == 0 {
		return 0
	}
	return int(now-p.start) / p.slot % len(p.timed)
}

// next is when slots change again.
func (p *spawner) next(now schemas.Time) schemas.Time {
	if len(p.timed) == 0 {
		return schemas.Never
	}
	at := schemas.Never
	if p.slot > 0 {
		at = p.start + schemas.Time((int(now-p.start)/p.slot+1)*p.slot)
	}
	if p.timed[p.phase(now)].drift {
		at = min(at, now+1e9)
	}
	return at
}

// one returns a session that may begin now, or nil.
func (p *spawner) one(now schemas.Time) *session {
	if p.over {
		return nil
	}
	if len(p.fixed) > 0 {
		return p.oneFixed()
	}
	i := p.phase(now)
	t := &p.timed[i]
	for _, name := range p.names {
		s, ok := t.slots[name]
		if !ok {
			continue
		}
		want := s[0]
		if t.drift {
			want += (s[1] - s[0]) * min(1, float64(now-p.start)/1e9/p.length)
		}
		if p.active[name] < int(math.Round(want)) {
			return p.begin(t.load[name], i)
		}
	}
	return nil
}

// oneFixed: before is how many slots the phases before still take of theirs.
func (p *spawner) oneFixed() *session {
	total := 0
	for i := range p.fixed {
		total += p.fixed[i].active
	}
	for i := range p.fixed {
		f := &p.fixed[i]
		if f.begun < f.sessions {
			most := f.concurrency
			if i > 0 && p.fixed[i-1].active > 0 {
				most = max(most, p.fixed[i-1].concurrency) // slots of the phase before still exist
			}
			if f.active >= f.concurrency || total >= most {
				return nil
			}
			f.begun++
			f.active++
			return p.begin(f.w, i)
		}
	}
	return nil
}

func (p *spawner) begin(w *Workload, phase int) *session {
	n := p.drawn[w.Name]
	p.drawn[w.Name]++
	p.active[w.Name]++
	return newSession(p.seed, w, phase, n)
}

// gone frees the slot of a session that ended.
func (p *spawner) gone(s *session) {
	p.active[s.w.Name]--
	if len(p.fixed) > 0 {
		p.fixed[s.phase].active--
	}
}
