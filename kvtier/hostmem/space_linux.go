package hostmem

import (
	"errors"
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
	return int64(st.Bavail) * st.Bsize, nil
}

// allocate makes the file n bytes long with every page really there, so that
// writing to the mapping cannot fail with SIGBUS later.
func allocate(f *os.File, n int64) error {
	if err := f.Truncate(n); err != nil {
		return err
	}
	// In pieces: a signal (the Go runtime sends them) makes the kernel undo the
	// call that it interrupts.
	const piece = 64 << 20
	for off := int64(0); off < n; {
		err := unix.Fallocate(int(f.Fd()), 0, off, min(piece, n-off))
		switch {
		case err == nil:
			off += piece
		case !errors.Is(err, unix.EINTR):
			return err
		}
	}
	return nil
}
