package explaincmd

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/weir-dev/weir/kvtier/retain"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/tier"
)

// held is what a node says of a session with two branches that end in keys a and b.
func held(node, a, b string, resident int) *tier.BlocksReply {
	return &tier.BlocksReply{
		Node: node, Order: "weir",
		Blocks: []tier.Block{
			{Key: a, Medium: schemas.MediumHost, Why: "waiting: branch main of session s1 waits for tool pytest, expected in 12s"},
			{Key: b, Medium: schemas.MediumHost, Why: "running: branch other of session s2 computes since 10:00:00"},
		},
		Branches: []retain.Holder{
			{Session: "s1", Branch: "main", Class: "waiting", Tail: a, Blocks: 14, Resident: resident, Own: resident},
			{Session: "s1", Branch: "b2", Class: "waiting", Tail: b, Blocks: 1400, Resident: resident},
		},
	}
}

// gone is the same node without the blocks.
func gone(r *tier.BlocksReply) *tier.BlocksReply {
	for i := range r.Blocks {
		r.Blocks[i].Medium = ""
	}
	return r
}

// onDisk is the same node when the end of main lies on disk, and that of b2 nowhere.
func onDisk(r *tier.BlocksReply) *tier.BlocksReply {
	r.Blocks[0].Medium, r.Blocks[0].Why = schemas.MediumDisk, "it left memory and lies on disk"
	r.Blocks[1].Medium = ""
	return r
}

// TestMemory: nodes that hold nothing of a session take no line, no line is wider than
// a terminal, and every key stands there whole, once.
func TestMemory(t *testing.T) {
	a, b := strings.Repeat("a", 64), strings.Repeat("b", 64)
	for name, tt := range map[string]struct {
		reps []*tier.BlocksReply
		want []string
		not  []string
	}{
		"two nodes": {
			[]*tier.BlocksReply{held("n0", a, b, 14), held("n1", a, b, 3), gone(held("n2", a, b, 0))},
			[]string{
				"n0    main    waiting  14 of 14      14       waits for tool pytest, expected in 12s\n",
				"n1    b2      waiting  3 of 1,400    0        running: branch other of session s2 computes",
				"last block of main: " + a + "\n", "last block of b2: " + b + "\n",
			},
			[]string{"n2"},
		},
		"on disk": {
			[]*tier.BlocksReply{onDisk(held("n0", a, b, 0))},
			[]string{"n0    main    waiting  0 of 14       0        it left memory and lies on disk\n", a},
			[]string{"nothing of", b},
		},
		"lru":     {[]*tier.BlocksReply{{Node: "n0", Order: "lru"}}, []string{"in order lru no node knows"}, []string{"nothing of", "NODE"}},
		"none":    {[]*tier.BlocksReply{gone(held("n0", a, b, 0)), gone(held("n1", a, b, 0))}, []string{"2 nodes hold nothing of its branches"}, []string{a, "NODE"}},
		"no node": {nil, nil, []string{"memory", "NODE"}},
	} {
		var out strings.Builder
		p := &page{w: &out}
		memory(p, tt.reps)
		if p.err != nil {
			t.Fatal(p.err)
		}
		for _, w := range tt.want {
			if strings.Count(out.String(), w) != 1 {
				t.Errorf("%s: %q is not there once:\n%s", name, w, out.String())
			}
		}
		for _, w := range tt.not {
			if strings.Contains(out.String(), w) {
				t.Errorf("%s: %q is there:\n%s", name, w, out.String())
			}
		}
		for line := range strings.Lines(out.String()) {
			if n := utf8.RuneCountInString(line); n > 101 {
				t.Errorf("%s: %d columns: %s", name, n, line)
			}
		}
	}
}
