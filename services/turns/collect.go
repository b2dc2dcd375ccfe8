package turns

import (
	"context"
	"errors"
	"io"

	"github.com/weir-dev/weir/schemas"
)

// Collect reads a stream to its end and returns the result, also a failed one.
// each, when not nil, sees every event before.
func Collect(ctx context.Context, s *Stream, each func(*Event) error) (*schemas.Result, error) {
	for {
		e, err := s.Next(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return nil, ErrNotFound // read to its end before
		case err != nil:
			return nil, err
		case e.Result != nil:
			return e.Result, nil
		case each != nil:
			if err := each(&e); err != nil {
				return nil, err
			}
		}
	}
}
