package streams

import "errors"

// Errors of configuration; they wrap into texts that name the field.
var (
	// ErrTopology: a stream's settings contradict each other or another stream.
	ErrTopology = errors.New("streams: invalid topology")
	// ErrInput: an input of an actor cannot work on its stream.
	ErrInput = errors.New("streams: invalid input")
)
