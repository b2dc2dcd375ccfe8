package executor

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/weir-dev/weir/schemas"
)

// fakeDriver is a driver that a test writes. It shows what is done with readings, not
// what a device says.
type fakeDriver struct {
	gpus []schemas.GPU
	err  error
}

func (f *fakeDriver) Read() ([]schemas.GPU, error) { return f.gpus, f.err }
func (f *fakeDriver) Close() error                 { return nil }

// TestHealthReadings: a fault makes the executor unfit; a reading that fails changes
// nothing.
func TestHealthReadings(t *testing.T) {
	f := &fakeDriver{gpus: []schemas.GPU{{UUID: "GPU-a"}, {UUID: "GPU-b"}}}
	h := &health{driver: f, logger: slog.New(slog.DiscardHandler)}
	if d := h.read(); d.Unfit != "" || len(d.GPUs) != 2 {
		t.Errorf("%+v", d)
	}
	f.gpus, f.err = f.gpus[:1], errors.New("timeout")
	if d := h.read(); d.Unfit != "" || len(d.GPUs) != 2 {
		t.Errorf("after a failed reading: %+v", d)
	}
	f.err, f.gpus = nil, []schemas.GPU{{UUID: "GPU-a", XID: 79}, {UUID: "GPU-b"}}
	if d := h.read(); d.Unfit == "" {
		t.Error("a device off the bus is fit")
	}
}
