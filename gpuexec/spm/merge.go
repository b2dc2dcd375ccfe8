package spm

// symbol is a run of text bytes on its way to become a token: a linked list over
// the text. A merged-away symbol has n = 0.
type symbol struct {
	prev, next int32 // -1 at the ends
	at, n      int32 // byte offset and length
}

// bigram is a pair of neighbours whose joined text is a token.
type bigram struct {
	score       float32
	left, right int32
	n           int32 // joined length: tells a stale entry from a live one
}

// before is the order of merging: the better score first, then the leftmost.
func (b bigram) before(c bigram) bool {
	return b.score > c.score || b.score == c.score && b.left < c.left
}

// merger holds one run of the algorithm over one text.
type merger struct {
	v     *Vocab
	text  string
	syms  []symbol
	queue []bigram // binary heap, best first
}

// merge appends the tokens of text, whose spaces are escaped. It runs in
// O(n log n): every merge removes a symbol and queues at most two bigrams, and a
// candidate longer than the longest token costs no look-up.
func (v *Vocab) merge(out []int32, text string) ([]int32, error) {
	m := &merger{v: v, text: text, syms: make([]symbol, 0, len(text))}
	for at := 0; at < len(text); {
		n := min(charBytes(text[at]), len(text)-at)
		i := int32(len(m.syms))
		m.syms = append(m.syms, symbol{i - 1, i + 1, int32(at), int32(n)})
		at += n
	}
	if len(m.syms) == 0 {
		return out, nil
	}
	m.syms[len(m.syms)-1].next = -1
	for i := int32(1); int(i) < len(m.syms); i++ {
		m.offer(i-1, i)
	}
	m.run()
	var err error
	for i := int32(0); i >= 0; i = m.syms[i].next {
		s := m.syms[i]
		piece := text[s.at : s.at+s.n]
		if id, ok := v.byText[piece]; ok {
			out = append(out, id)
		} else if out, err = v.spell(out, piece); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// charBytes is the length of a UTF-8 character by its first byte. As in
// llama.cpp a stray continuation byte counts as one.
func charBytes(b byte) int {
	return int("\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x02\x02\x03\x04"[b>>4])
}

func (m *merger) run() {
	for len(m.queue) > 0 {
		b := m.pop()
		l, r := &m.syms[b.left], &m.syms[b.right]
		if l.n == 0 || r.n == 0 || l.n+r.n != b.n {
			continue // one side was merged meanwhile
		}
		l.n += r.n
		r.n = 0
		l.next = r.next
		if r.next >= 0 {
			m.syms[r.next].prev = b.left
		}
		m.offer(l.prev, b.left)
		m.offer(b.left, l.next)
	}
}

// offer queues the pair if its joined text is a token.
func (m *merger) offer(left, right int32) {
	if left < 0 || right < 0 {
		return
	}
	l := m.syms[left]
	n := l.n + m.syms[right].n
	if int(n) > m.v.longest {
		return
	}
	id, ok := m.v.byText[m.text[l.at:l.at+n]]
	if !ok {
		return
	}
	m.push(bigram{m.v.scores[id], left, right, n})
}

func (m *merger) push(b bigram) {
	q := append(m.queue, b)
	i := len(q) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !b.before(q[up]) {
			break
		}
		q[i] = q[up]
		i = up
	}
	q[i] = b
	m.queue = q
}

func (m *merger) pop() bigram {
	q := m.queue
	best, last := q[0], q[len(q)-1]
	q = q[:len(q)-1]
	for i := 0; len(q) > 0; {
		down := 2*i + 1
		if down >= len(q) {
			q[i] = last
			break
		}
		if down+1 < len(q) && q[down+1].before(q[down]) {
			down++
		}
		if !q[down].before(last) {
			q[i] = last
			break
		}
		q[i] = q[down]
		i = down
	}
	m.queue = q
	return best
}
