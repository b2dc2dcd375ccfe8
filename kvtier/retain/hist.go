package retain

import "math"

// The grid of times: bins of 10 % from 50 ms to a day, wide enough for tools that
// answer in milliseconds and for users who sleep.
const (
	bins      = 156
	binRatio  = 1.1
	firstEdge = 0.05 // seconds
)

// edges[i] and edges[i+1] bound bin i, in seconds.
var edges = func() (e [bins + 1]float64) {
	for i := 1; i <= bins; i++ {
		e[i] = firstEdge * math.Pow(binRatio, float64(i-1))
	}
	return e
}()

var logRatio = math.Log(binRatio)

func binOf(seconds float64) int {
	if !(seconds >= firstEdge) {
		return 0
	}
	return min(1+int(math.Log(seconds/firstEdge)/logRatio), bins-1)
}

// weightLimit is where a histogram's weights are scaled down, before float32
// loses small ones.
const weightLimit = 1 << 16

// hist is how long something took: counts of which older ones weigh less, and the
// share that never came to an end. Forgetting makes later entries heavier instead
// of walking all bins.
type hist struct {
	n      [bins]float32
	never  float32
	sum    float32
	weight float32 // of the next entry
}

func (h *hist) add(seconds float64, forget float32) {
	if h.weight == 0 {
		h.weight = 1
	}
	if math.IsInf(seconds, 1) {
		h.never += h.weight
	} else {
		h.n[binOf(seconds)] += h.weight
	}
	h.sum += h.weight
	if h.weight /= forget; h.weight > weightLimit {
		h.scale(1 / h.weight)
	}
}

// unlapse takes back one entry that did not end.
func (h *hist) unlapse() {
	n := min(h.never, h.weight)
	h.never -= n
	h.sum -= n
}

func (h *hist) scale(f float32) {
	for i := range h.n {
		h.n[i] *= f
	}
	h.never *= f
	h.sum *= f
	h.weight *= f
}

// count is the number of entries that h is worth.
func (h *hist) count() float32 {
	if h.weight == 0 {
		return 0
	}
	return h.sum / h.weight
}

// lognormal fills h with n entries of a lognormal distribution by its median and
// 90th percentile in seconds, and never more that do not end.
func (h *hist) lognormal(n, median, p90, never float64) {
	const z90 = 1.2815515655446004
	mu := math.Log(median)
	sigma := math.Log(p90/median) / z90
	cdf := func(t float64) float64 { return math.Erfc((mu-math.Log(t))/(sigma*math.Sqrt2)) / 2 }
	for i := range h.n {
		hi, lo := 1.0, 0.0
		if i < bins-1 {
			hi = cdf(edges[i+1])
		}
		if i > 0 {
			lo = cdf(edges[i])
		}
		h.n[i] = float32(n * (hi - lo))
	}
	h.never, h.sum, h.weight = float32(never), float32(n+never), 1
}

// blend is a distribution made of histograms, each with its weight.
type blend struct {
	h [4]*hist
	w [4]float32
	n int
}

// add puts in a histogram, each of whose counts is worth w entries.
func (b *blend) add(h *hist, w float32) {
	b.h[b.n], b.w[b.n] = h, w
	b.n++
}

// mass fills m with what is in each bin from first on, and returns what is in the
// bins before, what is in m, and what never ends.
func (b *blend) mass(first int, m *[bins]float64) (before, later, never float64) {
	for k := range b.n {
		w, h := float64(b.w[k]), b.h[k]
		sum := float32(0)
		for _, n := range h.n[:first] {
			sum += n
		}
		before += w * float64(sum)
		never += w * float64(h.never)
		tail := m[first:]
		for i, n := range h.n[first:] {
			tail[i] += w * float64(n)
		}
	}
	for _, v := range m[first:] {
		later += v
	}
	return before, later, never
}

// outlook is what a distribution says of something that has lasted for a while.
type outlook struct {
	rate    float64 // Gittins index, per second
	later   float64 // share of all that ends, but later than now
	returns float64 // chance that it ends at all
	median  float64 // seconds until it ends, given that it does
}

// outlook at age seconds, for something that is needed delay seconds after its end.
//
// The rate is the Gittins index of the branch seen as a job whose service is the
// memory that it occupies and whose reward is the hit:
//
//	rate(a) = max over t > a of P(R <= t | R > a) / E[delay + min(R, t) - a | R > a]
//
// hits per second of one block's residence, if the block is given up at t at the
// latest. That is the order which is best among independent branches when memory
// has a price (Gittins 1979; Whittle 1988; for services of unknown length Aalto,
// Ayesta and Righter 2009). An exponential wait has the same rate at each age; a
// heavy tail makes it fall with the age; a fixed wait makes it rise.
func (b *blend) outlook(age, delay float64) (o outlook) {
	first := binOf(age)
	var mass [bins]float64
	before, later, never := b.mass(first, &mass)
	all := before + later + never
	// Of the bin that age lies in, what is left is taken to be spread evenly.
	gone := mass[first] * min(1, (age-edges[first])/(edges[first+1]-edges[first]))
	mass[first] -= gone
	later -= gone
	alive := later + never
	if !(later > 1e-9*all) {
		return outlook{}
	}
	o.later, o.returns = later/all, later/alive
	came, held, half := 0.0, alive*delay, later/2
	from := age
	for i := first; i < bins && came < later*(1-1e-6); i++ {
		m, to := mass[i], edges[i+1]
		if width := to - from; width > 0 {
			held += (alive - m/2) * width
			if came < half && came+m >= half {
				o.median = from - age + width*(half-came)/m
			}
			from = to
		}
		alive -= m
		came += m
		if came > o.rate*held {
			o.rate = came / held
		}
	}
	return o
}
