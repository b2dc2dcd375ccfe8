package hostmem

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// The writer table in a pool file says whose numbers the slots and lease bits
// name. Only the daemon writes it. Entry, 128 bytes:
//
//	 0  used    1 while the number is taken, written last
//	 4  length  of the id
//	 8  nonce   16 bytes, one per life of a client
//	24  id      up to 64 bytes
const (
	maxWriterID   = 64
	writersFolder = "writers"
)

type nonce [16]byte

func newNonce() (n nonce) {
	_, _ = rand.Read(n[:]) // never fails: crypto/rand aborts the program instead
	return n
}

func (n nonce) String() string { return hex.EncodeToString(n[:]) }

func (a *arena) writerUsed(no int) *atomic.Uint32 {
	return ptr[atomic.Uint32](a.mem, headerBytes+int64(no)*writerBytes)
}

// saveWriter enters a client under a number.
func (a *arena) saveWriter(no int, id string, n nonce) {
	e := a.mem[headerBytes+no*writerBytes:][:writerBytes]
	a.writerUsed(no).Store(0)
	ptr[atomic.Uint32](e, 4).Store(uint32(len(id)))
	copy(e[8:24], n[:])
	copy(e[24:24+maxWriterID], id)
	a.writerUsed(no).Store(1)
}

// loadWriter reads an entry; ok is false for one that is free or damaged.
func (a *arena) loadWriter(no int) (id string, n nonce, ok bool) {
	e := a.mem[headerBytes+no*writerBytes:][:writerBytes]
	length := ptr[atomic.Uint32](e, 4).Load()
	if a.writerUsed(no).Load() != 1 || length == 0 || length > maxWriterID {
		return "", n, false
	}
	id = string(e[24 : 24+length])
	return id, nonce(e[8:24]), checkWriterID(id) == nil
}

// checkWriterID accepts [A-Za-z0-9_-]{1,64}: the id is a file name.
func checkWriterID(id string) error {
	if id == "" || len(id) > maxWriterID {
		return fmt.Errorf("%w: writer id of %d characters, want 1 to %d", ErrName, len(id), maxWriterID)
	}
	for _, c := range []byte(id) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return fmt.Errorf("%w: writer id %q: only A-Z a-z 0-9 _ - are allowed", ErrName, id)
		}
	}
	return nil
}

// lockFile takes an exclusive kernel lock on path without waiting. The kernel
// frees it when the last descriptor is closed, however the process ends, and
// sees it across containers that share the folder. ErrBusy when it is held.
func lockFile(path string) (*os.File, error) {
	for range 16 { // again only when the file was unlinked between open and lock
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, fmt.Errorf("hostmem: lock file: %w", err)
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			_ = f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, fmt.Errorf("%w: %s", ErrBusy, path)
			}
			return nil, fmt.Errorf("hostmem: lock %s: %w", path, err)
		}
		if sameFile(f, path) {
			return f, nil
		}
		_ = f.Close()
	}
	return nil, fmt.Errorf("%w: %s keeps being replaced", ErrBusy, path)
}

func sameFile(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Stat(path)
	return err == nil && os.SameFile(a, b)
}

// ownsLock tells whether the client of this nonce is the one that holds the
// writer's lock: it wrote the nonce into the file after it had the lock.
func ownsLock(dir, id string, n nonce) bool {
	path := filepath.Join(dir, writersFolder, id)
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var got nonce
	if _, err := io.ReadFull(f, got[:]); err != nil || got != n {
		return false
	}
	held, err := lockFile(path)
	if err == nil {
		_ = held.Close()
		return false
	}
	return errors.Is(err, ErrBusy)
}

// ifDead runs reclaim while it holds the lock of writer id, if nobody else holds
// it, and removes the lock file. It reports whether it ran.
func ifDead(dir, id string, reclaim func()) bool {
	path := filepath.Join(dir, writersFolder, id)
	f, err := lockFile(path)
	if err != nil {
		return false
	}
	defer f.Close()
	reclaim()
	_ = os.Remove(path)
	return true
}
