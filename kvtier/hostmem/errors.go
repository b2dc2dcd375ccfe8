package hostmem

import "errors"

// Errors of this package. They are wrapped with what was wrong, where, and what to do.
var (
	// ErrOrder is an order of eviction that does not exist.
	ErrOrder = errors.New("hostmem: no such order")

	// ErrNoSpace: the filesystem cannot hold the memory asked for.
	ErrNoSpace = errors.New("hostmem: not enough room for the KV memory")
	// ErrBudget: the bytes given to the daemon are taken by other pools, or hold no slot of this size.
	ErrBudget = errors.New("hostmem: KV memory budget exhausted")
	// ErrLayout: a pool file was written by another version, or is damaged.
	ErrLayout = errors.New("hostmem: pool file has another layout")
	// ErrBusy: another daemon owns the folder, or another process the writer id.
	ErrBusy = errors.New("hostmem: in use by another process")
	// ErrDown: the daemon does not answer. Reading goes on; reserving waits.
	ErrDown = errors.New("hostmem: tier daemon does not answer")
	// ErrRefused: the daemon understood the request and refused it for good.
	ErrRefused = errors.New("hostmem: refused by the tier daemon")
	// ErrFull: every slot is reserved, leased, or has children that are. The block
	// is not stored; it is computed again when it is wanted.
	ErrFull = errors.New("hostmem: KV memory full")
	// ErrLost: the slot is no longer this client's. What was written is not stored.
	ErrLost = errors.New("hostmem: reservation lost")
	// ErrReplaced: the daemon serves another file than this client has mapped (the
	// folder was emptied). Close the client and attach again.
	ErrReplaced = errors.New("hostmem: pool file was replaced")
	// ErrClosed: the client or daemon was closed.
	ErrClosed = errors.New("hostmem: closed")
	// ErrName: a pool name or writer id that cannot be used.
	ErrName = errors.New("hostmem: bad name")
)
