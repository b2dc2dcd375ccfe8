package jsrun

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
)

func noise(n int) []byte {
	r := rand.New(rand.NewPCG(1, uint64(n)))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func TestPayloads(t *testing.T) {
	bubble(t, func(t *testing.T, b *bus) {
		p, err := NewPayloads(t.Context(), b.js, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, body := range [][]byte{[]byte("x"), bytes.Repeat([]byte("weir "), 1<<20), noise(3 << 20)} {
			ref, err := p.Put(t.Context(), body)
			if err != nil {
				t.Fatal(err)
			}
			before := objects(t, b)
			if again, err := p.Put(t.Context(), body); err != nil || again != ref || objects(t, b) != before {
				t.Errorf("the same body was stored again: %v %v", again, err)
			}
			got, err := p.Get(t.Context(), ref)
			if err != nil || !bytes.Equal(got, body) {
				t.Errorf("%d bytes came back, %v", len(got), err)
			}
		}
		if _, err := p.Put(t.Context(), nil); !errors.Is(err, schemas.ErrTooLarge) {
			t.Errorf("empty: %v", err)
		}
		if _, err := p.Put(t.Context(), make([]byte, schemas.MaxBody+1)); !errors.Is(err, schemas.ErrTooLarge) {
			t.Errorf("too large: %v", err)
		}
		if _, err := p.Get(t.Context(), schemas.PayloadRef{Digest: strings.Repeat("0", 64), Bytes: 3}); !errors.Is(err, ErrPayload) {
			t.Errorf("missing: %v", err)
		}
	})
}

func objects(t *testing.T, b *bus) uint64 {
	t.Helper()
	st, err := b.js.Stream(t.Context(), streams.PayloadStream)
	if err != nil {
		t.Fatal(err)
	}
	return st.CachedInfo().State.LastSeq
}

// TestPayloadsRefuseWhatTheyDidNotStore puts other content under a digest.
func TestPayloadsRefuseWhatTheyDidNotStore(t *testing.T) {
	awake(t, func(t *testing.T, b *bus) {
		p, err := NewPayloads(t.Context(), b.js, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		f := func(name string, packed []byte, size int64, want string) {
			t.Helper()
			ref := schemas.PayloadRef{Digest: strings.Repeat("a", 64), Bytes: size}
			if _, err := p.bucket.PutBytes(t.Context(), ref.Digest, packed); err != nil {
				t.Fatal(err)
			}
			_, err := p.Get(t.Context(), ref)
			if !errors.Is(err, ErrPayload) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		f("other content", p.enc.EncodeAll([]byte("hello"), nil), 5, "another digest")
		f("other size", p.enc.EncodeAll([]byte("hello"), nil), 6, "expected 6")
		f("not compressed", []byte("hello hello hello"), 17, "")
		f("a bomb", p.enc.EncodeAll(make([]byte, 64<<20), nil), 1000, "")
		if _, err := p.Get(t.Context(), schemas.PayloadRef{Digest: "x", Bytes: 2 << 20}); !errors.Is(err, schemas.ErrTooLarge) {
			t.Errorf("%v", err)
		}
	})
}

func TestPayloadBucketFull(t *testing.T) {
	dir := t.TempDir()
	virtual(t, func(t *testing.T) {
		b := newBus(t, dir, streams.Topology(streams.Options{MaxBytes: map[string]int64{streams.PayloadStream: 3 << 20}}))
		defer b.close()
		p, err := NewPayloads(t.Context(), b.js, 0)
		if err != nil {
			t.Fatal(err)
		}
		ref, err := p.Put(t.Context(), noise(2<<20))
		if err != nil {
			t.Fatal(err)
		}
		// Whatever the size of the last chunk, and however often it is tried: what
		// is not whole is never taken for stored.
		for _, size := range [...]int{2<<20 + 1, 1<<20 + 300, 1<<20 - 4096, 900 << 10, 2<<20 + 1} {
			body := noise(size)
			for try := range 3 {
				ref, err := p.Put(t.Context(), body)
				if err == nil {
					_, err = p.Get(t.Context(), ref)
				} else if !errors.Is(err, ErrFull) {
					t.Errorf("%d bytes, try %d: %v", size, try, err)
					continue
				} else {
					err = nil
				}
				if err != nil {
					t.Errorf("%d bytes, try %d: taken, and then %v", size, try, err)
				}
			}
		}
		if _, err := p.Get(t.Context(), ref); err != nil {
			t.Errorf("what was stored before is gone: %v", err)
		}
	})
}

// TestPayloadHalf: an object that lost a chunk is not read for long, and is stored
// again by the next who has it.
func TestPayloadHalf(t *testing.T) {
	bubble(t, func(t *testing.T, b *bus) {
		p, err := NewPayloads(t.Context(), b.js, 0)
		if err != nil {
			t.Fatal(err)
		}
		body := noise(1 << 20)
		ref, err := p.Put(t.Context(), body)
		if err != nil {
			t.Fatal(err)
		}
		st, err := b.js.Stream(t.Context(), streams.PayloadStream)
		if err == nil {
			err = st.DeleteMsg(t.Context(), st.CachedInfo().State.FirstSeq+1)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Get(t.Context(), ref); !errors.Is(err, ErrPayload) || !strings.Contains(err.Error(), "missing") {
			t.Errorf("half an object: %v", err)
		}
		if _, err := p.Put(t.Context(), body); err != nil {
			t.Errorf("stored again: %v", err)
		}
		if got, err := p.Get(t.Context(), ref); err != nil || len(got) != len(body) {
			t.Errorf("read again: %d bytes, %v", len(got), err)
		}
	})
}

func TestSnapshots(t *testing.T) {
	bubble(t, func(t *testing.T, b *bus) {
		s, err := NewSnapshots(t.Context(), b.js)
		if err != nil {
			t.Fatal(err)
		}
		if state, _, err := s.Load(t.Context(), "lineage", "0"); state != nil || err != nil {
			t.Errorf("an empty store has %v, %v", state, err)
		}
		seqs := map[string]uint64{streams.Agent: 7}
		for _, state := range [][]byte{[]byte("small"), noise(2 << 20), {}, []byte("small again")} {
			if err := s.Save(t.Context(), "lineage", "0", 1, seqs, state); err != nil {
				t.Fatal(err)
			}
			got, back, err := s.Load(t.Context(), "lineage", "0")
			if err != nil || !bytes.Equal(got, state) || got == nil || !cmp.Equal(back, seqs) {
				t.Errorf("%d bytes came back as %d, %v, %v", len(state), len(got), back, err)
			}
		}
		if state, _, err := s.Load(t.Context(), "lineage", "1"); state != nil || err != nil {
			t.Errorf("another shard has %v, %v", state, err)
		}
		if _, err := b.js.Publish(t.Context(), "snap.lineage.0", []byte("{")); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Load(t.Context(), "lineage", "0"); !errors.Is(err, schemas.ErrMessage) {
			t.Errorf("a broken snapshot: %v", err)
		}
	})
}

// TestLargeSnapshots: a large state must outlive any time without a write, must not
// fill the bucket that callers' bodies need, and one that is cut short must leave
// the last whole one.
func TestLargeSnapshots(t *testing.T) {
	bubble(t, func(t *testing.T, b *bus) {
		s, err := NewSnapshots(t.Context(), b.js)
		if err != nil {
			t.Fatal(err)
		}
		state, seqs := noise(3<<20), map[string]uint64{streams.Agent: 7}
		for i := range 5 {
			state[0] = byte(i)
			if err := s.Save(t.Context(), "lineage", "0", 1, seqs, state); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(3 * 24 * time.Hour)
		check := func(s *Snapshots, when string) {
			t.Helper()
			got, back, err := s.Load(t.Context(), "lineage", "0")
			if err != nil || !bytes.Equal(got, state) || !cmp.Equal(back, seqs) {
				t.Errorf("%s: %d bytes came back as %d, %v, %v", when, len(state), len(got), back, err)
			}
		}
		check(s, "after three days")
		for name, most := range map[string]uint64{streams.PayloadStream: 0, streams.Snap: 3 * uint64(len(state))} {
			st, err := b.js.Stream(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			if n := st.CachedInfo().State.Bytes; n > most {
				t.Errorf("%s holds %d bytes after five snapshots of %d", name, n, len(state))
			}
		}
		again, err := NewSnapshots(t.Context(), b.js) // the next life of the service
		if err != nil {
			t.Fatal(err)
		}
		if back, err := again.Seqs(t.Context(), "lineage", "0"); err != nil || !cmp.Equal(back, seqs) {
			t.Errorf("sequences %v, %v", back, err)
		}
		if back, err := again.Seqs(t.Context(), "lineage", "1"); err != nil || back != nil {
			t.Errorf("sequences of nothing: %v, %v", back, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cut := &cutting{JetStream: again.js, left: 3, cut: cancel}
		again.js = cut
		if err := again.Save(ctx, "lineage", "0", 2, map[string]uint64{streams.Agent: 8}, noise(3<<20+1)); err == nil {
			t.Error("a save that was cut short says that it succeeded")
		}
		check(s, "after a save that was cut short")
		if _, err := b.js.Publish(t.Context(), schemas.SnapSubject("lineage", partShard("0", "a", 1)), []byte("{")); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Load(t.Context(), "lineage", "0"); err == nil {
			t.Error("a state with a broken part was taken")
		}
	})
}

// cutting ends the context of its user after some publishes.
type cutting struct {
	jetstream.JetStream
	left int
	cut  context.CancelFunc
}

func (c *cutting) PublishMsg(ctx context.Context, m *nats.Msg, o ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	if c.left--; c.left < 0 {
		c.cut()
	}
	return c.JetStream.PublishMsg(ctx, m, o...)
}

func TestLease(t *testing.T) {
	bubble(t, func(t *testing.T, b *bus) {
		cfg := func(holder string) LeaseConfig {
			return LeaseConfig{JS: b.js, Cell: "c0", Service: "router", Holder: holder}
		}
		a, err := TryAcquire(t.Context(), cfg("a"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := TryAcquire(t.Context(), cfg("b")); !errors.Is(err, ErrHeld) {
			t.Errorf("a second holder: %v", err)
		}
		time.Sleep(time.Minute)
		if a.Context().Err() != nil {
			t.Fatalf("not renewed: %v", context.Cause(a.Context()))
		}
		a.Release()
		start := time.Now()
		second, err := Acquire(t.Context(), cfg("b"))
		if err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d > time.Second {
			t.Errorf("a released lease was free after %s", d)
		}
		if second.Epoch <= a.Epoch {
			t.Errorf("epoch %d after %d", second.Epoch, a.Epoch)
		}
		other, err := TryAcquire(t.Context(), LeaseConfig{JS: b.js, Cell: "c1", Service: "router", Holder: "a"})
		if err != nil {
			t.Errorf("another cell: %v", err)
		}
		other.Release()
		second.Release()
		if _, err := TryAcquire(t.Context(), LeaseConfig{JS: b.js, Cell: "c0", Service: "x", Holder: "a", TTL: time.Millisecond}); !errors.Is(err, ErrConfig) {
			t.Errorf("a TTL below the server's: %v", err)
		}
	})
}

// TestLeaseNeverHasTwoHolders cuts a holder off and checks that it knows before
// another one can take over.
func TestLeaseNeverHasTwoHolders(t *testing.T) {
	dir := t.TempDir()
	virtual(t, func(t *testing.T) {
		b := newBus(t, dir, streams.Topology(streams.Options{}))
		defer b.close()
		cut := newCutter(t, b)
		first, err := TryAcquire(t.Context(), LeaseConfig{JS: cut.js, Cell: "c0", Service: "router", Holder: "a"})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		var lostAt time.Time
		go func() {
			<-first.Context().Done()
			lostAt = time.Now()
		}()
		cut.off()
		second, err := Acquire(t.Context(), LeaseConfig{JS: b.js, Cell: "c0", Service: "router", Holder: "b"})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if lostAt.IsZero() || !errors.Is(context.Cause(first.Context()), ErrLost) || lostAt.After(time.Now()) {
			t.Errorf("the first holder did not know: %v", context.Cause(first.Context()))
		}
		if second.Epoch <= first.Epoch {
			t.Errorf("epoch %d after %d", second.Epoch, first.Epoch)
		}
		second.Release()
		cut.close()
	})
}
