package executor

import (
	"testing"

	"github.com/weir-dev/weir/gpuexec"
)

// TestCoarse: only simulated devices store checkpoints more rarely, and their frames are those of engines.
func TestCoarse(t *testing.T) {
	var engine, device gpuexec.Config
	coarse(&engine, nil)
	if engine.CkptTokens != 0 || engine.CkptNS != 0 {
		t.Errorf("an engine's checkpoints changed: %+v", engine)
	}
	coarse(&device, &Device{})
	if device.FrameTokens != 0 || device.FrameNS != 0 || device.CkptTokens < 256 || device.CkptMinNS > device.CkptNS {
		t.Errorf("a device's frames and checkpoints: %+v", device)
	}
}
