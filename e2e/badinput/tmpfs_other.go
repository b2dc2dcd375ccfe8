//go:build !linux

package badinput

import "errors"

// Tmpfs says that this system has none.
func Tmpfs(string, string, bool) (release func() error, err error) {
	return nil, errors.ErrUnsupported
}
