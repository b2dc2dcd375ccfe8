package infer

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"

	"github.com/weir-dev/weir/kvtier/branch"
)

// pruning says how many of the last screenshots a computer-use agent keeps in its
// context. The older ones are replaced by a short text when more than keep+every-1
// are there.
type pruning struct {
	name        string
	keep, every int
}

// prunings are policies in use; their sources are in traces/params_math_cua.json.
var prunings = []pruning{
	{"last-1", 1, 1},    // H CUA
	{"chunk-3", 3, 3},   // Anthropic's computer-use demonstration
	{"sliding-8", 8, 1}, // Agent-S
	{"interval", 3, 40}, // Anthropic's best practices: at least 3, every 40 calls
}

// Sizes in tokens of a computer-use session (traces/params_math_cua.json).
const (
	baseSize        = 6000
	screenshotSize  = 1500
	placeholderSize = 12
	answerSize      = 300
	compactAbove    = 100_000
)

// desktop generates the requests of one computer-use session with known labels.
type desktop struct {
	rng     *rand.Rand
	policy  pruning
	asUser  bool // screenshots come as messages of the user, not as tool results
	removed bool // old screenshots are left out, not replaced
	items   []branch.Item
	made    int
}

func newDesktop(seed uint64, p pruning) *desktop {
	d := &desktop{rng: rand.New(rand.NewPCG(seed, 0xc0)), policy: p}
	d.asUser = d.rng.IntN(2) == 0
	d.removed = d.rng.IntN(4) == 0
	d.items = []branch.Item{
		d.item(branch.System, baseSize, false, "system"),
		d.item(branch.User, 40+d.rng.IntN(400), false, ""),
	}
	return d
}

// item makes an item. Items with a key are equal across calls.
func (d *desktop) item(role branch.Role, size int, media bool, key string) branch.Item {
	if key == "" {
		d.made++
		key = fmt.Sprint(d.made)
	}
	it := branch.Item{Role: role, Size: size, Media: media}
	sum := sha256.Sum256([]byte(key))
	copy(it.Digest[:], sum[:])
	return it
}

// step adds the model's answer and a screenshot, prunes, and returns the label of
// the request that sends the result.
func (d *desktop) step(answer branch.Item) branch.Kind {
	d.items = append(d.items[:len(d.items):len(d.items)], answer)
	switch d.rng.IntN(40) {
	case 0: // the user takes the last step back and says something else
		d.items = append(d.items[:len(d.items)-1], d.item(branch.User, 30, false, ""))
		if n := len(d.items); n > 6 {
			d.items = append(d.items[:n-4:n-4], d.items[n-1])
		}
		return branch.Rewrite
	case 1: // a tool without a screenshot
		d.items = append(d.items, d.item(branch.Tool, 20+d.rng.IntN(2000), false, ""))
	default:
		role := branch.Tool
		if d.asUser {
			role = branch.User
		}
		d.items = append(d.items, d.item(role, screenshotSize, true, ""))
	}
	return d.prune()
}

func (d *desktop) prune() branch.Kind {
	total, shots := 0, []int{}
	for i, it := range d.items {
		total += it.Size
		if it.Media {
			shots = append(shots, i)
		}
	}
	if total > compactAbove {
		d.items = append(d.items[:2:2], d.item(branch.User, 1500, false, ""))
		return branch.Compaction
	}
	if len(shots) < d.policy.keep+d.policy.every {
		return branch.Continue
	}
	old := map[int]bool{}
	for _, i := range shots[:len(shots)-d.policy.keep] {
		old[i] = true
	}
	var out []branch.Item
	for i, it := range d.items {
		switch {
		case !old[i]:
			out = append(out, it)
		case !d.removed:
			out = append(out, d.item(it.Role, placeholderSize, false, "screenshot removed"))
		}
	}
	d.items = out
	return branch.Pruned
}

// runDesktop plays a session of steps against a forest in which a second agent with
// the same system prompt is at work, and returns the pairs of label and placement.
func runDesktop(seed uint64, p pruning, steps int) (labels, placed []branch.Kind) {
	f := branch.NewForest(branch.Options{})
	names := 0
	fresh := func() string { names++; return fmt.Sprint("b-", names) }
	agents := []*desktop{newDesktop(seed, p), newDesktop(seed+1<<32, p)}
	agents[1].made = 1 << 30 // other digests than the first one's
	agents[1].items[1] = agents[1].item(branch.User, 50, false, "")
	next := []branch.Kind{branch.First, branch.SubAgent}
	for i := range 2 * steps {
		d := agents[i%2]
		r := f.Place(branch.Request{At: int64(i) * 1e9, Items: d.items}, nil, fresh)
		f.Set(r.Branch, r.Parent, d.items, int64(i)*1e9)
		labels = append(labels, next[i%2])
		placed = append(placed, r.Kind)
		answer := d.item(branch.Assistant, answerSize, false, "")
		f.Append(r.Branch, answer, int64(i)*1e9+5e8)
		next[i%2] = d.step(answer)
	}
	return labels, placed
}

// generatedPruning scores sessions of every policy.
func generatedPruning(sessions, steps int) count {
	var c count
	for k := range sessions {
		for j, p := range prunings {
			labels, placed := runDesktop(uint64(k*len(prunings)+j), p, steps)
			for i := range labels {
				c.see(placed[i] == branch.Pruned, labels[i] == branch.Pruned)
			}
		}
	}
	return c
}
