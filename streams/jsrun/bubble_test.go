package jsrun

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-dev/weir/streams"
)

// virtual runs f in a synctest bubble of its own. nats.go keeps the timers of Flush and
// NextMsg, and of the Flush in a reconnect, in a pool of the process. A timer belongs to
// the bubble that made it, and the runtime ends a process in which another bubble, or
// code outside of all, waits for it. Two collections empty a pool.
func virtual(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	emptyPools()
	defer emptyPools()
	synctest.Test(t, f)
}

func emptyPools() {
	runtime.GC()
	runtime.GC()
}

// bubble runs f in virtual time with a JetStream server of its own and the
// streams of weir.
func bubble(t *testing.T, f func(t *testing.T, b *bus)) {
	t.Helper()
	dir := t.TempDir()
	virtual(t, func(t *testing.T) {
		b := newBus(t, dir, streams.Topology(streams.Options{}))
		defer b.close()
		f(t, b)
	})
}

// awake runs f in real time with such a server. nats.go's ObjectStore.Put leaves a
// goroutine behind for good when it ends before that goroutine has begun (it then
// waits on a nil channel), which a bubble reports as a deadlock.
func awake(t *testing.T, f func(t *testing.T, b *bus)) {
	t.Helper()
	b := newBus(t, t.TempDir(), streams.Topology(streams.Options{}))
	defer b.close()
	f(t, b)
}

// TestBubblesShareNoTimer flushes in one bubble after the other: the process ends when
// the second one finds the first one's timer.
func TestBubblesShareNoTimer(t *testing.T) {
	for range 3 {
		bubble(t, func(t *testing.T, b *bus) {
			for range 4 * runtime.GOMAXPROCS(0) {
				if err := b.nc.FlushTimeout(time.Minute); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
