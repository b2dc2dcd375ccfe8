package turns

import "github.com/weir-dev/weir/schemas"

func decodeFrame(b []byte) (*schemas.Frame, error) {
	f := new(schemas.Frame)
	if err := schemas.Decode(b, f); err != nil {
		return nil, err
	}
	return f, nil
}
