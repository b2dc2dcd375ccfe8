package sampling

import (
	"cmp"
	"slices"
)

// Candidates are ranked by (distance to the best logit, id), both ascending.
// Top-k and top-p keep a prefix of that ranking. To find its end without sorting
// a vocabulary of 256k, candidates are counted or weighed in bins by distance:
//
//	distance 0 |‥‥|‥‥|‥‥|‥▲‥|‥‥|‥‥| 40
//	                      end: only this bin is sorted
//
// The bins are fine because models with little opinion (random weights) put
// everything within a few units of the best.
const (
	maxDistance = 40.0 // e^-40 = 4e-18: 256k such tokens together weigh 1e-12 of the best, they are left out
	binsPerUnit = 16
	bins        = maxDistance*binsPerUnit + 1
)

// Scratch is memory for Next and Logprobs that samplers of one goroutine may
// share: it holds nothing between calls. Its size is 28 bytes per vocabulary entry.
type Scratch struct {
	ids    []int32   // candidates in ascending order of id
	dist   []float64 // scaled distance to the best logit, [0, maxDistance]
	weight []float64 // e^-dist
	ranked []rank    // one bin, sorted
	counts [bins]int32
	masses [bins]float64
}

// rank is a place in the ranking; pos is the index among the candidates.
type rank struct {
	dist float64
	pos  int32
}

func bin(dist float64) int { return int(dist * binsPerUnit) }

// holds tells whether candidate pos lies at or before the end.
func (end rank) holds(dist float64, pos int) bool {
	return dist < end.dist || (dist == end.dist && int32(pos) <= end.pos)
}

// sortBin ranks the candidates of one bin.
func (s *Scratch) sortBin(b int) []rank {
	s.ranked = s.ranked[:0]
	for pos, d := range s.dist {
		if bin(d) == b {
			s.ranked = append(s.ranked, rank{d, int32(pos)})
		}
	}
	slices.SortFunc(s.ranked, func(x, y rank) int {
		return cmp.Or(cmp.Compare(x.dist, y.dist), cmp.Compare(x.pos, y.pos))
	})
	return s.ranked
}

// keepTop leaves the k best candidates. Weights need not be set.
func (s *Scratch) keepTop(k int) {
	if k >= len(s.ids) {
		return
	}
	clear(s.counts[:])
	for _, d := range s.dist {
		s.counts[bin(d)]++
	}
	b, before := 0, 0
	for before+int(s.counts[b]) < k {
		before += int(s.counts[b])
		b++
	}
	end := s.sortBin(b)[k-before-1]
	n := 0
	for pos, d := range s.dist {
		if end.holds(d, pos) {
			s.ids[n], s.dist[n] = s.ids[pos], d
			n++
		}
	}
	s.ids, s.dist = s.ids[:n], s.dist[:n]
}

// keepMass leaves the shortest prefix of the ranking with at least share p of
// the whole mass, and returns the mass of what is left.
func (s *Scratch) keepMass(p, total float64) float64 {
	clear(s.masses[:])
	for pos, d := range s.dist {
		s.masses[bin(d)] += s.weight[pos]
	}
	target := float64(p * total)
	b, before := 0, 0.0
	for b < bins-1 && before+s.masses[b] < target {
		before += s.masses[b]
		b++
	}
	ranked := s.sortBin(b)
	if len(ranked) == 0 { // rounding carried the search past the last candidate: all stay
		return total
	}
	end := ranked[len(ranked)-1]
	for _, r := range ranked {
		before += s.weight[r.pos]
		if before >= target {
			end = r
			break
		}
	}
	n, mass := 0, 0.0
	for pos, d := range s.dist {
		if end.holds(d, pos) {
			s.ids[n], s.dist[n], s.weight[n] = s.ids[pos], d, s.weight[pos]
			mass += s.weight[n]
			n++
		}
	}
	s.truncate(n)
	return mass
}

// keepLikely leaves the candidates that weigh at least w (the best weighs 1),
// and returns the mass of what is left.
func (s *Scratch) keepLikely(w float64) float64 {
	n, mass := 0, 0.0
	for pos, v := range s.weight {
		if v >= w {
			s.ids[n], s.dist[n], s.weight[n] = s.ids[pos], s.dist[pos], v
			mass += v
			n++
		}
	}
	s.truncate(n)
	return mass
}

func (s *Scratch) truncate(n int) {
	s.ids, s.dist, s.weight = s.ids[:n], s.dist[:n], s.weight[:n]
}
