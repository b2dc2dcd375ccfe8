//go:build !linux

package badinput

import "errors"

// Tmpfs says that this system has none.
func Tmpfs(string, uintptr, string) (release func() error, err error) {
	return nil, errors.ErrUnsupported
}
