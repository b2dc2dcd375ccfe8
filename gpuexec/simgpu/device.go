package simgpu

import "github.com/weir-dev/weir/schemas"

// Device does the operations of one executor.
type Device struct{ cfg Config }

// New makes a device with empty memory.
func New(cfg Config) *Device { return &Device{cfg: cfg} }

// Start begins an operation. done is called through Config.Later when it ends, never
// from within Start. Drop and Interrupt act at once, and done is not called for them:
// no executor waits for it.
func (d *Device) Start(now schemas.Time, op *schemas.Op, done func(schemas.OpDone)) {
	_, _, _ = now, op, done
}

// Holds is how many leading blocks of a turn's context the engine has.
func (d *Device) Holds(r *schemas.Ready) int { _ = r; return 0 }
