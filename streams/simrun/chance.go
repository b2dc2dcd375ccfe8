package simrun

import (
	"time"

	"github.com/weir-dev/weir/schemas"
)

// chance is a source of randomness (splitmix64, Steele and others 2014), small
// enough to have one per link.
type chance struct{ state uint64 }

// newChance derives the source of that name from the seed.
func newChance(seed uint64, name string) *chance {
	h := uint64(14695981039346656037) // FNV-1a
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	c := &chance{state: seed ^ h}
	c.next()
	return c
}

func (c *chance) next() uint64 {
	c.state += 0x9e3779b97f4a7c15
	z := c.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// hit is true with probability p.
func (c *chance) hit(p float64) bool {
	return p > 0 && float64(c.next()>>11)/(1<<53) < p
}

// between draws a duration from lo to hi.
func (c *chance) between(lo, hi time.Duration) schemas.Time {
	if hi <= lo {
		return schemas.Time(lo)
	}
	return schemas.Time(lo) + schemas.Time(c.next()%uint64(hi-lo+1))
}
