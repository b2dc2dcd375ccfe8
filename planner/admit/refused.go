package admit

import (
	"slices"
	"sort"

	"github.com/weir-dev/weir/schemas"
)

// refusals are the sessions that were told to come back, and when they first came. The
// times are kept in order too: under overload every turn that comes asks how many are
// before it.
type refusals struct {
	at    map[Key]schemas.Time
	times []schemas.Time // sorted, one per session
}

func (r *refusals) add(k Key, at schemas.Time) {
	r.drop(k)
	r.at[k] = at
	r.times = slices.Insert(r.times, r.before(at), at)
}

func (r *refusals) drop(k Key) {
	if at, ok := r.at[k]; ok {
		delete(r.at, k)
		i := r.before(at)
		r.times = slices.Delete(r.times, i, i+1)
	}
}

// before is how many first came before that time.
func (r *refusals) before(at schemas.Time) int {
	return sort.Search(len(r.times), func(i int) bool { return r.times[i] >= at })
}

// since forgets those that first came before that time.
func (r *refusals) since(at schemas.Time) {
	n := r.before(at)
	if n == 0 {
		return
	}
	for k, came := range r.at {
		if came < at {
			delete(r.at, k)
		}
	}
	r.times = slices.Delete(r.times, 0, n)
}
