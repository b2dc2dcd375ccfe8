package simgpu

import "github.com/weir-dev/weir/schemas"

// context is what the engine keeps of a turn that is over, or what was brought in for
// one that is about to begin: the first blocks of a chain.
type context struct {
	chain, job string
	prefix     string // the shared prefix that it holds whole, if any
	blocks     int
	key        string // of the last of its first named blocks, where keys are known
	named      int

	older, newer *context
}

// memory is the engine's KV memory: tokens of open sequences, of transfers under way,
// and of contexts that stay until the room is needed, least recently used first.
type memory struct {
	room     int // tokens
	used     int // tokens of sequences and transfers
	kept     int // tokens of contexts
	contexts map[string]*context
	oldest   *context
	newest   *context
	prefixes map[string]int // how many sequences and contexts hold a shared prefix
	changed  bool           // contexts are not what was last told
}

func newMemory(room int) memory {
	return memory{room: room, contexts: map[string]*context{}, prefixes: map[string]int{}}
}

// free is what can be had by forgetting all contexts.
func (m *memory) free() int { return m.room - m.used }

// take reserves tokens, and forgets contexts for them. It tells whether there is room.
func (m *memory) take(tokens int) bool {
	if tokens > m.free() {
		return false
	}
	m.used += tokens
	m.shrink()
	return true
}

// shrink forgets contexts until all fits.
func (m *memory) shrink() {
	for m.used+m.kept > m.room && m.oldest != nil {
		m.remove(m.oldest)
	}
}

func (m *memory) give(tokens int) { m.used -= tokens }

// keep adds a context as the most recently used one. An older one of the same chain is
// replaced, unless it is a longer one of the same turn.
func (m *memory) keep(c *context) {
	if old := m.contexts[c.chain]; old != nil {
		if old.job == c.job && old.blocks > c.blocks {
			m.use(old)
			m.unhold(c.prefix)
			return
		}
		m.remove(old)
	}
	if c.blocks == 0 {
		m.unhold(c.prefix)
		return
	}
	m.contexts[c.chain] = c
	m.kept += c.blocks * blockTokens
	m.push(c)
	m.changed = true
	m.shrink()
}

// remove forgets a context.
func (m *memory) remove(c *context) {
	delete(m.contexts, c.chain)
	m.kept -= c.blocks * blockTokens
	m.unlink(c)
	m.unhold(c.prefix)
	m.changed = true
}

func (m *memory) use(c *context) {
	if m.newest != c {
		m.unlink(c)
		m.push(c)
	}
}

func (m *memory) push(c *context) {
	c.older, c.newer = m.newest, nil
	if m.newest != nil {
		m.newest.newer = c
	} else {
		m.oldest = c
	}
	m.newest = c
}

func (m *memory) unlink(c *context) {
	if c.older != nil {
		c.older.newer = c.newer
	} else {
		m.oldest = c.newer
	}
	if c.newer != nil {
		c.newer.older = c.older
	} else {
		m.newest = c.older
	}
	c.older, c.newer = nil, nil
}

func (m *memory) hold(prefix string) {
	if prefix != "" {
		m.prefixes[prefix]++
	}
}

func (m *memory) unhold(prefix string) {
	if prefix == "" {
		return
	}
	if m.prefixes[prefix]--; m.prefixes[prefix] == 0 {
		delete(m.prefixes, prefix)
	}
}

// device lists the contexts most recently used, at most n of them.
func (m *memory) device(n int) *schemas.DeviceState {
	s := &schemas.DeviceState{Blocks: m.kept / blockTokens, Kept: make([]schemas.Extent, 0, min(n, len(m.contexts)))}
	for c := m.newest; c != nil && len(s.Kept) < n; c = c.older {
		if c.key != "" {
			s.Kept = append(s.Kept, schemas.Extent{Key: c.key, N: c.named})
		}
	}
	return s
}
