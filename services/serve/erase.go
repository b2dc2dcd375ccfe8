package serve

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weir-dev/weir/services/erase"
	"github.com/weir-dev/weir/services/turns"
)

// eraseRetry is told to a caller when lineage or a tier node does not answer: they are
// started again within seconds.
const eraseRetry = 2 * time.Second

// eraser is what the gateway does for DELETE /v1/sessions/{id}. Turns in work are not
// cancelled for it: whoever erases a session stops its agent first.
func (h *host) eraser(nc *nats.Conn) func(ctx context.Context, tenant, session string) (any, error) {
	return func(ctx context.Context, tenant, session string) (any, error) {
		r, err := erase.Session(ctx, erase.Options{Conn: nc, Cell: h.o.Cell}, tenant, session)
		switch {
		case errors.Is(err, erase.ErrWorking):
			return nil, workingError{err}
		case errors.Is(err, erase.ErrUnavailable):
			return nil, &turns.BusyError{RetryAfter: eraseRetry, Reason: err.Error()}
		case err != nil:
			return nil, err
		}
		return r, nil
	}
}

// workingError tells the gateway that the session cannot be erased now.
type workingError struct{ error }

// Working is true.
func (workingError) Working() bool { return true }
