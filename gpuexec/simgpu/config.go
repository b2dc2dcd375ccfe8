package simgpu

import (
	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/schemas/calib"
)

// Later calls f at a time that has not passed, unless stop is called before.
type Later func(at schemas.Time, f func()) (stop func())

// Config of a device.
type Config struct {
	// Cal is the cost model; its Derate is used as it stands.
	Cal            *calib.Calibration
	Slots, Context int
	// Chunk is how many tokens one rank computes in a prefill step. 8,192.
	Chunk  int
	Memory Memory
	// Output is the true length of a turn's answer in tokens. Only the device may know
	// it: a live service does not.
	Output func(r *schemas.Ready) int
	// Chain names the context that a prompt goes on with; another name is another
	// context, as after a compaction. nil: tenant, session and branch.
	Chain func(r *schemas.Ready) string
	// Prefix names leading blocks that prompts of other chains have too, such as a
	// class's system prompt. nil: none.
	Prefix func(r *schemas.Ready) (name string, blocks int)
	// Key is the block key that ends the first blocks of a prompt's chain. With it the
	// executor's heartbeats say what the engine keeps; nil: they do not.
	Key func(r *schemas.Ready, blocks int) string
	// Delivered answers DeliveredOps; nil: no tokens were delivered.
	Delivered func(op *schemas.DeliveredOp) schemas.DeliveredDone
	Links     *Links
	Later     Later
}

// Memory is the host memory as one executor sees it.
type Memory interface {
	// Have is how many leading blocks of the prompt, and of what was generated behind
	// it, it holds; far: on another tray.
	Have(r *schemas.Ready) (blocks int, far bool)
	// Handed is how many of them the engine of another executor holds, from which they
	// can be had over the p2d link.
	Handed(r *schemas.Ready, from string) (blocks int)
	// Seal stores the first blocks of the turn's context and says how many of them it
	// has no room for.
	Seal(now schemas.Time, r *schemas.Ready, blocks int) (skipped int)
	// Use tells that a turn reads what it holds.
	Use(now schemas.Time, r *schemas.Ready)
}

// Names of the links in a calibration.
const (
	LinkHand  = "p2d"
	LinkLocal = "host_local"
	LinkFar   = "host_shared"
)

// Limits of the device, for its executor's configuration.
func (c *Config) Limits() gpuexec.Limits {
	return gpuexec.Limits{
		Slots: c.Slots, Context: c.Context, BatchRows: c.Slots, BlockBytes: int(c.Cal.Mem.KVBytesTok) * gpuexec.BlockTokens, Vocab: 1 << 17,
		PrefillRanks: c.Cal.Layout.AttnDP, PrefillChunk: c.chunk(), KVTokens: int(c.Cal.Mem.KVTokens), Interrupt: true,
	}
}

func (c *Config) chunk() int {
	if c.Chunk > 0 {
		return c.Chunk
	}
	return chunkTokens
}

// chunkTokens is how many tokens a rank computes in a prefill step where nothing else is
// said.
const chunkTokens = 8192
