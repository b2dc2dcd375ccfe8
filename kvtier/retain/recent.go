package retain

// recent is a map that holds up to a number of entries and forgets the least
// recently used.
type recent[K comparable, V any] struct {
	most int
	m    map[K]*entry[K, V]
	root entry[K, V] // ring: root.next is the latest
}

type entry[K comparable, V any] struct {
	prev, next *entry[K, V]
	key        K
	val        V
}

func newRecent[K comparable, V any](most int) *recent[K, V] {
	r := &recent[K, V]{most: max(1, most), m: map[K]*entry[K, V]{}}
	r.root.prev, r.root.next = &r.root, &r.root
	return r
}

// find returns the value of key, nil when there is none, without using it.
func (r *recent[K, V]) find(key K) *V {
	if e := r.m[key]; e != nil {
		return &e.val
	}
	return nil
}

// use returns the value of key, a zero one if there was none, as the latest.
func (r *recent[K, V]) use(key K) *V {
	e := r.m[key]
	if e == nil {
		if len(r.m) >= r.most {
			r.forget(r.root.prev.key)
		}
		e = &entry[K, V]{key: key}
		r.m[key] = e
	} else {
		e.prev.next, e.next.prev = e.next, e.prev
	}
	e.prev, e.next = &r.root, r.root.next
	e.prev.next, e.next.prev = e, e
	return &e.val
}

func (r *recent[K, V]) forget(key K) {
	if e := r.m[key]; e != nil {
		e.prev.next, e.next.prev = e.next, e.prev
		delete(r.m, key)
	}
}
