package jsrun

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
)

func objectBytes(t *testing.T, b *bus) uint64 {
	t.Helper()
	st, err := b.js.Stream(t.Context(), streams.PayloadStream)
	if err != nil {
		t.Fatal(err)
	}
	return st.CachedInfo().State.Bytes
}

// TestPayloadOfOthers: an object that any NATS client put under its digest is read.
func TestPayloadOfOthers(t *testing.T) {
	awake(t, func(t *testing.T, b *bus) {
		p, err := NewPayloads(t.Context(), b.js, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, body := range [][]byte{[]byte("plain text, plain text, plain text"), noise(300 << 10)} {
			sum := sha256.Sum256(body)
			ref := schemas.PayloadRef{Digest: hex.EncodeToString(sum[:]), Bytes: int64(len(body))}
			if _, err := p.bucket.PutBytes(t.Context(), ref.Digest, body); err != nil {
				t.Fatal(err)
			}
			if got, err := p.Get(t.Context(), ref); err != nil || !bytes.Equal(got, body) {
				t.Errorf("%d bytes came back, %v", len(got), err)
			}
			if found, err := p.Keep(t.Context(), ref.Digest); err != nil || !found {
				t.Errorf("Keep says %v, %v", found, err)
			}
		}
	})
}

// TestPayloadPacking: what compression does not help is stored as it is, also when
// it looks compressed.
func TestPayloadPacking(t *testing.T) {
	bubble(t, func(t *testing.T, b *bus) {
		p, err := NewPayloads(t.Context(), b.js, 0)
		if err != nil {
			t.Fatal(err)
		}
		frame := p.enc.EncodeAll(noise(500<<10), nil)
		for name, f := range map[string]struct {
			body  []byte
			least uint64
			most  uint64
		}{
			"noise":        {noise(1 << 20), 1 << 20, 1<<20 + 8<<10},
			"text":         {bytes.Repeat([]byte("weir "), 100<<10), 1, 64 << 10},
			"a zstd frame": {frame, 500 << 10, 520 << 10},
		} {
			before := objectBytes(t, b)
			ref, err := p.Put(t.Context(), f.body)
			if err != nil {
				t.Fatal(err)
			}
			if n := objectBytes(t, b) - before; n < f.least || n > f.most {
				t.Errorf("%s: %d bytes are stored as %d, want %d to %d", name, len(f.body), n, f.least, f.most)
			}
			if got, err := p.Get(t.Context(), ref); err != nil || !bytes.Equal(got, f.body) {
				t.Errorf("%s: %d bytes came back, %v", name, len(got), err)
			}
		}
	})
}

// TestPayloadLasts: an object that is named again in the second half of its life
// lives on, whoever names it, and is stored once only in the first half.
func TestPayloadLasts(t *testing.T) {
	bubble(t, func(t *testing.T, b *bus) {
		p, err := NewPayloads(t.Context(), b.js, 0)
		if err != nil {
			t.Fatal(err)
		}
		age := streams.Topology(streams.Options{})
		s, _ := streams.Find(age, streams.PayloadStream)
		ref, err := p.Put(t.Context(), noise(1000))
		if err != nil {
			t.Fatal(err)
		}
		kept, err := p.Put(t.Context(), noise(2000))
		if err != nil {
			t.Fatal(err)
		}
		for range 6 {
			time.Sleep(s.MaxAge / 3) // virtual
			if _, err := p.Put(t.Context(), noise(1000)); err != nil {
				t.Fatal(err)
			}
			if found, err := p.Keep(t.Context(), kept.Digest); err != nil || !found {
				t.Fatalf("Keep says %v, %v", found, err)
			}
			for _, r := range []schemas.PayloadRef{ref, kept} {
				if _, err := p.Get(t.Context(), r); err != nil {
					t.Fatal(err)
				}
			}
		}
		if n := objects(t, b); n > 2*2*6 {
			t.Errorf("%d messages were stored in two lives of two objects", n)
		}
		time.Sleep(s.MaxAge + time.Minute)
		if found, err := p.Keep(t.Context(), kept.Digest); err != nil || found {
			t.Errorf("Keep of what aged out says %v, %v", found, err)
		}
	})
}

// TestPayloadRemovedMeanwhile: what this process stored and another one removed is
// stored again.
func TestPayloadRemovedMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T, b *bus) {
		p, err := NewPayloads(t.Context(), b.js, 0)
		if err != nil {
			t.Fatal(err)
		}
		ref, err := p.Put(t.Context(), noise(1000))
		if err != nil {
			t.Fatal(err)
		}
		st, err := b.js.Stream(t.Context(), streams.PayloadStream)
		if err != nil {
			t.Fatal(err)
		}
		if err := st.Purge(t.Context(), jetstream.WithPurgeSubject("$O."+streams.PayloadBucket+".>")); err != nil {
			t.Fatal(err)
		}
		if found, err := p.Keep(t.Context(), ref.Digest); err != nil || found {
			t.Errorf("Keep says %v, %v", found, err)
		}
		if _, err := p.Put(t.Context(), noise(1000)); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Get(t.Context(), ref); err != nil {
			t.Error(err)
		}
	})
}

func TestKnownObjectsBound(t *testing.T) {
	var k knownObjects
	for i := range 3 * maxKnownObjects {
		k.add(string(rune(i))+"x", "id")
	}
	if len(k.ids) != maxKnownObjects || len(k.order) != maxKnownObjects {
		t.Errorf("%d objects are remembered", len(k.ids))
	}
}
