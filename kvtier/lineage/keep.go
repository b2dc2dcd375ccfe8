package lineage

import "github.com/weir-dev/weir/schemas"

// Some templates leave out the reasoning of an earlier answer once the next message is
// there, often only when that is a user's. Then the blocks from that answer on are of
// no use while its branch waits, and the tier nodes are told so. Which templates do is
// learned from prompts that come back.

// dropKey is a template with what follows the answer.
type dropKey struct {
	template string
	state    schemas.BranchState
}

// maxDrops bounds what is learned of templates.
const maxDrops = 1024

// learnDrop notes whether the template left out the reasoning of the branch's last
// answer in a prompt that repeats it.
func (l *Lineage) learnDrop(t *turn, how schemas.RewriteCause) {
	b := t.branch
	if b == nil || b.fresh || b.log == nil || b.log.Answer == nil || len(b.hist) == 0 || t.kept < len(b.hist) {
		return
	}
	if last := b.hist[len(b.hist)-1]; !last.reasoning {
		return
	}
	k := dropKey{t.keys.Template, b.state}
	if how != schemas.RewriteReasoning {
		delete(l.drops, k)
		return
	}
	if len(l.drops) >= maxDrops {
		clear(l.drops)
	}
	l.drops[k] = true
}

// keeps is how many leading blocks of an answered turn's context the next prompt is
// expected to repeat; 0 for all.
func (l *Lineage) keeps(t *turn, state schemas.BranchState, last *entry) int {
	a := t.log.Answer
	if last == nil || !last.reasoning || a == nil || !l.drops[dropKey{t.keys.Template, state}] {
		return 0
	}
	return t.log.Marks[a.Mark].Tokens / blockTokens
}
