package nvml

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-dev/weir/schemas"
)

// Errors of a driver.
var (
	// ErrNoDriver: there is no NVIDIA driver on this host.
	ErrNoDriver = errors.New("nvml: no NVIDIA driver")
	// ErrNotBuilt: this binary was built without go-nvml, which needs cgo.
	ErrNotBuilt = errors.New("nvml: not in this binary; build it with make build NVML=1")
)

// Driver takes readings. It is used by one goroutine.
type Driver interface {
	// Read returns the devices as they are now, in the driver's order. XID holds
	// the errors that were told since the last Read, ECC the counter.
	Read() ([]schemas.GPU, error)
	Close() error
}

// Watch keeps what was seen of the devices and judges them. It is no clock: the
// caller reads and says when.
type Watch struct {
	// Release is how long a device must be without a new fault until it counts as fit
	// again; 0 means 30 s. A fault that only a reset of the device ends never does.
	Release time.Duration

	seen map[string]*state
}

type state struct {
	ecc     uint64
	known   bool
	xid     uint64 // the last one told
	fault   string
	since   time.Time
	forever bool
}

// fatal are XID errors after which the device, or what runs on it, cannot be trusted
// until it was reset or repaired (NVIDIA, "XID Errors", catalogue of recommended
// actions).
var fatal = map[uint64]string{
	46: "GPU stopped processing", 48: "double-bit ECC error", 62: "internal micro-controller halt",
	64: "row remapping failed", 74: "NVLink error", 79: "GPU has fallen off the bus",
	95: "uncontained ECC error", 109: "context switch timeout", 110: "security fault", 119: "GSP RPC timeout",
	120: "GSP error", 136: "link training failed", 140: "unrecovered ECC error", 143: "GPU initialisation error",
}

// passing are XID errors after which the process that met them is gone but the device
// is sound: others may use it once none has come for a while.
var passing = map[uint64]string{
	13: "graphics engine exception", 31: "memory page fault", 43: "GPU stopped processing for one process",
	45: "preemptive cleanup", 63: "row remapping recorded", 69: "graphics engine class error", 94: "contained ECC error",
}

// Judge takes a reading at a time and returns it with each device's last XID, and why
// work should not be given to the executor that uses these devices; "" when it is fit.
// Slowed clocks and a full memory are no faults: the planner sees them in the rates.
func (w *Watch) Judge(at time.Time, gpus []schemas.GPU) (out []schemas.GPU, unfit string) {
	if w.seen == nil {
		w.seen = map[string]*state{}
	}
	out = slices.Clone(gpus)
	for i := range out {
		g := &out[i]
		s := w.seen[g.UUID]
		if s == nil {
			s = &state{}
			w.seen[g.UUID] = s
		}
		s.take(at, g)
		if g.XID == 0 {
			g.XID = s.xid
		}
		if s.fault != "" && !s.forever && at.Sub(s.since) >= w.release() {
			s.fault = ""
		}
		if s.fault != "" && unfit == "" {
			unfit = fmt.Sprintf("%s: %s", g.UUID, s.fault)
		}
	}
	for id := range w.seen {
		if !slices.ContainsFunc(gpus, func(g schemas.GPU) bool { return g.UUID == id }) && w.lost(at, id) && unfit == "" {
			unfit = id + ": " + w.seen[id].fault
		}
	}
	return out, unfit
}

// lost notes that a device which was there is not any more.
func (w *Watch) lost(at time.Time, id string) bool {
	s := w.seen[id]
	if s.fault == "" {
		s.fault, s.since = "the driver does not list it any more", at
	}
	return true
}

func (w *Watch) release() time.Duration {
	if w.Release > 0 {
		return w.Release
	}
	return 30 * time.Second
}

// take updates what is known of one device.
func (s *state) take(at time.Time, g *schemas.GPU) {
	if s.fault == "the driver does not list it any more" {
		s.since, s.fault = at, "it was away"
	}
	if g.XID != 0 {
		s.xid = g.XID
		switch {
		case fatal[g.XID] != "":
			s.fault, s.since, s.forever = fmt.Sprintf("XID %d: %s; reset the device", g.XID, fatal[g.XID]), at, true
		case !s.forever && passing[g.XID] != "":
			s.fault, s.since = fmt.Sprintf("XID %d: %s", g.XID, passing[g.XID]), at
		case !s.forever:
			s.fault, s.since = fmt.Sprintf("XID %d", g.XID), at
		}
	}
	if s.known && g.ECC > s.ecc && !s.forever {
		s.fault, s.since = fmt.Sprintf("%d new uncorrected memory errors", g.ECC-s.ecc), at
	}
	s.ecc, s.known = g.ECC, true
}
