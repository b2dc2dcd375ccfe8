package llamacpp

import (
	"fmt"
	"strings"

	"github.com/weir-dev/weir/gpuexec"
)

// stateFormat counts revisions of the block layout in state.go. It is part of
// Version, hence of every block key.
const stateFormat = 1

// describe fills Info. Everything that decides a KV byte is named here: two
// engines with equal values may read each other's blocks.
func (e *Engine) describe() gpuexec.Info {
	return gpuexec.Info{
		Engine:   "llama",
		Version:  fmt.Sprintf("%s blocks %d", e.lib.version, stateFormat),
		Numerics: e.numerics(),
		Devices:  e.devices(),
	}
}

// numerics names KV types, the layout of V, flash attention, RoPE, the prefill
// step, and the shape of a row.
func (e *Engine) numerics() string {
	arch := e.model.meta("general.architecture")
	base := e.model.meta(arch + ".rope.freq_base")
	if base == "" {
		base = "default"
	}
	l := &e.layout
	vTrans, flash := 0, "on"
	if l.vTrans {
		vTrans, flash = 1, "off"
	}
	return strings.Join([]string{
		"arch=" + arch,
		fmt.Sprintf("k=%d", l.k[0].kind),
		fmt.Sprintf("v=%d", l.v[0].kind),
		fmt.Sprintf("v_trans=%d", vTrans),
		"flash=" + flash,
		"rope_base=" + base,
		fmt.Sprintf("rope_scale=%g", e.lib.api.modelRopeScale(e.model.handle)),
		fmt.Sprintf("prefill=%d", gpuexec.BlockTokens),
		fmt.Sprintf("layers=%d", len(l.k)),
		"k_row=" + rowSizes(l.k),
		"v_row=" + rowSizes(l.v),
		// Kernels differ by instruction set, and attention may be split by thread.
		fmt.Sprintf("threads=%d", e.opts.Threads),
		"cpu=" + cpuFeatures(e.lib.api.systemInfo()),
		"devices=" + e.deviceClass(),
	}, " ")
}

// cpuFeatures cuts the library's report ("CPU : SSE3 = 1 | AVX2 = 1 | …") down to
// the features that its CPU code uses.
func cpuFeatures(report string) string {
	_, report, _ = strings.Cut(report, "CPU : ")
	report, _, _ = strings.Cut(report, " : ") // next backend
	var names []string
	for field := range strings.SplitSeq(report, "|") {
		if name, value, ok := strings.Cut(strings.TrimSpace(field), " = "); ok && value != "0" {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// rowSizes is the bytes per token of each layer, or one number when all agree.
func rowSizes(layers []layerLayout) string {
	same := true
	var all []string
	for _, l := range layers {
		same = same && l.rowBytes == layers[0].rowBytes
		all = append(all, fmt.Sprint(l.rowBytes))
	}
	if same {
		return all[0]
	}
	return strings.Join(all, ",")
}

// devices lists what the engine uses: the CPU always, others when layers were
// given to them. The list is the library's; it says CPU only when a CUDA or
// Vulkan build found no device.
func (e *Engine) devices() []gpuexec.Device {
	var out []gpuexec.Device
	for _, d := range e.lib.devices {
		if d.kind == deviceCPU || e.opts.GPULayers != 0 {
			out = append(out, d.Device)
		}
	}
	return out
}

// onCPU reports whether every row is computed on the CPU.
func (e *Engine) onCPU() bool { return e.deviceClass() == "cpu" }

// deviceClass is "cpu", or the names of the other devices: kernels of another
// device round differently, so their blocks must not be mixed.
func (e *Engine) deviceClass() string {
	var names []string
	for _, d := range e.lib.devices {
		if d.kind != deviceCPU && e.opts.GPULayers != 0 {
			names = append(names, strings.ReplaceAll(d.Description, " ", "-"))
		}
	}
	if len(names) == 0 {
		return "cpu"
	}
	return strings.Join(names, "+")
}
