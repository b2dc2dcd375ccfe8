package disk

import "errors"

// Errors of this package. They are wrapped with what was wrong, where, and what to do.
var (
	// ErrBusy: another process writes into the folder.
	ErrBusy = errors.New("disk: in use by another process")
	// ErrBudget: the bytes configured do not hold a single block of this size.
	ErrBudget = errors.New("disk: too few bytes for a block")
	// ErrOff: writing was given up after an error. What was written may still be read.
	ErrOff = errors.New("disk: switched off")
	// ErrNotThere: the block is not where it was said to be, or not any more.
	ErrNotThere = errors.New("disk: block not there")
	// ErrCorrupt: the bytes of a block are not those that were written.
	ErrCorrupt = errors.New("disk: block corrupt")
	// ErrSegment: a file is no segment, or one of another version, pool or block size.
	ErrSegment = errors.New("disk: not a usable segment")
	// ErrStale: the caller's block was gone before it could be written.
	ErrStale = errors.New("disk: block gone before it was written")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("disk: closed")
)
