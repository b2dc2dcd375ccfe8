package hostmem

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// CheckRoom tells, without changing anything, whether a daemon of that
// configuration would find room: ErrNoSpace says what is missing, ErrBusy that
// another daemon serves the folder. What an earlier one left there counts as there.
func CheckRoom(cfg Config) error {
	cfg.fill()
	if err := cfg.Validate(); err != nil {
		return err
	}
	if path := filepath.Join(cfg.Dir, daemonLock); exists(path) {
		lock, err := lockFile(path)
		if err != nil {
			return fmt.Errorf("another tier daemon owns %s: %w", cfg.Dir, err)
		}
		_ = lock.Close() // it was only tried
	}
	have := int64(0)
	entries, err := os.ReadDir(cfg.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("hostmem: folder: %w", err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			have += info.Size()
		}
	}
	dir := cfg.Dir
	for !exists(dir) && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
	}
	return checkRoom(dir, cfg.Bytes, cfg.Bytes-have)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Remove deletes what daemons made in a folder, and the folder if nothing else is
// in it: no shared memory is left. It is ErrBusy while a daemon serves the folder;
// a folder that is not there is no error.
func Remove(dir string) error {
	if !exists(dir) {
		return nil
	}
	lock, err := lockFile(filepath.Join(dir, daemonLock))
	if err != nil {
		return fmt.Errorf("hostmem: removing %s: %w", dir, err)
	}
	return errors.Join((&store{dir: dir}).remove(), lock.Close())
}
