package turns

import (
	"errors"
	"fmt"
	"time"

	"github.com/weir-dev/weir/schemas"
)

// Errors of a caller's side.
var (
	// ErrBusy: the turn was not taken because a stream is full or nobody answers.
	// The error is a *BusyError with the time to wait.
	ErrBusy = errors.New("turns: overloaded")
	// ErrUnavailable: NATS was away until the turn's deadline.
	ErrUnavailable = errors.New("turns: NATS is not reachable")
	// ErrInvalid: the turn breaks the contract; trying again will not help.
	ErrInvalid = errors.New("turns: invalid turn")
	// ErrTooLarge: the turn exceeds schemas.MaxBody or what a message may carry.
	ErrTooLarge = errors.New("turns: turn too large")
	// ErrNotFound: no result is stored for that turn.
	ErrNotFound = errors.New("turns: no result")
	// ErrChanged: a token or a byte of text that was delivered differs from what
	// came later. It is a defect of weir and never passed over.
	ErrChanged = errors.New("turns: a delivered token changed")
	// ErrClosed: the client was closed.
	ErrClosed = errors.New("turns: client closed")
)

// BusyError says when to try again. errors.Is(err, ErrBusy) is true.
type BusyError struct {
	RetryAfter time.Duration
	Reason     string
}

// Error says why and how long to wait.
func (e *BusyError) Error() string {
	return fmt.Sprintf("%v: %s; try again in %s", ErrBusy, e.Reason, e.RetryAfter)
}

// Is makes errors.Is(err, ErrBusy) work.
func (e *BusyError) Is(target error) bool { return target == ErrBusy }

// FailureError is a refusal that concerns this publish only, such as a turn id
// that was used with other content.
type FailureError struct{ Failure schemas.Failure }

// Error is the failure's code and message.
func (e *FailureError) Error() string { return e.Failure.Code + ": " + e.Failure.Message }
