package route

import (
	"fmt"
	"testing"

	"github.com/weir-dev/weir/schemas"
)

// TestDecodable: two decode workers hold 100,000 tokens each. How many tokens of contexts
// sessions may have follows from the share of them that decodes at once.
func TestDecodable(t *testing.T) {
	g := newRig(t, Config{Admit: true})
	for _, x := range []string{"d0", "d1"} {
		g.beat(schemas.Heartbeat{Executor: x, Node: "n", Role: schemas.RoleDecode, Slots: 64, KVTokens: 100_000, TierBlocks: 1 << 20})
	}
	p := g.r.pools[0]
	if got := p.decodable(g.now); got != 0 {
		t.Errorf("before anything ran %d tokens are the bound", got)
	}
	for i := range 20 {
		g.ready(fmt.Sprintf("u%d", i), 1000, 0, fmt.Sprintf("s%d", i))
	}
	measure := func(want float64) {
		t.Helper()
		g.now += 300 * second
		if got := float64(p.decodable(g.now)); got < 0.97*want || got > 1.03*want {
			n, _ := p.book.Sessions()
			t.Errorf("%.0f tokens, want %.0f; %d sessions, %v", got, want, n, g.placed)
		}
	}
	p.decodable(g.now)
	measure(180_000) // all of them decode
	for i := range 15 {
		g.step(&schemas.Msg{Kind: schemas.KindResult, Result: &schemas.Result{
			Header: schemas.H(), Tenant: "t", Session: "s", Turn: fmt.Sprintf("u%d", i), Status: schemas.StatusOK,
		}})
	}
	measure(4 * 180_000) // a quarter does
}
