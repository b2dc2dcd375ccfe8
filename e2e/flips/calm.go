package flips

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// calm runs the turns of records again, on the same prompts, while no role changes. It
// returns the records of that run in the same order.
func (a *agents) calm(ctx context.Context, records []*record, width int) []*record {
	var order []string
	sessions := map[string][]int{}
	for i, r := range records {
		if r.problem != "" {
			continue
		}
		if sessions[r.session] == nil {
			order = append(order, r.session)
		}
		sessions[r.session] = append(sessions[r.session], i)
	}
	out := make([]*record, len(records))
	next := make(chan string)
	var wg sync.WaitGroup
	for range width {
		wg.Go(func() {
			for s := range next {
				for _, i := range sessions[s] {
					r := *records[i]
					r.answer, r.found, r.attempt, r.pauses = nil, 0, 0, nil
					if a.turn(ctx, &r); ctx.Err() != nil {
						return
					}
					out[i] = &r
				}
			}
		})
	}
	for _, s := range order {
		select {
		case next <- s:
		case <-ctx.Done():
		}
	}
	close(next)
	wg.Wait()
	return out
}

// twins is what two runs of the same turns say of each other.
type twins struct {
	turns, lost, changed, blocksLost int
	known, found, calm               int // tokens: to be found, found with role changes, found without
	prompt                           int
	pauses                           []float64 // ms
	problems                         []string
	slows                            []string
}

// compare holds the turns under role changes against those of the calm run.
func compare(hot, calm []*record) *twins {
	t := &twins{turns: len(hot)}
	note := func(r *record, what string) {
		if len(t.problems) < 50 {
			t.problems = append(t.problems, "turn "+r.session+"/"+itoa(r.n)+": "+what)
		}
	}
	for i, r := range hot {
		for _, p := range r.pauses {
			t.pauses = append(t.pauses, p.Seconds()*1000)
			t.slow(r, p)
		}
		if r.problem != "" {
			t.lost++
			note(r, r.problem)
			continue
		}
		t.known += r.known
		t.prompt += len(r.prompt)
		t.found += r.found
		if d := (r.known - r.found) / 64; d > 0 {
			t.blocksLost += d
			note(r, itoa(d)+" blocks that the turn before left were not found, attempt "+itoa(r.attempt))
		}
		c := calm[i]
		if c == nil || c.problem != "" {
			if c != nil {
				note(r, "in the calm run: "+c.problem)
			}
			t.lost++
			continue
		}
		t.calm += c.found
		for k := range max(len(r.answer), len(c.answer)) {
			if k >= len(r.answer) || k >= len(c.answer) || r.answer[k] != c.answer[k] {
				t.changed += max(len(r.answer), len(c.answer)) - k
				note(r, "token "+itoa(k)+" differs from the calm run")
				break
			}
		}
	}
	return t
}

// longPause is one of which the stages are kept.
const longPause = 500 * time.Millisecond

// slow keeps the stages of a turn whose reader waited for long.
func (t *twins) slow(r *record, p time.Duration) {
	if p < longPause || len(t.slows) >= 20 {
		return
	}
	line := fmt.Sprintf("turn %s/%d waited %s:", r.session, r.n, p.Round(time.Millisecond))
	for _, s := range r.spans {
		line += fmt.Sprintf(" %s %s %d-%d", s.Stage, s.On, s.From/1e6, s.To/1e6)
	}
	t.slows = append(t.slows, line)
}
