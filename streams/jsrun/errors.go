package jsrun

import "errors"

// Errors of the runner and of provisioning.
var (
	// ErrSettings: a stream exists with other settings than weir wants.
	ErrSettings = errors.New("jsrun: stream has other settings")
	// ErrNoJetStream: the server or the account has no JetStream.
	ErrNoJetStream = errors.New("jsrun: no JetStream")
	// ErrServerTooOld: the server lacks features that weir needs.
	ErrServerTooOld = errors.New("jsrun: NATS server too old")
	// ErrNoRoom: the server's or the account's storage cannot hold the streams.
	ErrNoRoom = errors.New("jsrun: JetStream storage too small")
	// ErrConfig: a Config that cannot work.
	ErrConfig = errors.New("jsrun: invalid configuration")
	// ErrFull: a stream or bucket refuses more, it is full.
	ErrFull = errors.New("jsrun: full")
	// ErrPayload: an object is missing, damaged or larger than it says.
	ErrPayload = errors.New("jsrun: bad payload")
	// ErrHeld: somebody else holds the lease.
	ErrHeld = errors.New("jsrun: lease is held")
	// ErrLost: the lease was not renewed in time or was taken over.
	ErrLost = errors.New("jsrun: lease lost")
	// ErrClosed: the connection was closed for good.
	ErrClosed = errors.New("jsrun: connection closed")
	// ErrListen: the embedded server could not listen or start.
	ErrListen = errors.New("jsrun: cannot start NATS")
)
