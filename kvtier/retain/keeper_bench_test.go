package retain

import (
	"fmt"
	"testing"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/schemas"
)

// BenchmarkKeeper measures one tick, which ranks 64 branches, and one message, with
// 5,000 branches of 20 blocks.
func BenchmarkKeeper(b *testing.B) {
	const branches, blocks = 5000, 20
	s := kvtier.NewSlots(branches * blocks)
	k := NewKeeper(Config{})
	k.Add(0, s, 64)
	now := 1000 * second
	msgs := make([]*schemas.BranchChange, branches)
	for i := range branches {
		parent := kvtier.Key{1}
		name := fmt.Sprint("s", i)
		for j := range blocks {
			key, err := kvtier.Chain(parent, j, []int32{int32(i)}, nil)
			if err != nil {
				b.Fatal(err)
			}
			r := s.Reserve(1, 1, nil)
			if _, _, err := s.Seal(1, r[0], kvtier.Block{Key: key, Parent: parent, Index: j}, now); err != nil {
				b.Fatal(err)
			}
			parent = key
		}
		msgs[i] = change(name, schemas.BranchToolWaiting, parent, blocks, now)
		k.Branch(now, msgs[i])
	}
	b.Run("tick", func(b *testing.B) {
		for b.Loop() {
			now = max(now, k.Next())
			k.Tick(now)
		}
	})
	b.Run("message", func(b *testing.B) {
		i := 0
		for b.Loop() {
			c := *msgs[i%branches]
			c.AtNS, c.State = now+int64(i), schemas.BranchRunning
			if i%2 == 1 {
				c.State = schemas.BranchToolWaiting
			}
			k.Branch(c.AtNS, &c)
			i++
		}
	})
}
