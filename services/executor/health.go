package executor

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/weir-dev/weir/gpuexec/nvml"
	"github.com/weir-dev/weir/schemas"
)

// health reads the devices for the actor. The driver may take its time, so it is asked
// outside the actor; one reading is under way at a time.
type health struct {
	mu     sync.Mutex
	driver nvml.Driver // nil when there is none
	watch  nvml.Watch
	last   schemas.HealthDone
	logger *slog.Logger
}

// openHealth looks for a driver and says once when there is none.
func openHealth(executor string, logger *slog.Logger) *health {
	h := &health{logger: logger}
	if f := newFakeHealth(executor); f != nil {
		logger.Warn("device health is a fake's", "file", f.path)
		h.driver, h.watch.Release = f, fakeRelease
		return h
	}
	d, err := nvml.Open()
	switch {
	case err == nil:
		h.driver = d
	case errors.Is(err, nvml.ErrNoDriver), errors.Is(err, nvml.ErrNotBuilt):
		logger.Info("device health is not read", "reason", err)
	default:
		logger.Warn("device health is not read", "error", err)
	}
	return h
}

// read answers a HealthOp. After a reading that failed, what was known stays.
func (h *health) read() schemas.HealthDone {
	h.mu.Lock()
	defer h.mu.Unlock()
	gpus, err := h.driver.Read()
	if err != nil {
		h.logger.Warn("device health was not read", "error", err)
		return h.last
	}
	h.last.GPUs, h.last.Unfit = h.watch.Judge(time.Now(), gpus)
	return h.last
}

func (h *health) close() error {
	if h.driver == nil {
		return nil
	}
	return h.driver.Close()
}
