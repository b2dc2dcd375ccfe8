package schemas

import "errors"

// Errors of the contract.
var (
	// ErrID: an id is empty, too long or holds a character that is not allowed.
	ErrID = errors.New("schemas: invalid id")
	// ErrSubject: a subject does not follow the grammar of subjects.go.
	ErrSubject = errors.New("schemas: invalid subject")
	// ErrVersion: the message was written by another version of the contract.
	ErrVersion = errors.New("schemas: unsupported version")
	// ErrTooLarge: the message exceeds its size bound.
	ErrTooLarge = errors.New("schemas: message too large")
	// ErrMessage: the message is not valid JSON of its type, or a field is out of range.
	ErrMessage = errors.New("schemas: invalid message")
)
