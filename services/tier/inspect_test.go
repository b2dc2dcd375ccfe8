package tier

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/kvtier/hostmem"
	"github.com/weir-dev/weir/schemas"
)

// chain seals n blocks of a chain of its own.
func chain(t *testing.T, c *hostmem.Client, name byte, n int) (keys []kvtier.Key) {
	t.Helper()
	parent := kvtier.Key{name}
	for i := range n {
		k, err := kvtier.Chain(parent, i, []int32{7}, nil)
		if err != nil {
			t.Fatal(err)
		}
		slots, err := c.Reserve(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Seal(slots[0], kvtier.Block{Key: k, Parent: parent, Index: i}); err != nil {
			t.Fatal(err)
		}
		keys, parent = append(keys, k), k
	}
	return keys
}

// TestInspect: what BRANCH says decides the order, and the node says so of blocks and
// of sessions.
func TestInspect(t *testing.T) {
	nc, c := node(t)
	waits, dead, idle := chain(t, c, 1, 3), chain(t, c, 2, 2), chain(t, c, 3, 1)
	now := time.Now().UnixNano()
	say := func(session string, state schemas.BranchState, keys []kvtier.Key, change func(*schemas.BranchChange)) {
		t.Helper()
		b := &schemas.BranchChange{
			Header: schemas.H(), Tenant: "t", Session: session, Branch: "main", State: state, AtNS: now,
			Tail: schemas.Extent{Key: keys[len(keys)-1].String(), N: len(keys)},
		}
		change(b)
		body, err := schemas.Encode(b)
		if err != nil {
			t.Fatal(err)
		}
		if err := nc.Publish(schemas.BranchSubject("c0", "n7"), body); err != nil {
			t.Fatal(err)
		}
	}
	q := BlocksRequest{Keys: []string{waits[0].String(), waits[2].String(), dead[1].String(), idle[0].String(), strings.Repeat("0", 63) + "1"}}
	ask := func(what string, ok func(*BlocksReply) bool) (rep *BlocksReply) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); ; {
			var err error
			if rep, err = AskBlocks(t.Context(), nc, "n7", q); err != nil {
				t.Fatal(err)
			}
			if ok(rep) {
				return rep
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %+v", what, rep.Blocks)
			}
		}
	}
	// A branch that ends before the daemon has heard of its blocks leaves them idle.
	ask("the blocks are not known", func(r *BlocksReply) bool {
		return !slices.ContainsFunc(r.Blocks[:4], func(b Block) bool { return b.Medium == "" })
	})
	say("w", schemas.BranchToolWaiting, waits, func(b *schemas.BranchChange) { b.Tool, b.ResumeNS = "pytest", now+12e9 })
	say("d", schemas.BranchRunning, dead, func(*schemas.BranchChange) {})
	say("d", schemas.BranchSuperseded, dead, func(b *schemas.BranchChange) { b.Why = "compaction" })
	rep := ask("what was said of branches is not known", func(r *BlocksReply) bool {
		return r.Blocks[1].Class == "waiting" && r.Blocks[2].Class == "dead"
	})
	for i, want := range []struct{ medium, class, why string }{
		{"host", "waiting", "blocks that follow it go first"},
		{"host", "waiting", "branch main of session w waits for tool pytest, expected in 1"},
		{"host", "dead", "branch main of session d was superseded: compaction"},
		{"host", "idle", "no live branch holds it"},
		{"", "", "it was not kept here"},
	} {
		b := rep.Blocks[i]
		if string(b.Medium) != want.medium || b.Class != want.class || !strings.Contains(b.Why, want.why) {
			t.Errorf("block %d: %+v, want %+v", i, b, want)
		}
	}
	if b := rep.Blocks; b[2].Before == nil || *b[2].Before != 0 || *b[3].Before != 1 || *b[1].Before != 2 || b[0].Before != nil {
		t.Errorf("places %v %v %v %v", b[2].Before, b[3].Before, b[1].Before, b[0].Before)
	}
	rep, err := AskBlocks(t.Context(), nc, "n7", BlocksRequest{Tenant: "t", Session: "w"})
	if err != nil || len(rep.Branches) != 1 || len(rep.Blocks) != 1 || rep.Branches[0].Resident != 3 || rep.Blocks[0].Key != waits[2].String() {
		t.Errorf("session %+v, %v", rep, err)
	}
	st, err := AskStats(t.Context(), nc, "n7")
	if err != nil || st.Order != hostmem.OrderWeir || st.Branches != 2 || len(st.Classes) != 4 {
		t.Errorf("stats %+v, %v", st, err)
	}
	for _, bad := range []BlocksRequest{{Keys: []string{"x"}}, {Keys: make([]string, maxBlocks+1)}} {
		if _, err := AskBlocks(t.Context(), nc, "n7", bad); err == nil {
			t.Errorf("%d bad keys were taken", len(bad.Keys))
		}
	}
}
