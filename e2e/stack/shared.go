package stack

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// Shared makes a folder for what is made once for all test processes of this user,
// such as models and installed packages, and returns its path.
func Shared(name string) (dir string, err error) {
	dir = filepath.Join(os.TempDir(), "weir-e2e-"+strconv.Itoa(os.Getuid()), name)
	return dir, os.MkdirAll(dir, 0o700)
}

// Lock waits until no other process has the file locked, and keeps it until unlock,
// or until this process ends. The file is made and stays.
func Lock(file string) (unlock func() error, err error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f.Close, nil
}
