package split

import "math"

// Mix describes answers of two lengths: shorts and longs, Long of all turns being long.
// Reasoning beside tool calls is such a mix, and its mean says little: a turn of 200
// tokens gives its slot back after 3 s, one of 10,000 after 2 min.
type Mix struct {
	Short, Longer float64 // mean tokens of an answer
	Long          float64 // share of turns
}

// mean is the mean tokens of an answer.
func (m Mix) mean() float64 {
	if m.Long <= 0 {
		return m.Short
	}
	return m.Short*(1-m.Long) + m.Longer*m.Long
}

// Fit is the mix with that mean and second moment: the two-phase hyperexponential
// distribution with balanced means (Morse 1958). With a coefficient of variation below 1
// there is one length.
func Fit(mean, square float64) Mix {
	if mean <= 0 {
		return Mix{}
	}
	c2 := square/(mean*mean) - 1
	if !(c2 > 1) {
		return Mix{Short: mean, Longer: mean}
	}
	p := 0.5 * (1 + math.Sqrt((c2-1)/(c2+1)))
	return Mix{Short: mean / (2 * p), Longer: mean / (2 * (1 - p)), Long: 1 - p}
}

// fluid is the state of the loop: turns as amounts that flow.
type fluid struct {
	*State
	prefill, decode float64 // size that does each

	thinking float64
	pre      float64    // before or in prefill
	queue    [2]float64 // before decode: shorts, longs
	run      [2]float64 // in decode
	load     float64    // of prefill, smoothed
	slower   float64    // how much longer prompts wait than the formula says
	length   [2]float64 // tokens of an answer: shorts, longs

	began, tokens float64 // so far; began: turns that got a decode slot and kept it
	ended         float64 // turns
	busy, full    int     // steps in which prefill was busy, in which turns waited for slots
}

// longest bounds how long a running answer is taken for, in tokens.
const longest = 100_000

// fluidStep is the time between two looks, in seconds.
const fluidStep = 0.5

// byTurn is the part of decode work that counts when a turn ends, each as the mean turn,
// and not token by token. By tokens alone splits look alike that differ in how many
// agents get their answer; by turns alone, those with long answers would get none.
const byTurn = 0.5

// loop lets a pool's closed loop go on over the horizon with p and d executors.
//
//	thinking --1/Think--> [prefill: p/TurnWork, S + wait] --> queue --> slots: d·batch --> thinking
//
// Slots that come free are taken in order of arrival, so shorts wait behind longs, as
// turns do. What is unknown is taken from what is measured: as many think as the rate of
// arrivals needs, shorts that run are as many as end, the others that run are long.
func (s *State) loop(p, d, horizon float64) (out Outcome) {
	batch, kv := s.Batch()
	f := s.start()
	f.prefill, f.decode = p, d
	f.load = min(0.98, s.Rate*s.TurnWork/max(p, 1e-9))
	steps := int(horizon / fluidStep)
	for range steps {
		f.stepPrefill()
		f.stepSlots(d * batch)
		f.stepDecode()
	}
	out.Flow, out.Tokens = max(0, f.began)/horizon, f.tokens/horizon
	out.Value = out.Flow*s.TurnWork + ((1-byTurn)*out.Tokens+byTurn*s.Mix.mean()*f.ended/horizon)*s.Unit()
	switch {
	case f.full > steps/2 && kv:
		out.Why = "kv"
	case f.full > steps/2:
		out.Why = "decode"
	case f.busy > steps/2:
		out.Why = "prefill"
	default:
		out.Why = "demand"
	}
	return out
}

