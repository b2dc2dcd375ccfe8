package churn

import "github.com/weir-dev/weir/kvtier/workload"

// screens is a session of an agent that uses a computer: each step brings a
// screenshot, and old ones are replaced by a placeholder, which nobody announces.
func (s *session) screens(sys workload.Run, tokens int) {
	policy := s.p.ScreenPolicies[s.r.IntN(len(s.p.ScreenPolicies))]
	l, at, last := s.newLine(sys, tokens), int64(0), 0
	l.grow(s.draw(s.p.UserStep), &s.ids)
	var shots []int // where the screenshots begin
	for n := s.draw(s.p.ScreenSteps); ; n-- {
		i, end := s.ask(l, at, s.draw(s.p.ScreenOutput), s.wait(s.p.Answer))
		if last = i; n <= 1 || end > maxSession {
			break
		}
		at = end + s.waitTool(i, "computer", s.wait(s.p.ScreenWait), 0)
		shots = append(shots, l.tokens)
		l.grow(s.p.Screenshot, &s.ids)
		if len(shots) >= policy.Keep+policy.Every {
			shots = s.prune(l, shots, policy.Every)
		}
		if l.tokens > s.window {
			at, shots = s.compact(l, at), shots[:0]
		}
	}
	s.end(last)
}

// prune puts placeholders for the first n screenshots: all behind the first of them
// moves. It returns where the others begin.
func (s *session) prune(l *line, shots []int, n int) []int {
	shorter := n * (s.p.Screenshot - s.p.Placeholder)
	rest := l.tokens - shots[0] - shorter
	l.cut(shots[0])
	l.grow(rest, &s.ids)
	shots = append(shots[:0], shots[n:]...)
	for i := range shots {
		shots[i] -= shorter
	}
	return shots
}
