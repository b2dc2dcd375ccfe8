package route

import (
	"slices"
	"sort"

	"github.com/weir-dev/weir/schemas"
)

// plan is what a turn's prompt would cost on one executor.
type plan struct {
	have    int // whole blocks that the executor's node holds
	bring   int // further ones that other nodes can give, where that is cheaper than computing
	compute int // what is left, in blocks
	seconds float64
}

// lookEveryNS is how long what the directory said of a waiting turn counts, so that a
// long queue is not looked up at every message.
const lookEveryNS = 50_000_000

// look asks the directory about a turn.
func (r *Router) look(now schemas.Time, t *turn) {
	if t.looked != 0 && int64(now-t.looked) < lookEveryNS {
		return
	}
	t.looked = max(now, 1)
	t.shares = t.shares[:0]
	if !t.ready.Prompt.Uncached {
		t.shares = r.dir.find(&t.ready.Prompt, t.shares)
	}
}

// reading tells that a router that has just started does not know yet which nodes
// there are and what they hold, and that this matters to a turn: much of its prompt
// was computed somewhere.
func (r *Router) reading(now schemas.Time, t *turn) bool {
	if t.ready.Prompt.TailFrom <= schemas.SizeSMax || len(r.dir.list) == 0 {
		return false
	}
	early := int64(now-r.started) < r.cfg.HeartbeatNS // not every executor was heard
	return early || slices.ContainsFunc(r.dir.list, func(n *tierNode) bool { return !n.known })
}

// whole is the number of whole blocks of a prompt. The last 1 to 64 tokens yield the
// first logits and are never found.
func (t *turn) whole() int { return (t.ready.Prompt.N - 1) / blockTokens }

// have is how many of a turn's blocks an executor's node holds. Where no directory
// tells, what lineage knows of was computed on the only node that there is.
func (r *Router) have(x *executor, t *turn) int {
	if x.at == nil || !r.dir.any() {
		if t.evicted {
			return 0
		}
		return min(t.whole(), t.ready.Prompt.TailFrom/blockTokens)
	}
	for _, s := range t.shares {
		if s.node == x.at {
			return min(t.whole(), s.blocks)
		}
	}
	return 0
}

// plan sets what x lacks against what it would take to bring it in. The break-even is
// measured: tokens per second that come in, and tokens per second that are computed.
func (r *Router) plan(x *executor, t *turn) plan {
	p := plan{have: r.have(x, t)}
	p.compute = t.whole() - p.have
	computing := float64(p.compute*blockTokens) / r.tps(x)
	p.seconds = computing
	if from := r.giver(x, t, p.have); from != nil {
		n := min(t.whole(), from.blocks) - p.have
		rate := x.bring
		if rate <= 0 {
			rate = r.cfg.BringTPS
		}
		// A node shares its link among those that it gives to.
		bringing := float64(r.cfg.BringNS)/1e9 + float64(n*blockTokens)/rate*float64(1+from.node.gives)
		if left := float64((p.compute-n)*blockTokens) / r.tps(x); bringing+left < computing {
			p.bring, p.compute, p.seconds = n, p.compute-n, bringing+left
		}
	}
	return p
}

// keeps is how many of a prompt's leading blocks a sequence in x's engine holds.
func (x *executor) keeps(p *schemas.Prompt) (blocks int) {
	for _, k := range x.kept {
		if k.From == 0 && k.N > blocks && (ends(p.Path, k) || ends(p.Rest, k)) {
			blocks = k.N
		}
	}
	return blocks
}

// ends reports whether one of the extents ends where k does.
func ends(es []schemas.Extent, k schemas.Extent) bool {
	i := sort.Search(len(es), func(i int) bool { return es[i].From+es[i].N >= k.N })
	return i < len(es) && es[i].From+es[i].N == k.N && es[i].Key == k.Key
}

// nearlyAll: of nodes that hold at least this share of what the deepest one holds,
// the one that gives least is asked.
const nearlyAll = 0.8

// giver is the node to bring blocks in from: of those that hold more than have, the
// least busy one of the deepest.
func (r *Router) giver(x *executor, t *turn, have int) *share {
	var best *share
	deepest := 0
	for i := range t.shares { // deepest first
		s := &t.shares[i]
		if s.node == x.at || s.node.peer == "" || s.node.gives >= r.cfg.MaxGives || s.blocks <= have {
			continue
		}
		if deepest == 0 {
			deepest = s.blocks
		}
		if float64(s.blocks) >= nearlyAll*float64(deepest) && (best == nil || s.node.gives < best.node.gives) {
			best = s
		}
	}
	return best
}

// sources names where the blocks of a plan are, and counts the nodes that give.
func (r *Router) sources(x *executor, t *turn, p plan) []schemas.Source {
	from := r.giver(x, t, p.have)
	if p.bring == 0 || from == nil {
		return nil
	}
	from.node.gives++
	t.gives = append(t.gives, from.node)
	r.counts.Brought++
	return []schemas.Source{{Node: from.node.id, Peer: from.node.peer, Extent: schemas.Extent{Key: from.key, From: p.have, N: from.blocks - p.have}}}
}

// tps is the prefill speed of x in tokens per second. One that never prefilled is as
// fast as the one of its model that was heard last.
func (r *Router) tps(x *executor) float64 {
	if x.tps > 0 {
		return x.tps
	}
	if v := r.speeds[x.pool]; v > 0 {
		return v
	}
	return r.cfg.PrefillTPS
}

// checked compares what an executor found of a prompt with what was promised, and
// forgets what was not there. tokens is what it found.
func (r *Router) checked(t *turn, x *executor, tokens int) {
	found := tokens / blockTokens
	if x == nil || found >= t.promised {
		return
	}
	r.counts.Broken++
	r.dir.unlearn(x.at, &t.ready.Prompt, found)
	for _, n := range t.gives {
		r.dir.unlearn(n, &t.ready.Prompt, found)
	}
	t.looked = 0
}