// stepPrefill lets agents come back and prefill take what it can.
func (f *fluid) stepPrefill() {
	back := f.thinking * (1 - math.Exp(-fluidStep/Think))
	f.thinking -= back
	f.pre += back
	// The lanes of an executor step together: a prompt waits for all of them.
	stay := f.alone() + f.slower*wait(f.prefill, f.load, f.alone())
	x := f.pre * (1 - math.Exp(-fluidStep/max(stay, 1e-3)))
	if f.TurnWork > 0 {
		most := f.prefill / f.TurnWork * fluidStep
		if x >= most*0.98 {
			f.busy++
		}
		x = min(x, most)
		f.load = min(0.98, 0.7*f.load+0.3*x/max(most, 1e-9))
	}
	f.pre -= x
	f.queue[0] += x * (1 - f.Mix.Long)
	f.queue[1] += x * f.Mix.Long
}

// stepSlots fills slots in order of arrival. With fewer slots than run, the rest is
// handed back.
func (f *fluid) stepSlots(slots float64) {
	n := f.run[0] + f.run[1]
	if over := n - slots; over > 0 {
		for i := range f.run {
			part := over * f.run[i] / n
			f.run[i] -= part
			f.queue[i] += part
		}
		f.began -= over
		n = slots
	}
	q := f.queue[0] + f.queue[1]
	if q <= 0 {
		return
	}
	in := min(q, slots-n)
	f.began += in
	for i := range f.queue {
		part := in * f.queue[i] / q
		f.queue[i] -= part
		f.run[i] += part
	}
	if in < q {
		f.full++
	}
}

// stepDecode generates tokens and ends turns.
func (f *fluid) stepDecode() {
	n := f.run[0] + f.run[1]
	if n <= 0 || f.decode <= 0 {
		return
	}
	b := max(n/f.decode, min(1, n))
	speed := max(f.Model.Accept, 1) / max(f.Model.StepTime(b, b*f.Context), 1e-6) // tokens per second and turn
	for i, mean := range f.length {
		f.tokens += f.run[i] * speed * fluidStep
		if mean > 0 {
			end := f.run[i] * (1 - math.Exp(-speed*fluidStep/mean))
			f.run[i] -= end
			f.thinking += end
			f.ended += end
		}
	}
}

// mostSlower bounds what is concluded from how long prompts wait now.
const mostSlower = 4

// slower is how many times longer prompts wait than the formula says: steps are as long
// as the longest of the prompts that are computed side by side. Measured by Little's law.
func (s *State) slower() float64 {
	p := s.Prefill + s.Mixed/2
	if s.Rate <= 0 || p <= 0 {
		return 1
	}
	load := s.Rate * s.TurnWork / p
	if load < 0.3 || load > 0.9 {
		return 1
	}
	w := wait(p, load, s.alone())
	if w <= 0 {
		return 1
	}
	return min(max((s.InPrefill/s.Rate-s.alone())/w, 1), mostSlower)
}

// start is the state of the loop as it was measured.
//
// Lengths are known of answers that ended. While long ones run that have not, they say
// too little, so what runs is taken for so long that as many end as are seen to end.
func (s *State) start() fluid {
	f := fluid{
		State: s, thinking: s.Rate * Think, pre: s.InPrefill,
		queue:  [2]float64{s.WaitDecode * (1 - s.Mix.Long), s.WaitDecode * s.Mix.Long},
		length: [2]float64{s.Mix.Short, s.Mix.Longer},
	}
	f.slower = s.slower()
	n := s.InDecode
	d := s.Decode + s.Mixed/2
	if n <= 0 || d <= 0 {
		return f
	}
	b := max(n/d, 1)
	speed := max(s.Model.Accept, 1) / max(s.Model.StepTime(b, b*s.Context), 1e-6)
	short := n
	if s.Mix.Long > 0 {
		short = min(n, s.Ended*(1-s.Mix.Long)*s.Mix.Short/speed)
	}
	f.run = [2]float64{short, n - short}
	for i, part := range [2]float64{1 - s.Mix.Long, s.Mix.Long} {
		if ends := s.Ended * part; ends > 0 {
			f.length[i] = min(max(f.length[i], f.run[i]*speed/ends), max(f.length[i], longest))
		}
	}
	return f
}
