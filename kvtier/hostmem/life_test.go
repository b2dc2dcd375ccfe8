package hostmem

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestLifeGrows: each daemon of a folder has a higher number than the one before, also
// when the clock is set back, and whatever its lock file holds.
func TestLifeGrows(t *testing.T) {
	dir := shortDir(t)
	lock := filepath.Join(dir, daemonLock)
	start := func() uint64 {
		d := startDaemon(t, dir, 1<<20)
		_ = d.Close()
		return d.Life()
	}
	number := func(n uint64) []byte { return binary.LittleEndian.AppendUint64(nil, n) }
	now := uint64(time.Now().UnixMilli())
	first := start()
	second := start()
	if first < now || second <= first {
		t.Errorf("lives %d and %d, the clock said %d", first, second, now)
	}
	ahead := now + 3_600_000 // the clock is set back by an hour
	for _, tc := range []struct {
		name string
		file []byte
		want uint64 // 0: the clock's
	}{
		{"ahead", number(ahead), ahead + 1},
		{"still ahead", nil, ahead + 2},
		{"torn", []byte{1, 2, 3}, 0},
		{"empty", []byte{}, 0},
		{"damaged", number(1<<64 - 1), 0},
	} {
		if tc.file != nil {
			if err := os.WriteFile(lock, tc.file, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got := start()
		if tc.want > 0 && got != tc.want || tc.want == 0 && (got < now || got >= ahead) {
			t.Errorf("%s: life %d, want %d", tc.name, got, tc.want)
		}
	}
}
