package disk

import (
	"errors"
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
	return int64(st.Bavail) * st.Bsize, nil
}

// allocate makes the file n bytes long with every block really there, so that writing
// into it does not fail for want of space. A filesystem that cannot do so gives the
// bytes when they are written.
func allocate(f *os.File, n int64) error {
	if err := f.Truncate(n); err != nil {
		return err
	}
	const piece = 64 << 20 // a signal undoes the call that it interrupts
	for off := int64(0); off < n; {
		err := unix.Fallocate(int(f.Fd()), 0, off, min(piece, n-off))
		switch {
		case err == nil:
			off += piece
		case errors.Is(err, unix.EOPNOTSUPP):
			return nil
		case !errors.Is(err, unix.EINTR):
			return err
		}
	}
	return nil
}
