package serve

import (
	"fmt"
	"os"

	"github.com/weir-dev/weir/gpuexec/simgpu"
	"github.com/weir-dev/weir/schemas/calib"
	"github.com/weir-dev/weir/services/executor"
	"github.com/weir-dev/weir/services/model"
)

// SimDevice is the device whose time executors take with --engine sim; nil with other
// engines.
func (o *Options) SimDevice() (*executor.Device, error) {
	if o.Engine != model.EngineSim {
		return nil, nil //nolint:nilnil // no device is no error
	}
	b, name := simgpu.RoundNumbers(), "the built-in calibration"
	if o.Calib != "" {
		var err error
		if b, err = os.ReadFile(o.Calib); err != nil {
			return nil, fmt.Errorf("--calib: %w; give a file in the format calib/v1, or leave --calib out for a device with round numbers", err)
		}
		name = "--calib " + o.Calib
	}
	c, err := calib.Parse(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &executor.Device{Cal: c, Speed: o.Speed}, nil
}

// checkSim checks the flags of simulated devices.
func (o *Options) checkSim(bad func(string, ...any)) {
	switch {
	case o.Engine != model.EngineSim && (o.Speed != 1 || o.Calib != ""):
		bad("--speed and --calib are for --engine sim, the engine is %q", o.Engine)
	case !(o.Speed > 0 && o.Speed <= 1e6): // also refuses what is no number
		bad("--speed is %g, allowed are numbers above 0 to 1e6", o.Speed)
	case o.Engine == model.EngineSim:
		if _, err := o.SimDevice(); err != nil {
			bad("%w", err)
		}
	}
}
