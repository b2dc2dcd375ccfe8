package hostmem

import (
	"fmt"
	"testing"
	"time"

	"github.com/weir-dev/weir/kvtier"
)

// Match over a pool of many blocks: the figure is blocks per second on one core.
func BenchmarkMatch(b *testing.B) {
	for _, n := range []int64{10_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			a := memArena(n)
			keys := make([]kvtier.Key, n)
			for i := range keys {
				keys[i] = indexKey(i)
				a.testSeal(uint32(i), 1, keys[i])
				if _, ok := a.insert(&keys[i], uint32(i)); !ok {
					b.Fatal("not inserted")
				}
			}
			c := &Client{arena: a}
			const chain = 1000
			at, found := 0, 0
			for b.Loop() {
				found += c.Match(keys[at : at+chain])
				at = (at + 7*chain) % (int(n) - chain)
			}
			if found == 0 {
				b.Fatal("nothing found")
			}
			b.ReportMetric(float64(found)/b.Elapsed().Seconds(), "blocks/s")
		})
	}
}

const benchBlock = 2 << 20

func benchClient(b *testing.B) *Client {
	dir := shortDir(b)
	startDaemon(b, dir, 256<<20)
	return attach(b, dir, "w", func(o *Options) { o.Pool, o.BlockBytes = "bench", benchBlock })
}

// warm touches every page once, as a tier in use has done.
func warm(c *Client) {
	for i := range uint32(c.slots) {
		clear(c.bytes(i))
	}
}

// source is more data than the processor caches hold.
func source() [][]byte {
	out := make([][]byte, 48)
	for i := range out {
		out[i] = make([]byte, benchBlock)
		for j := 0; j < benchBlock; j += 64 {
			out[i][j] = byte(i + j)
		}
	}
	return out
}

// Reserve, copy in, seal with checksum, against a copy of the same bytes into
// ordinary memory. vs-memcpy is the share of memcpy's speed.
func BenchmarkPut(b *testing.B) {
	c := benchClient(b)
	warm(c)
	src, dst := source(), source()
	var plain time.Duration
	i := 0
	for b.Loop() {
		begin := time.Now()
		copy(dst[i%len(dst)], src[(i+5)%len(src)])
		plain += time.Since(begin)
		slots, err := c.Reserve(b.Context(), 1)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := c.SealFrom(slots[0], kvtier.Block{Key: indexKey(i)}, src[i%len(src)]); err != nil {
			b.Fatal(err)
		}
		i++
	}
	b.ReportMetric(plain.Seconds()/(b.Elapsed()-plain).Seconds(), "vs-memcpy")
}

// Lease, copy out, check the generation, release; and the same with the checksum.
func BenchmarkGet(b *testing.B) {
	for _, verify := range []bool{false, true} {
		b.Run(map[bool]string{false: "generation", true: "checksum"}[verify], func(b *testing.B) {
			c := benchClient(b)
			warm(c)
			src, dst := source(), source()
			n := int(c.slots) - 20
			for i := range n {
				slots, err := c.Reserve(b.Context(), 1)
				if err != nil {
					b.Fatal(err)
				}
				copy(slots[0].Data(), src[i%len(src)])
				if _, err := c.Seal(slots[0], kvtier.Block{Key: indexKey(i)}); err != nil {
					b.Fatal(err)
				}
			}
			var plain time.Duration
			i := 0
			for b.Loop() {
				begin := time.Now()
				copy(dst[i%len(dst)], src[(i+5)%len(src)])
				plain += time.Since(begin)
				refs := c.Lease([]kvtier.Key{indexKey(i % n)})
				out := dst[(i+9)%len(dst)]
				ok := len(refs) == 1
				if verify {
					ok = ok && c.Copy(refs[0], out)
				} else {
					copy(out, c.Data(refs[0]))
					ok = ok && c.Valid(refs[0])
				}
				if !ok {
					b.Fatal("block lost")
				}
				c.Release(refs)
				i++
			}
			b.ReportMetric(plain.Seconds()/(b.Elapsed()-plain).Seconds(), "vs-memcpy")
		})
	}
}

// A reservation that must evict, with the round trip to the daemon, and one that
// the client's own reserve serves.
func BenchmarkReserve(b *testing.B) {
	for _, cache := range []int{-1, 32} {
		b.Run(fmt.Sprint("cache", max(cache, 0)), func(b *testing.B) {
			dir := shortDir(b)
			startDaemon(b, dir, 64<<20)
			c := attach(b, dir, "w", func(o *Options) { o.Cache = cache })
			i := 0
			for b.Loop() {
				slots, err := c.Reserve(b.Context(), 1)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := c.Seal(slots[0], kvtier.Block{Key: indexKey(i)}); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
	}
}
