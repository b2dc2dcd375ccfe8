package peer

import "errors"

// Errors of this package. They are wrapped with what was wrong, where, and what to do.
// Each of them means that blocks are computed instead.
var (
	// ErrVersion: the other side speaks another version, or is no weir node.
	ErrVersion = errors.New("peer: other protocol")
	// ErrToken: the two sides have different tokens.
	ErrToken = errors.New("peer: token refused")
	// ErrNoPool: the node serves no pool of that name with blocks of that size: it runs
	// another model, engine or KV format.
	ErrNoPool = errors.New("peer: no such pool")
	// ErrBusy: the node has as many connections or pools in use as it allows.
	ErrBusy = errors.New("peer: busy")
	// ErrProtocol: a message that no weir node sends, or one that was changed on the way.
	ErrProtocol = errors.New("peer: bad message")
	// ErrAway: the node failed lately and is not tried again yet.
	ErrAway = errors.New("peer: node failed lately")
	// ErrStalled: nothing arrived for as long as Options.ReadTimeout.
	ErrStalled = errors.New("peer: node stalled")
	// ErrOpen: a server would take connections from the network without a token.
	ErrOpen = errors.New("peer: a token is needed")
	// ErrClosed: the client or server was closed.
	ErrClosed = errors.New("peer: closed")
)
