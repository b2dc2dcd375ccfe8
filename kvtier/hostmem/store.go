package hostmem

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	reserveName  = "reserve.mem"
	daemonLock   = "daemon.lock"
	poolPrefix   = "pool-"
	poolSuffix   = ".kv"
	makingSuffix = ".making"
)

// store is the folder's files and the budget they share. What no pool has taken
// is held by the reserve file, so that the bytes are there when one wants them.
type store struct {
	dir   string
	bytes int64
	cap   int64 // per pool
	used  int64 // by pool files
}

// openStore makes the folder, maps the pool files that are there, and allocates
// the rest of the budget.
func openStore(cfg Config) (*store, []*arena, error) {
	if err := os.MkdirAll(filepath.Join(cfg.Dir, writersFolder), 0o700); err != nil {
		return nil, nil, fmt.Errorf("hostmem: folder: %w", err)
	}
	st := &store{dir: cfg.Dir, bytes: cfg.Bytes, cap: cfg.PoolBytes}
	entries, err := os.ReadDir(cfg.Dir)
	if err != nil {
		return nil, nil, fmt.Errorf("hostmem: folder: %w", err)
	}
	var arenas []*arena
	fail := func(err error) (*store, []*arena, error) {
		for _, a := range arenas {
			_ = a.close()
		}
		return nil, nil, err
	}
	for _, e := range entries {
		path := filepath.Join(cfg.Dir, e.Name())
		switch {
		case strings.HasSuffix(e.Name(), makingSuffix): // a daemon died while it made it
			if err := os.Remove(path); err != nil {
				return fail(fmt.Errorf("hostmem: %w", err))
			}
		case strings.HasPrefix(e.Name(), poolPrefix) && strings.HasSuffix(e.Name(), poolSuffix):
			a, err := openArena(path)
			if err != nil {
				return fail(err)
			}
			arenas = append(arenas, a)
			st.used += a.file
		}
	}
	if st.used > st.bytes {
		return fail(fmt.Errorf("%w: %s holds pools of %d bytes, the budget is %d; raise it or delete the folder",
			ErrBudget, cfg.Dir, st.used, st.bytes))
	}
	if err := st.setReserve(); err != nil {
		return fail(err)
	}
	return st, arenas, nil
}

// setReserve makes the reserve file as long as the budget that no pool has taken.
func (st *store) setReserve() error {
	want := st.bytes - st.used
	f, err := os.OpenFile(filepath.Join(st.dir, reserveName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("hostmem: reserve: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("hostmem: reserve: %w", err)
	}
	if info.Size() >= want {
		return f.Truncate(want)
	}
	if err := checkRoom(st.dir, st.bytes, want-info.Size()); err != nil {
		return err
	}
	return allocateIn(f, st.dir, want)
}

// checkRoom compares what is asked for with what the filesystem has.
func checkRoom(dir string, asked, more int64) error {
	free, err := freeBytes(dir)
	if err != nil {
		return err
	}
	if free < more {
		return fmt.Errorf("%w: %s has %d bytes free, %d of the %d asked for (--kv-mem) are still to be allocated; "+
			"ask for less, or make that filesystem larger", ErrNoSpace, dir, free, more, asked)
	}
	return nil
}

func allocateIn(f *os.File, dir string, n int64) error {
	err := allocate(f, n)
	if err == nil {
		return nil
	}
	_ = f.Truncate(0) // give back what was taken: half an arena helps nobody
	if errors.Is(err, unix.ENOSPC) {
		free, _ := freeBytes(dir)
		return fmt.Errorf("%w: %s filled up while %d bytes were allocated, %d are free", ErrNoSpace, dir, n, free)
	}
	return fmt.Errorf("hostmem: allocate %d bytes in %s: %w", n, dir, err)
}

func poolFile(pool string, block int64) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d", pool, block))
	return poolPrefix + hex.EncodeToString(sum[:8]) + poolSuffix
}

// create makes a pool's file from the free budget: its full share, or at least
// half of it. On an error the budget is as before.
func (st *store) create(pool string, block int64) (*arena, error) {
	free := st.bytes - st.used
	l := fitLayout(block, min(free, st.cap))
	if l.slots == 0 || free < st.cap/2 {
		return nil, fmt.Errorf("%w: pool %q wants blocks of %d bytes, %d bytes of %d are free (%d per pool)",
			ErrBudget, pool, block, free, st.bytes, st.cap)
	}
	path := filepath.Join(st.dir, poolFile(pool, block))
	making := path + makingSuffix
	st.used += l.file
	err := st.make(making, path, l, pool)
	if err != nil {
		_ = os.Remove(making)
		st.used -= l.file
		return nil, errors.Join(err, st.setReserve())
	}
	return openArena(path)
}

// make turns a part of the reserve into a pool file. A pool that takes nearly
// everything takes the reserve file itself, so its pages are not allocated twice.
func (st *store) make(making, path string, l layout, pool string) error {
	if st.bytes-st.used < l.file {
		if err := os.Rename(filepath.Join(st.dir, reserveName), making); err != nil {
			return fmt.Errorf("hostmem: reserve: %w", err)
		}
	} else if err := st.setReserve(); err != nil {
		return err
	}
	f, err := os.OpenFile(making, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("hostmem: make pool: %w", err)
	}
	defer f.Close()
	if err := allocateIn(f, st.dir, l.file); err != nil {
		return err
	}
	head := make([]byte, headerBytes)
	writeHeader(head, l, pool, newNonce())
	if _, err := f.WriteAt(head, 0); err != nil {
		return fmt.Errorf("hostmem: make pool: %w", err)
	}
	if err := st.setReserve(); err != nil {
		return err
	}
	return os.Rename(making, path)
}

// drop deletes a pool's file and takes its bytes back. Clients that still map it
// keep their mapping and are told to attach again.
func (st *store) drop(a *arena) error {
	st.used -= a.file
	err := os.Remove(a.path)
	return errors.Join(err, a.close(), st.setReserve())
}

// remove deletes every file that a daemon makes, and the folder if it is then empty.
func (st *store) remove() error {
	var errs []error
	entries, err := os.ReadDir(st.dir)
	if err != nil {
		return fmt.Errorf("hostmem: %w", err)
	}
	own := []string{reserveName, daemonLock, socketName}
	for _, e := range entries {
		n := e.Name()
		if slices.Contains(own, n) || strings.HasPrefix(n, poolPrefix) &&
			(strings.HasSuffix(n, poolSuffix) || strings.HasSuffix(n, makingSuffix)) {
			errs = append(errs, os.Remove(filepath.Join(st.dir, n)))
		}
	}
	errs = append(errs, os.RemoveAll(filepath.Join(st.dir, writersFolder)))
	_ = os.Remove(st.dir) // stays when somebody else keeps files in it
	return errors.Join(errs...)
}
