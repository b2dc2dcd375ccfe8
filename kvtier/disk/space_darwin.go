package disk

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Free is what the filesystem of dir can still take, in bytes.
func Free(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("disk: free space of %s: %w", dir, err)
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}

// allocate makes the file n bytes long with every block reserved, so that writing into
// it does not fail for want of space.
func allocate(f *os.File, n int64) error {
	store := unix.Fstore_t{Flags: unix.F_ALLOCATEALL, Posmode: unix.F_PEOFPOSMODE, Length: n}
	if err := unix.FcntlFstore(f.Fd(), unix.F_PREALLOCATE, &store); err != nil {
		return err
	}
	return f.Truncate(n)
}
