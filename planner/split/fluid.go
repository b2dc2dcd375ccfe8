package split

import "math"

// Mix describes answers of two lengths: shorts and longs, Long of all turns being long.
// Reasoning beside tool calls is such a mix, and its mean says little: a turn of 200
// tokens gives its slot back after 3 s, one of 10,000 after 2 min.
type Mix struct {
	Short, Longer float64 // mean tokens of an answer
	Long          float64 // share of turns
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
	thinking  float64
	preS, pre float64 // before or in prefill: shorts, all
	queue     [2]float64
	run       [2]float64 // shorts, longs
}

// loop runs a pool's closed loop over the horizon with p and d executors.
//
//	thinking --1/Think--> [prefill: p/TurnWork, S + wait] --> queue --> slots: d·batch --> thinking
//
// Slots that come free are taken in order of arrival, so shorts wait behind longs, as
// turns do. What is unknown is taken from what is measured: as many think as the rate of
// arrivals needs, shorts that run are as many as end, the others that run are long.
func (s *State) loop(p, d, horizon float64) (out Outcome) {
	const dt = 0.5
	batch, kv := s.Batch()
	slots := d * batch
	f := s.start()
	al := max(s.Model.Accept, 1)
	var prefilled, tokens, full, busy float64
	most := math.Inf(1)
	if s.TurnWork > 0 {
		most = p / s.TurnWork
	}
	load := min(0.98, s.Rate/most)
	steps := int(horizon / dt)
	for range steps {
		back := f.thinking * (1 - math.Exp(-dt/Think))
		f.thinking -= back
		f.pre += back
		stay := s.alone()
		if load > 0 && !math.IsInf(most, 1) {
			stay += wait(p*max(s.Model.Lanes, 1), load, s.alone())
		}
		x := min(most*dt, f.pre*(1-math.Exp(-dt/max(stay, 1e-3))))
		if x >= most*dt*0.98 {
			busy++
		}
		load = min(0.98, 0.7*load+0.3*x/dt/most)
		f.pre -= x
		prefilled += x
		f.queue[0] += x * (1 - s.Mix.Long)
		f.queue[1] += x * s.Mix.Long

		// Into slots, in order of arrival.
		if q := f.queue[0] + f.queue[1]; q > 0 {
			in := min(q, max(0, slots-f.run[0]-f.run[1]))
			for i := range f.queue {
				part := in * f.queue[i] / q
				f.queue[i] -= part
				f.run[i] += part
			}
			if in < q {
				full++
			}
		}
		n := f.run[0] + f.run[1]
		if over := n - slots; over > 0 { // fewer executors than before: handed back
			for i := range f.run {
				part := over * f.run[i] / n
				f.run[i] -= part
				f.queue[i] += part
			}
			n = slots
		}
		if n > 0 && d > 0 {
			b := max(n/d, min(1, n))
			speed := al / max(s.Model.StepTime(b, b*s.Context), 1e-6) // tokens per second and turn
			for i, mean := range [2]float64{s.Mix.Short, s.Mix.Longer} {
				tokens += f.run[i] * speed * dt
				if mean > 0 {
					end := f.run[i] * (1 - math.Exp(-speed*dt/mean))
					f.run[i] -= end
					f.thinking += end
				}
			}
		}
	}
	out.Flow, out.Tokens = prefilled/horizon, tokens/horizon
	out.Value = out.Flow*s.TurnWork + out.Tokens*s.Unit()
	out.Why = "demand"
	switch {
	case full > float64(steps)/2 && kv:
		out.Why = "kv"
	case full > float64(steps)/2:
		out.Why = "decode"
	case busy > float64(steps)/2:
		out.Why = "prefill"
	}
	return out
}

// start is the state of the loop as it was measured.
func (s *State) start() (f fluid) {
	f.thinking = s.Rate * Think
	f.pre = s.InPrefill
	f.queue = [2]float64{s.WaitDecode * (1 - s.Mix.Long), s.WaitDecode * s.Mix.Long}
	n := s.InDecode
	d := s.Decode + s.Mixed/2
	if n <= 0 || d <= 0 {
		return f
	}
	b := max(n/d, 1)
	short := n
	if s.Mix.Long > 0 {
		short = min(n, s.Ended*(1-s.Mix.Long)*s.Mix.Short*s.Model.StepTime(b, b*s.Context)/max(s.Model.Accept, 1))
	}
	f.run = [2]float64{short, n - short}
	return f
}
