package badinput

import (
	"fmt"
	"syscall"
)

// Tmpfs mounts a filesystem in memory on a folder. It needs root.
func Tmpfs(dir string, flags uintptr, data string) (release func() error, err error) {
	if err := syscall.Mount("weir-e2e", dir, "tmpfs", flags, data); err != nil {
		return nil, fmt.Errorf("mount tmpfs on %s: %w", dir, err)
	}
	return func() error { return syscall.Unmount(dir, syscall.MNT_DETACH) }, nil
}
