package executor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/weir-dev/weir/schemas"
)

// EnvFakeHealth names a folder from which executors read the health of devices that do
// not exist: <executor>.json is a list of schemas.GPU. It is a fake, for tests of what
// a sick device leads to where there is none, and never set otherwise.
const EnvFakeHealth = "WEIR_FAKE_HEALTH"

// fakeRelease is how long a fake device must be without a new fault until it counts as
// fit, instead of nvml.Watch's own time: a test waits for it.
const fakeRelease = 3 * time.Second

// fakeHealth reads a file as a driver reads devices.
type fakeHealth struct {
	path string
	last []byte
}

func newFakeHealth(executor string) *fakeHealth {
	dir := os.Getenv(EnvFakeHealth)
	if dir == "" {
		return nil
	}
	return &fakeHealth{path: filepath.Join(dir, executor+".json")}
}

// Read returns what the file says; without a file there is one sound device. An XID error
// is told once for each change of the file, as a driver tells it once.
func (f *fakeHealth) Read() ([]schemas.GPU, error) {
	b, err := os.ReadFile(f.path)
	if errors.Is(err, os.ErrNotExist) {
		return []schemas.GPU{{UUID: "GPU-fake", Name: "fake"}}, nil
	}
	if err != nil {
		return nil, err
	}
	var gpus []schemas.GPU
	if err := json.Unmarshal(b, &gpus); err != nil {
		return nil, fmt.Errorf("%s: %w", f.path, err)
	}
	if bytes.Equal(b, f.last) {
		for i := range gpus {
			gpus[i].XID = 0
		}
	}
	f.last = b
	return gpus, nil
}

// Close has nothing to close.
func (f *fakeHealth) Close() error { return nil }
