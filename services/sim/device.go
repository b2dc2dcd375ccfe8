package sim

import (
	"strconv"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/gpuexec/simgpu"
	"github.com/weir-dev/weir/schemas"
)

// engineConfig is one worker of the cluster.
func (w *world) engineConfig(e *exec) simgpu.Config {
	later := func(at schemas.Time, f func()) func() { return w.sim.Timer(at, f) }
	if e.links == nil {
		e.links = simgpu.NewLinks(w.cal, later)
	}
	return simgpu.Config{
		Cal: w.cal, Slots: min(w.sc.Cluster.MaxSeqs, w.cal.Decode.MaxB), Context: w.context(), Chunk: w.chunk(),
		Memory: view{w.mem, e.n}, Output: w.output, Links: e.links, Later: later,
		Chain: func(r *schemas.Ready) string {
			s := w.session(r)
			return s.id + "/" + strconv.Itoa(int(s.epoch))
		},
		Prefix: func(r *schemas.Ready) (string, int) {
			s := w.session(r)
			return s.w.Name, s.chain.shared
		},
		Key: func(r *schemas.Ready, blocks int) string { return w.session(r).chain.key(blocks) },
	}
}

// context is how long a sequence may be: what the calibration covers.
func (w *world) context() int {
	if p := int(w.cal.Range.Prefix[1]); p > 0 {
		return p
	}
	return 1 << 18
}

// long is more than any answer or run has: what nobody reads here is not sent.
const long = 1 << 30

func (w *world) execConfig(e *exec) gpuexec.Config {
	c := w.engineConfig(e)
	n := w.mem.of(e.n)
	return gpuexec.Config{
		Cell: cell, Executor: e.id, Node: n.id, Pool: pool, Boot: w.boot(e), Limits: c.Limits(), Lower: true,
		// Frames and checkpoints go out with the first token, at the end, and when a turn
		// is handed over.
		FrameTokens: long, FrameNS: 1e15, CkptTokens: long, CkptNS: 1e15,
		SealShare: -1, TierBlocks: n.total, MixSteps: w.sys.MixSteps, Size: max(1, w.cal.Layout.GPUs),
	}
}
