package serve

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/weir-dev/weir/kvtier/disk"
)

// DefaultDiskBytes is how much --kv-disk takes when nothing else is said.
const DefaultDiskBytes = 8 << 30

// leastDisk is what the disk below the KV memory must have at least.
const leastDisk = 1 << 20

// DiskDir is the folder of this node below --kv-disk, empty without one: two nodes that
// are given the same folder do not share blocks there.
func (o *Options) DiskDir() string {
	if o.KVDisk == "" {
		return ""
	}
	return filepath.Join(o.KVDisk, o.Node)
}

func (o *Options) checkDisk(bad func(string, ...any)) {
	switch {
	case o.KVDisk == "" && o.KVDiskBytes != DefaultDiskBytes:
		bad("--kv-disk-bytes is given without --kv-disk, the folder that it bounds")
	case o.KVDisk != "" && o.KVDiskBytes < leastDisk:
		bad("--kv-disk-bytes is %d bytes, at least 1MiB is needed", o.KVDiskBytes)
	}
}

// CheckDisk says why the folder of --kv-disk has too little room, and how much there is.
// What earlier runs left in it counts as there.
func (o *Options) CheckDisk() (detail string, err error) {
	dir, have := o.KVDisk, int64(0)
	if entries, rerr := os.ReadDir(o.DiskDir()); rerr == nil { // one that is not there has nothing
		for _, e := range entries {
			if info, ierr := e.Info(); ierr == nil && info.Mode().IsRegular() {
				have += info.Size()
			}
		}
	}
	for _, serr := os.Stat(dir); serr != nil && dir != filepath.Dir(dir); _, serr = os.Stat(dir) {
		dir = filepath.Dir(dir)
	}
	free, err := disk.Free(dir)
	if err != nil {
		return "", err
	}
	detail = fmt.Sprintf("%s has %d MiB free, --kv-disk-bytes asks for %d MiB, of which %d are there", dir, free>>20, o.KVDiskBytes>>20, have>>20)
	if free+have < o.KVDiskBytes {
		return detail, fmt.Errorf("%s; ask for less, or name a folder on a larger disk with --kv-disk", detail)
	}
	return detail, nil
}
