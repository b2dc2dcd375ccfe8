package route

// tripS is what a prompt of a few tokens takes longer, in seconds, when another executor
// computes it and hands it over: a step of that one, half of another one that it waits
// for, and the way.
const tripS = 0.1

// direct tells whether x, which decodes, should compute what it lacks of the turn in view
// itself: little, and at less harm to the turns that decode there, which stand still
// meanwhile, than the way over an executor that prefills takes. Both are seconds of turns.
func (r *Router) direct(t *turn, x *executor) bool {
	plan := r.plan(x)
	if !r.small(plan.compute) {
		return false
	}
	if plan.compute <= 0 || x.decoding == 0 {
		return true
	}
	queue, ok := r.queued(t)
	return !ok || plan.seconds*float64(x.decoding) <= queue+tripS
}

// queued is how many seconds pass until what waits for prefill now is computed, by those
// that take prompts of a turn's class; ok is false where nobody does.
func (r *Router) queued(t *turn) (seconds float64, ok bool) {
	speed, tokens := 0.0, t.in.waitTokens()
	for _, x := range t.in.xs {
		if x.takes[t.class] {
			speed += r.tps(x)
			tokens += x.tokens
		}
	}
	return float64(tokens) / speed, speed > 0
}

// owes is how many tokens of prompts x, which decodes as well, has yet to compute itself:
// those of turns that have not ended, less what it computes at its measured speed.
func (r *Router) owes(x *executor) float64 {
	return min(float64(x.own), max(0, x.owed-float64(r.now-x.owedAt)/1e9*r.tps(x)))
}
