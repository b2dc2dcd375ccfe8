package gpuexec

import "github.com/weir-dev/weir/schemas"

// KnownBlocks is the number of leading whole blocks of a prompt that were computed
// before, as far as lineage knows. The last token of a context was never fed, so its
// block may not have been.
func KnownBlocks(r *schemas.Ready) int {
	n := r.Prompt.TailFrom / BlockTokens
	if r.Miss != nil && r.Miss.Known > 0 {
		n = max(n, (r.Miss.Known-1)/BlockTokens)
	}
	return n
}

// ruleUnknown: a block had been computed and is gone, and the tier does not say why.
const ruleUnknown = "unknown"

// found notes why the first block that an opened job lacks had to be computed. What
// the prefill stage found stands: behind it all blocks are there.
func (j *job) found(d *schemas.OpenDone) {
	switch {
	case j.Miss != nil: // told by the prefill stage
		j.miss = j.Miss
	case j.miss == nil:
		j.miss = missOf(j.Ready, d)
	}
}

// missOf is lineage's reason, which is about the text, unless a block is missing
// that had been computed.
func missOf(r *schemas.Ready, d *schemas.OpenDone) *schemas.Miss {
	if d.Missing == 0 || d.Cached >= KnownBlocks(r)*BlockTokens || r.Prompt.Uncached {
		return r.Miss
	}
	m := &schemas.Miss{Cause: schemas.MissEvicted, Message: -1, Known: r.Prompt.TailFrom, Rule: ruleUnknown}
	if r.Miss != nil {
		m.Known, m.Lost = max(m.Known, r.Miss.Known), r.Miss.Lost
	}
	if g := d.Gone; g != nil {
		m.AtNS, m.Rule = g.AtNS, g.Rule
		if g.AtNS == 0 && g.Rule == "" {
			m.Cause = schemas.MissNotKept
		}
	}
	return m
}
