//go:build !cgo || !linux || !nvml

package nvml

// Open says that there are no readings: go-nvml needs cgo and Linux.
func Open() (Driver, error) { return nil, ErrNotBuilt }
