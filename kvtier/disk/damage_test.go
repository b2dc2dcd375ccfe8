package disk

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/weir-dev/weir/kvtier"
)

// Complaint 22: a flipped bit is caught, wherever it is, and the block is dropped.
func TestFlippedBitsAreCaught(t *testing.T) {
	const size = 4096
	dir := t.TempDir()
	s := open(t, dir, 1<<20)
	blocks := chain("a", 40)
	mustPut(t, s, testPool, size, blocks...)
	p := s.pool(testPool, size)
	rapid.Check(t, func(t *rapid.T) {
		i := rapid.IntRange(0, len(blocks)-1).Draw(t, "block")
		id, ok := p.slots.Find(blocks[i].Key)
		if !ok {
			t.Fatal("block not there")
		}
		n, at := p.at(id)
		off := headerBytes + at*slotBytes + rapid.Int64Range(0, slotBytes-1).Draw(t, "byte of the header")
		if rapid.Bool().Draw(t, "data") {
			off = p.layout.data + at*p.layout.stride + rapid.Int64Range(0, size-1).Draw(t, "byte of the data")
		}
		b := make([]byte, 1)
		if _, err := p.segs[n].f.ReadAt(b, off); err != nil {
			t.Fatal(err)
		}
		flipped := []byte{b[0] ^ 1<<rapid.IntRange(0, 7).Draw(t, "bit")}
		if _, err := p.segs[n].f.WriteAt(flipped, off); err != nil {
			t.Fatal(err)
		}
		pl := s.Find(testPool, size, []kvtier.Key{blocks[i].Key})[0]
		r := NewReader(dir)
		defer func() { _ = r.Close() }()
		if _, _, err := r.Read(testPool, blocks[i].Key, pl, make([]byte, size)); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("read of a flipped bit at %d: %v, want ErrCorrupt", off, err)
		}
		if gone, err := s.Check(testPool, size, blocks[i].Key); !gone || err != nil {
			t.Fatalf("check: dropped %v, %v", gone, err)
		}
		if s.Has(testPool, size, blocks[i].Key) {
			t.Fatal("a corrupt block is still offered")
		}
		if err := s.CheckIntegrity(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Put(item(testPool, blocks[i], size, 1)); err != nil {
			t.Fatal(err)
		}
	})
	if gone, err := s.Check(testPool, size, blocks[0].Key); gone || err != nil {
		t.Errorf("a good block was dropped: %v, %v", gone, err)
	}
}

// Headers that are damaged while nobody looks are dropped at the next start, and so are
// files that are no segments.
func TestDamagedFilesAtStart(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, 1<<20)
	blocks := chain("a", 10)
	mustPut(t, s, testPool, 4096, blocks...)
	p := s.pool(testPool, 4096)
	path := p.segs[0].path
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	damage := func(off int64, b []byte) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(b, off); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	damage(headerBytes+slotBytes*3+20, []byte("torn"))
	for _, junk := range []string{"seg-0123456789abcdef-000000.kvd", "seg-x.kvd.making"} {
		if err := os.WriteFile(filepath.Join(dir, junk), []byte("junk"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s = open(t, dir, 1<<20)
	if st := s.Stats(); st.Torn != 1 || st.Blocks != 9 {
		t.Errorf("%+v", st)
	}
	check(t, s)
	if n := len(mustList(t, dir)); n != 2 {
		t.Errorf("%v", mustList(t, dir))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	damage(0, []byte("something else"))
	s = open(t, dir, 1<<20)
	if st := s.Stats(); st.Blocks != 0 || st.Used != 0 {
		t.Errorf("%+v", st)
	}
	mustPut(t, s, testPool, 4096, blocks...)
	check(t, s)
}

// An erased chain leaves no byte in any file; what other chains need stays.
func TestErase(t *testing.T) {
	const size = 4096
	dir := t.TempDir()
	s := open(t, dir, 1<<20)
	trunk := chain("a", 4)
	fork := func(word string) []kvtier.Block {
		out, parent := []kvtier.Block{}, trunk[3].Key
		for i := 4; i < 8; i++ {
			k := kvtier.Key(sha256.Sum256(append([]byte(word), parent[:]...)))
			out = append(out, kvtier.Block{Key: k, Parent: parent, Index: i})
			parent = k
		}
		return out
	}
	mine, other := fork("mine"), fork("other")
	mustPut(t, s, testPool, size, trunk...)
	mustPut(t, s, testPool, size, other...)
	mustPut(t, s, testPool, size, mine[0], mine[2], mine[3]) // with a gap
	tail := mine[2]
	line := []kvtier.Key{mine[2].Key, mine[1].Key, mine[0].Key, trunk[3].Key, trunk[2].Key}
	removed, err := s.Erase([]kvtier.Key{tail.Key}, [][]kvtier.Key{line}, nil)
	if err != nil || len(removed) != 3 {
		t.Fatalf("removed %v, %v", removed, err)
	}
	for _, b := range mine {
		if findBytes(t, dir, content(testPool, b.Key, size)[:64]) {
			t.Errorf("bytes of block %d are still in a file", b.Index)
		}
	}
	for _, b := range append(trunk, other...) {
		if got := get(t, s, testPool, size, b); !bytes.Equal(got, content(testPool, b.Key, size)) {
			t.Errorf("block %d of another chain is gone", b.Index)
		}
	}
	needed := func(k kvtier.Key) bool { return k == other[1].Key }
	if removed, err = s.Erase([]kvtier.Key{other[3].Key}, [][]kvtier.Key{{other[3].Key, other[2].Key, other[1].Key, other[0].Key}}, needed); err != nil || len(removed) != 2 {
		t.Errorf("with a needed block: %v, %v", removed, err)
	}
	check(t, s)
}

func findBytes(t *testing.T, dir string, want []byte) bool {
	t.Helper()
	for _, n := range mustList(t, dir) {
		b, err := os.ReadFile(filepath.Join(dir, n))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(b, want) {
			return true
		}
	}
	return false
}

// Readers in other goroutines get a block's own bytes or a miss while it is replaced.
func TestReadersGetOwnBytesOrNothing(t *testing.T) {
	const size = 16 << 10
	dir := t.TempDir()
	s := open(t, dir, 512<<10)
	blocks := chain("a", 64)
	stop := make(chan struct{})
	var readers, writers sync.WaitGroup
	for g := range 8 {
		readers.Go(func() {
			r, dst := NewReader(dir), make([]byte, size)
			defer func() { _ = r.Close() }()
			for i := g; ; i = (i*7 + 3) % len(blocks) {
				select {
				case <-stop:
					return
				default:
				}
				pl := s.Find(testPool, size, []kvtier.Key{blocks[i].Key})[0]
				if pl.Segment == "" {
					continue
				}
				_, _, err := r.Read(testPool, blocks[i].Key, pl, dst)
				if err == nil && !bytes.Equal(dst, content(testPool, blocks[i].Key, size)) {
					t.Errorf("block %d has other bytes", i)
					return
				}
				if err != nil && !errors.Is(err, ErrNotThere) {
					t.Errorf("block %d: %v", i, err)
					return
				}
			}
		})
	}
	writers.Go(func() {
		for i := range 2000 {
			if _, err := s.Put(item(testPool, blocks[i*13%len(blocks)], size, int64(i))); err != nil {
				t.Errorf("put %d: %v", i, err)
				return
			}
		}
	})
	writers.Wait()
	close(stop)
	readers.Wait()
	check(t, s)
}
