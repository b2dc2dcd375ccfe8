package peer

import (
	"io"
	"net"
	"testing"
	"time"
)

// A transfer against a bare copy of the same bytes over as many loopback connections,
// read into memory that is there. vs-tcp is the share of the bare copy's speed.
func BenchmarkFetch(b *testing.B) {
	const blockBytes, n = 1 << 20, 64
	far, near := newNodeOf(b, 160<<20, blockBytes), newNodeOf(b, 160<<20, blockBytes)
	chain := testChain("bench", n)
	put(b, far.mem, chain...)
	srv := newServer(b, far.dir)
	c := newClient(b, near.mem)
	put(b, near.mem, testChain("warm", 2*near.mem.Capacity())...) // touches every page, as a memory in use has
	keys := keysOf(chain)
	src, dst := make([]byte, n*blockBytes), make([]byte, n*blockBytes)
	for i := range src {
		src[i], dst[i] = byte(i), 1
	}
	var bare, ours time.Duration
	for b.Loop() {
		bare += copyTCP(b, dst, src, blockBytes, c.opt.Streams)
		if _, err := near.d.Clear(); err != nil {
			b.Fatal(err)
		}
		begin := time.Now()
		res, err := c.Fetch(b.Context(), srv.Addr(), keys)
		ours += time.Since(begin)
		if err != nil || res.Brought != n {
			b.Fatal(res, err)
		}
	}
	b.ReportMetric(bare.Seconds()/ours.Seconds(), "vs-tcp")
	b.ReportMetric(float64(b.N)*n*blockBytes/ours.Seconds()/1e9, "GB/s")
}

func copyTCP(tb testing.TB, dst, src []byte, piece, streams int) time.Duration {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer ln.Close()
	part := len(src) / streams
	done := make(chan error, 2*streams)
	var begin time.Time
	out, in := make([]net.Conn, streams), make([]net.Conn, streams)
	for i := range streams {
		if out[i], err = net.Dial("tcp", ln.Addr().String()); err != nil {
			tb.Fatal(err)
		}
		defer out[i].Close()
		if in[i], err = ln.Accept(); err != nil {
			tb.Fatal(err)
		}
		defer in[i].Close()
	}
	begin = time.Now()
	for i := range streams {
		from, to := src[i*part:(i+1)*part], dst[i*part:(i+1)*part]
		go func() {
			for at := 0; at < part; at += piece {
				if _, err := out[i].Write(from[at : at+piece]); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
		go func() {
			_, err := io.ReadFull(in[i], to)
			done <- err
		}()
	}
	for range 2 * streams {
		if err := <-done; err != nil {
			tb.Fatal(err)
		}
	}
	return time.Since(begin)
}
