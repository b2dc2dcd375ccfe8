package peer

import "testing"

// A transfer between two memories over loopback; e2e/peerbench compares it with a bare
// copy.
func BenchmarkFetch(b *testing.B) {
	const block, n = 1 << 20, 64
	far, near := newNodeOf(b, 80<<20, block), newNodeOf(b, 80<<20, block)
	chain := testChain("bench", n)
	put(b, far.mem, chain...)
	put(b, near.mem, testChain("warm", 2*near.mem.Capacity())...) // touches every page, as a memory in use has
	srv := newServer(b, far.dir)
	c := newClient(b, near.mem)
	keys := keysOf(chain)
	b.SetBytes(n * block)
	for b.Loop() {
		b.StopTimer()
		near.empty(b, chain)
		b.StartTimer()
		if res, err := c.Fetch(b.Context(), srv.Addr(), keys); err != nil || res.Brought != n {
			b.Fatal(res, err)
		}
	}
}
