package executor

import (
	"testing"

	"github.com/weir-dev/weir/gpuexec"
)

// TestCoarse: only simulated devices send larger frames than engines do.
func TestCoarse(t *testing.T) {
	var engine, device gpuexec.Config
	coarse(&engine, nil)
	if engine.FrameTokens != 0 || engine.CkptTokens != 0 {
		t.Errorf("an engine's frames changed: %+v", engine)
	}
	coarse(&device, &Device{})
	if device.FrameTokens < 64 || device.FrameNS < 100_000_000 || device.CkptTokens < 256 || device.CkptMinNS > device.CkptNS {
		t.Errorf("a device's frames: %+v", device)
	}
}
