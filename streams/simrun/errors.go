package simrun

import "errors"

// Errors of the simulator.
var (
	// ErrConfig: options or a service that cannot work.
	ErrConfig = errors.New("simrun: invalid configuration")
	// ErrNoStream: no stream takes the subject.
	ErrNoStream = errors.New("simrun: no stream takes the subject")
	// ErrFull: the stream refuses, it is full.
	ErrFull = errors.New("simrun: stream is full")
	// ErrLivelock: too many events at one instant; an operation that takes no
	// time asks for itself again.
	ErrLivelock = errors.New("simrun: time does not advance")
)
