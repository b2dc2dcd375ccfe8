package badinput

import (
	"fmt"
	"syscall"
)

// Tmpfs mounts a filesystem in memory of that size, such as 96m, on a folder. It
// needs root.
func Tmpfs(dir, size string, readOnly bool) (release func() error, err error) {
	flags := uintptr(0)
	if readOnly {
		flags = syscall.MS_RDONLY
	}
	if err := syscall.Mount("weir-e2e", dir, "tmpfs", flags, "size="+size); err != nil {
		return nil, fmt.Errorf("mount tmpfs on %s: %w", dir, err)
	}
	return func() error { return syscall.Unmount(dir, syscall.MNT_DETACH) }, nil
}
