package goengine

import (
	"math"

	"github.com/weir-dev/weir/gpuexec"
)

// queryRows is how many rows of one sequence meet a KV block while it is in the
// first-level cache. Their scores (queryRows × heads per KV head × context × 4
// bytes) should stay in the second level for usual contexts.
const queryRows = 8

// attend adds the attention of layer l to x. Rows of one sequence go together, so
// that a block's keys and values are read once for several of them; each query's own
// operations and their order do not depend on that.
func (e *Engine) attend(l int, rows []gpuexec.Row) {
	m, s, w := e.model, &e.scratch, &e.model.blocks[l]
	s.mid.reset(len(rows), m.qWidth())
	for from := 0; from < len(rows); {
		to := from + 1
		for to < len(rows) && to-from < queryRows && rows[to].Seq == rows[from].Seq {
			to++
		}
		for kv := range m.kvHeads {
			e.attendGroup(l, kv, rows, from, to)
		}
		from = to
	}
	stride := w.o.stride()
	s.out = grow(s.out, len(rows)*stride)
	w.o.mul(e.kernels, s.out, &s.mid)
	e.addOut(len(rows), stride)
}

// query is one query head of one row.
type query struct {
	q, out []float32 // headDim elements each
	scores []float32 // by position; whole blocks
	tokens int       // positions that it sees
	scale  float32   // 1 / sum of exp(score - top)
}

// attendGroup computes the query heads of KV head kv for rows from…to-1, which
// belong to one sequence and have ascending positions.
func (e *Engine) attendGroup(l, kv int, rows []gpuexec.Row, from, to int) {
	m, s, k := e.model, &e.scratch, e.kernels
	blocks := e.seqs[rows[from].Seq].blocks[:blocksOf(int(rows[to-1].Pos)+1)]
	s.queries = e.queries(s.queries[:0], l, kv, rows, from, to, len(blocks)*blockTokens)
	for b := range blocks {
		keys, at := m.keys(blocks[b], l, kv), b*blockTokens
		for i := range s.queries {
			if q := &s.queries[i]; at < q.tokens {
				k.scores(q.scores[at:at+blockTokens], q.q, keys)
			}
		}
	}
	for i := range s.queries {
		q := &s.queries[i]
		// The tail of the last block holds no tokens that this row may see; only the
		// entries that fill a register are kept, as minus infinity.
		used := q.scores[:roundUp(q.tokens)]
		for j := q.tokens; j < len(used); j++ {
			used[j] = float32(math.Inf(-1))
		}
		q.scale = 1 / k.softmax(used)
		clear(q.out)
	}
	for b := range blocks {
		values, at := m.values(blocks[b], l, kv), b*blockTokens
		for i := range s.queries {
			if q := &s.queries[i]; at < q.tokens {
				k.weigh(q.out, q.scores[at:min(at+blockTokens, q.tokens)], values)
			}
		}
	}
	for i := range s.queries {
		q := &s.queries[i]
		for j := range q.out {
			q.out[j] *= q.scale
		}
	}
}

// queries lists the query heads of a group, each with its own row of scores.
func (e *Engine) queries(list []query, l, kv int, rows []gpuexec.Row, from, to, positions int) []query {
	m, s := e.model, &e.scratch
	perKV, stride := m.heads/m.kvHeads, m.blocks[l].q.stride()
	s.scores = grow(s.scores, (to-from)*perKV*positions)
	for i := from; i < to; i++ {
		for h := kv * perKV; h < (kv+1)*perKV; h++ {
			at := h * m.headDim
			row := s.scores[len(list)*positions:]
			list = append(list, query{
				q:      s.q[i*stride+at : i*stride+at+m.headDim],
				out:    s.mid.row(i)[at : at+m.headDim],
				scores: row[:positions:positions],
				tokens: int(rows[i].Pos) + 1,
			})
		}
	}
	return list
}
