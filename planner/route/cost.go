package route

import (
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
	t.shares, t.kept = r.dir.find(t.ends, t.shares[:0]), r.engines.find(t.ends, t.kept[:0])
	t.expect = r.missing(t)
}

// view makes have, engine and plan answer for one turn, so that one look at its shares
// serves all executors.
func (r *Router) view(t *turn) {
	r.stamp++
	r.viewed, r.outside = t, viewGiver{}
	for _, s := range t.shares {
		s.node.view, s.node.blocks = r.stamp, s.blocks
	}
	for _, k := range t.kept {
		if k.x.stamp != r.stamp {
			k.x.stamp, k.x.engine = r.stamp, k.blocks
		}
	}
}

// viewGiver is the giver for every node that holds nothing of the turn in view.
type viewGiver struct {
	known bool
	share *share
}

// reading tells that a router that has just started does not know yet which nodes
// there are and what they hold, and that this matters to a turn: much of its prompt
// was computed somewhere.
func (r *Router) reading(now schemas.Time, t *turn) bool {
	if t.ready.Prompt.TailFrom <= schemas.SizeSMax || len(r.dir.list) == 0 {
		return false
	}
	early := int64(now-r.started) < r.cfg.HeartbeatNS // not every executor was heard
	return early || r.dir.unknown > 0
}

// whole is the number of whole blocks of a prompt. The last 1 to 64 tokens yield the
// first logits and are never found.
func (t *turn) whole() int { return (t.ready.Prompt.N - 1) / blockTokens }

// have is how many blocks of the turn in view an executor's node holds. Where no
// directory tells, what lineage knows of was computed on the only node that there is.
func (r *Router) have(x *executor) int {
	t := r.viewed
	switch {
	case x.at == nil || !r.dir.any():
		if t.evicted {
			return 0
		}
		return min(t.whole(), t.ready.Prompt.TailFrom/blockTokens)
	case x.at.view == r.stamp:
		return min(t.whole(), x.at.blocks)
	}
	return 0
}

// keeps is how many leading blocks of the turn in view a sequence in x's engine holds.
func (r *Router) keeps(x *executor) int {
	if x.stamp == r.stamp {
		return x.engine
	}
	return 0
}

// plan sets what x lacks of the turn in view against what it would take to bring it in.
// The break-even is measured: tokens per second that come in, and tokens per second that
// are computed.
func (r *Router) plan(x *executor) plan {
	t := r.viewed
	p := plan{have: r.have(x)}
	p.compute = t.whole() - p.have
	computing := float64(p.compute*blockTokens) / r.tps(x)
	p.seconds = computing
	if p.compute == 0 {
		return p
	}
	if from := r.giver(x, p.have); from != nil {
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

// planFor is plan for one executor alone.
func (r *Router) planFor(x *executor, t *turn) plan {
	r.view(t)
	return r.plan(x)
}

// nearlyAll: of nodes that hold at least this share of what the deepest one holds,
// the one that gives least is asked.
const nearlyAll = 0.8

// giver is the node to bring blocks of the turn in view in from: of those that hold
// more than have, the least busy one of the deepest.
func (r *Router) giver(x *executor, have int) *share {
	if have > 0 || x.at == nil || x.at.view == r.stamp {
		return r.giverFor(x.at, have)
	}
	if !r.outside.known {
		r.outside = viewGiver{known: true, share: r.giverFor(x.at, have)}
	}
	return r.outside.share
}

func (r *Router) giverFor(at *tierNode, have int) *share {
	var best *share
	deepest := 0
	shares := r.viewed.shares
	for i := range shares { // deepest first
		s := &shares[i]
		if s.blocks <= have || deepest > 0 && float64(s.blocks) < nearlyAll*float64(deepest) {
			break
		}
		if s.node == at || s.node.peer == "" || s.node.gives >= r.cfg.MaxGives {
			continue
		}
		if deepest == 0 {
			deepest = s.blocks
		}
		if best == nil || s.node.gives < best.node.gives {
			best = s
		}
	}
	return best
}

// sources names where the blocks of a plan for the turn in view are, and counts the
// nodes that give.
func (r *Router) sources(x *executor, p plan) []schemas.Source {
	t := r.viewed
	from := r.giver(x, p.have)
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
	if x.in != nil && x.in.tps > 0 {
		return x.in.tps
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
	r.dir.unlearn(x.at, t.ends, found)
	for _, n := range t.gives {
		r.dir.unlearn(n, t.ends, found)
	}
	t.looked = 0
}
