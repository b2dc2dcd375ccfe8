package serve

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDiskOptions(t *testing.T) {
	for _, tc := range []struct {
		name  string
		dir   string
		bytes int64
		want  string // in the error; empty: none
	}{
		{"off", "", DefaultDiskBytes, ""},
		{"on", "/spill", 1 << 20, ""},
		{"too small", "/spill", 1<<20 - 1, "at least 1MiB"},
		{"bytes without a folder", "", 1 << 20, "without --kv-disk"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := Defaults()
			o.KVDisk, o.KVDiskBytes = tc.dir, tc.bytes
			err := o.Validate()
			if (err == nil) != (tc.want == "") || err != nil && (!errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
	o := Defaults()
	o.KVDisk, o.Node = "/spill", "n3"
	if got := o.DiskDir(); got != filepath.Join("/spill", "n3") {
		t.Errorf("folder of node n3 is %s", got)
	}
}

// The room of a disk is that of the nearest folder that exists, and what earlier runs left
// counts as there.
func TestCheckDisk(t *testing.T) {
	o := Defaults()
	o.KVDisk, o.KVDiskBytes = filepath.Join(t.TempDir(), "a", "b"), 1<<20
	if detail, err := o.CheckDisk(); err != nil || !strings.Contains(detail, "asks for 1 MiB, of which 0 are there") {
		t.Errorf("%s, %v", detail, err)
	}
	if err := os.MkdirAll(o.DiskDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(o.DiskDir(), "seg-x.kvd"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if detail, err := o.CheckDisk(); err != nil || !strings.Contains(detail, "of which 1 are there") {
		t.Errorf("%s, %v", detail, err)
	}
	o.KVDiskBytes = 1 << 60
	if _, err := o.CheckDisk(); err == nil || !strings.Contains(err.Error(), "--kv-disk") {
		t.Errorf("an exabyte: %v", err)
	}
}
