package hostmem

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestCheckRoom(t *testing.T) {
	dir := t.TempDir()
	if err := CheckRoom(Config{Dir: filepath.Join(dir, "a", "b"), Bytes: 8 << 20}); err != nil {
		t.Errorf("8 MiB: %v", err)
	}
	if err := CheckRoom(Config{Dir: filepath.Join(dir, "a"), Bytes: 1 << 50}); !errors.Is(err, ErrNoSpace) {
		t.Errorf("1 PiB: %v", err)
	}
	if err := CheckRoom(Config{Dir: dir}); err == nil {
		t.Error("a budget of nothing passes")
	}
	if _, err := os.Stat(filepath.Join(dir, "a")); err == nil {
		t.Error("a folder was made")
	}
}

// TestRemove: only a daemon's own files go, and not while one serves them.
func TestRemove(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "arena")
	if err := Remove(dir); err != nil {
		t.Errorf("a folder that is not there: %v", err)
	}
	d, err := NewDaemon(Config{Dir: dir, Bytes: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if err := Remove(dir); !errors.Is(err, ErrBusy) {
		t.Errorf("while it is served: %v", err)
	}
	if err := CheckRoom(Config{Dir: dir, Bytes: 8 << 20}); !errors.Is(err, ErrBusy) {
		t.Errorf("a second daemon: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	mine := filepath.Join(dir, "thesis.txt")
	if err := os.WriteFile(mine, []byte("years of work"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Remove(dir); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left are %v, %v", entries, err)
	}
	if err := os.Remove(mine); err != nil {
		t.Fatal(err)
	}
	if err := Remove(dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the folder is still there")
	}
}
