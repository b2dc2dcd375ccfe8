package kvtier

import "errors"

// Errors of this package. They are wrapped with what was wrong and where.
var (
	// ErrNotCacheable: the turn cannot be named safely (its media are not fully
	// described), so none of its blocks may be stored or looked up. The turn is
	// still answered; it is only not cached.
	ErrNotCacheable = errors.New("kvtier: turn not cacheable")
	// ErrBadSpec: a Spec lacks a field without which two different models could
	// get equal keys.
	ErrBadSpec = errors.New("kvtier: incomplete key spec")
	// ErrBadKey: text that is not a key (64 hex digits).
	ErrBadKey = errors.New("kvtier: bad key")
	// ErrBadBlock: a block that cannot be part of a prefix tree: no key, its own
	// parent, or an index that is not its parent's plus one.
	ErrBadBlock = errors.New("kvtier: bad block")
	// ErrNotReserved: the slot is not reserved by this writer in this generation.
	ErrNotReserved = errors.New("kvtier: slot not reserved by this writer")
	// ErrNotSealed: the slot holds no sealed block.
	ErrNotSealed = errors.New("kvtier: slot not sealed")
	// ErrNotLeaf: the block still has resident children, so evicting it would
	// strand them.
	ErrNotLeaf = errors.New("kvtier: block has resident children")
	// ErrIntegrity: the slot table contradicts itself: a defect in this package.
	ErrIntegrity = errors.New("kvtier: integrity check failed")
)
