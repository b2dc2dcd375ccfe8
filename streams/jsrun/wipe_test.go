package jsrun

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
)

// onDisk runs f on a server whose files can be searched.
func onDisk(t *testing.T, f func(t *testing.T, b *bus, holds func(word string) []string)) {
	t.Helper()
	dir := t.TempDir()
	virtual(t, func(t *testing.T) {
		b := newBus(t, dir, streams.Topology(streams.Options{}))
		defer b.close()
		f(t, b, func(word string) []string { return filesWith(t, dir, word) })
	})
}

// filesWith lists the files below a folder that hold a word.
func filesWith(t *testing.T, dir, word string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(word)) {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func streamOf(t *testing.T, b *bus, name string) jetstream.Stream {
	t.Helper()
	s, err := b.js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// put publishes and waits until the server has written the message to its file.
func put(t *testing.T, b *bus, subject string, body []byte) uint64 {
	t.Helper()
	ack, err := b.js.Publish(t.Context(), subject, body)
	if err != nil {
		t.Fatal(err)
	}
	return ack.Sequence
}

func TestWipe(t *testing.T) {
	onDisk(t, func(t *testing.T, b *bus, holds func(string) []string) {
		for i := range 40 {
			put(t, b, schemas.AgentSubject("default", fmt.Sprintf("s%d", i%2), schemas.EventUserWait), fmt.Appendf(nil, "canary-%d of many", i%2))
		}
		late := put(t, b, schemas.AgentSubject("default", "s1", schemas.EventUserWait), []byte("a new life"))
		if len(holds("canary-0")) == 0 || len(holds("canary-1")) == 0 {
			t.Fatal("the words are not in the files")
		}
		s := streamOf(t, b, streams.Agent)
		subject := streams.StoredSubject(schemas.AgentSubject("default", "s1", schemas.EventUserWait))
		if n, err := Wipe(t.Context(), s, subject, late-1); err != nil || n != 20 {
			t.Errorf("%d removed, %v", n, err)
		}
		if found := holds("canary-1"); len(found) > 0 {
			t.Errorf("the word is still in %v", found)
		}
		if len(holds("canary-0")) == 0 || len(holds("a new life")) == 0 {
			t.Error("others' messages are gone")
		}
		if n, err := Wipe(t.Context(), s, subject, late-1); err != nil || n != 0 {
			t.Errorf("the second time %d removed, %v", n, err)
		}
	})
}

// TestRewrite: what was overwritten leaves the disk, what counts stays, and what is
// written meanwhile wins.
func TestRewrite(t *testing.T) {
	onDisk(t, func(t *testing.T, b *bus, holds func(string) []string) {
		for i := range 5 {
			put(t, b, "ckpt.default.s1.t1", fmt.Appendf(nil, "canary %d", i))
			put(t, b, "ckpt.default.s2.t1", fmt.Appendf(nil, "value %d", i))
		}
		s := streamOf(t, b, streams.Ckpt)
		if _, err := Wipe(t.Context(), s, "ckpt.default.s1.*", 100); err != nil {
			t.Fatal(err)
		}
		if len(holds("canary 0")) == 0 {
			t.Fatal("what was overwritten is gone already: this test shows nothing")
		}
		put(t, b, "ckpt.default.s3.t1", []byte("dropped"))
		n, err := Rewrite(t.Context(), b.js, streams.Ckpt, "ckpt.erase.filler.filler", func(m *jetstream.RawStreamMsg) (bool, error) {
			return m.Subject == "ckpt.default.s3.t1", nil
		})
		if err != nil || n != 1 {
			t.Fatalf("%d dropped, %v", n, err)
		}
		for _, word := range []string{"canary", "value 3", "dropped"} {
			if found := holds(word); len(found) > 0 {
				t.Errorf("%q is still in %v", word, found)
			}
		}
		m, err := s.GetLastMsgForSubject(t.Context(), "ckpt.default.s2.t1")
		if err != nil || string(m.Data) != "value 4" {
			t.Errorf("the other checkpoint is %v, %v", m, err)
		}
		info, err := s.Info(t.Context())
		if err != nil || info.State.Msgs != 1 {
			t.Errorf("the stream has %+v, %v", info.State, err)
		}
	})
}

// TestRollWorkQueue: jobs that are done leave the disk although others wait.
func TestRollWorkQueue(t *testing.T) {
	onDisk(t, func(t *testing.T, b *bus, holds func(string) []string) {
		seq := put(t, b, schemas.ReadySubject("c0", "default", "s1", "t1"), []byte("canary"))
		waits := put(t, b, schemas.ReadySubject("c0", "default", "s2", "t1"), []byte("waits"))
		s := streamOf(t, b, streams.Ready)
		if err := s.DeleteMsg(t.Context(), seq); err != nil {
			t.Fatal(err)
		}
		if _, err := Roll(t.Context(), b.js, streams.Ready, schemas.ReadySubject("erase", "filler", "filler", "filler")); err != nil {
			t.Fatal(err)
		}
		if len(holds("canary")) == 0 {
			t.Fatal("the word is gone already: this test shows nothing")
		}
		if err := s.DeleteMsg(t.Context(), waits); err != nil {
			t.Fatal(err)
		}
		if found := holds("canary"); len(found) > 0 {
			t.Errorf("the word is still in %v", found)
		}
	})
}

func TestWipePayload(t *testing.T) {
	onDisk(t, func(t *testing.T, b *bus, holds func(string) []string) {
		p, err := NewPayloads(t.Context(), b.js, 0)
		if err != nil {
			t.Fatal(err)
		}
		body := noise(300 << 10)
		word := string(body[1000:1040])
		ref, err := p.Put(t.Context(), body)
		if err != nil {
			t.Fatal(err)
		}
		if len(holds(word)) == 0 {
			t.Fatal("the object is not in the files")
		}
		id, err := PayloadChunks(t.Context(), b.js, ref.Digest)
		if err != nil || id == "" {
			t.Fatalf("chunks %q, %v", id, err)
		}
		for i, want := range []bool{true, false} {
			if found, err := WipePayload(t.Context(), b.js, ref.Digest, id); err != nil || found != want {
				t.Errorf("time %d: found %v, %v", i, found, err)
			}
		}
		if found := holds(word); len(found) > 0 {
			t.Errorf("the object is still in %v", found)
		}
		if _, err := p.Put(t.Context(), body); err != nil {
			t.Fatal(err)
		}
		if found, err := WipePayload(t.Context(), b.js, ref.Digest, id); err != nil || found {
			t.Errorf("a new object under the same digest: found %v, %v", found, err)
		}
		if _, err := p.Get(t.Context(), ref); err != nil {
			t.Errorf("the new object is gone: %v", err)
		}
	})
}

// TestSnapshotsRewrite: after a smaller or other snapshot nothing of the earlier ones
// is on the disk, whatever their sizes, and every actor's last one is whole.
func TestSnapshotsRewrite(t *testing.T) {
	onDisk(t, func(t *testing.T, b *bus, holds func(string) []string) {
		s, err := NewSnapshots(t.Context(), b.js)
		if err != nil {
			t.Fatal(err)
		}
		save := func(actor string, state []byte) {
			t.Helper()
			if err := s.Save(t.Context(), actor, "0", 1, map[string]uint64{"AGENT": 1}, state); err != nil {
				t.Fatal(err)
			}
		}
		check := func(actor string, want []byte) {
			t.Helper()
			if got, _, err := s.Load(context.Background(), actor, "0"); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: %d bytes of %d, %v", actor, len(got), len(want), err)
			}
		}
		large := func(seed int) []byte { return noise(3<<20 + seed) }
		sizes := map[string][][]byte{
			"large, large":        {large(1), large(2)},
			"large, small":        {large(3), noise(100)},
			"small, small, large": {noise(101), noise(102), large(4)},
			"large, large, large": {large(5), large(6), large(7)},
		}
		other := large(9)
		save("other", other)
		for name, states := range sizes {
			for _, st := range states {
				save("lineage", st)
			}
			if err := s.Rewrite(t.Context()); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			check("lineage", states[len(states)-1])
			check("other", other)
			want := snapMessages(t, s, "lineage") + snapMessages(t, s, "other")
			info, err := streamOf(t, b, streams.Snap).Info(t.Context())
			if err != nil || info.State.Msgs != want {
				t.Errorf("%s: %d messages stand, want %d, %v", name, info.State.Msgs, want, err)
			}
		}
		// The word is searched as the message has it: base64 of what zstd made.
		save("lineage", bytes.Repeat([]byte("x"), 1000))
		for _, st := range [][]byte{noise(5000), []byte("short")} {
			m, err := streamOf(t, b, streams.Snap).GetLastMsgForSubject(t.Context(), schemas.SnapSubject("lineage", "0"))
			if err != nil {
				t.Fatal(err)
			}
			i := bytes.Index(m.Data, []byte(`"state":"`))
			word := string(m.Data[i:min(len(m.Data), i+40)])
			if len(holds(word)) == 0 {
				t.Fatal("the snapshot is not in the files")
			}
			save("lineage", st)
			if err := s.Rewrite(t.Context()); err != nil {
				t.Fatal(err)
			}
			if found := holds(word); len(found) > 0 {
				t.Errorf("an earlier snapshot is still in %v", found)
			}
		}
	})
}

// snapMessages is how many messages an actor's snapshot takes.
func snapMessages(t *testing.T, s *Snapshots, actor string) uint64 {
	t.Helper()
	snap, err := s.get(t.Context(), actor, "0")
	if err != nil || snap == nil {
		t.Fatal(err)
	}
	if snap.Parts == nil {
		return 1
	}
	return uint64(snap.Parts.N) + 1
}
