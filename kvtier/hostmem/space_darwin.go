package hostmem

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// freeBytes is what the filesystem of dir can still take.
func freeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("hostmem: free space of %s: %w", dir, err)
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}

// allocate makes the file n bytes long with every block reserved, so that
// writing to the mapping cannot fail for want of space later.
func allocate(f *os.File, n int64) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if more := n - st.Size(); more > 0 {
		store := unix.Fstore_t{Flags: unix.F_ALLOCATEALL, Posmode: unix.F_PEOFPOSMODE, Length: more}
		if err := unix.FcntlFstore(f.Fd(), unix.F_PREALLOCATE, &store); err != nil {
			return err
		}
	}
	return f.Truncate(n)
}

// adviseHuge does nothing: macOS has no huge pages for shared files.
func adviseHuge([]byte) {}

// HugePages says whether the memory in dir lies in huge pages, and if not, why.
func HugePages(string) (inUse bool, why string) { return false, "macOS has none for shared files" }
