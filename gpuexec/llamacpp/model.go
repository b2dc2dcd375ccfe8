package llamacpp

import "fmt"

// model is one loaded model file.
type model struct {
	lib    *Library
	handle uintptr
	vocab  uintptr
	path   string
}

// maxLayers stands for "all" where the library wants a layer count.
const maxLayers = 1 << 20

// loadModel loads a GGUF file. vocabOnly leaves the weights out. Errors wrap
// ErrModel and carry the library's own reason.
func loadModel(l *Library, path string, gpuLayers int, vocabOnly bool) (*model, error) {
	if err := checkFile(path); err != nil { // a damaged file could abort the process
		return nil, err
	}
	p := l.api.modelDefaults()
	if gpuLayers < 0 {
		gpuLayers = maxLayers
	}
	p.NGPULayers = int32(gpuLayers)
	if vocabOnly {
		p.VocabOnly = 1
	}
	var noDevices arena
	if gpuLayers == 0 || vocabOnly {
		// An empty device list keeps the library from using a GPU for large batches,
		// which it does even when no layer lies there.
		mem, err := noDevices.grow(8)
		if err != nil {
			return nil, err
		}
		clear(mem)
		p.Devices = address(mem)
	}
	l.logs.clear()
	h := l.api.modelLoad(path, p)
	if err := noDevices.free(); err != nil {
		return nil, err
	}
	if h == 0 {
		return nil, fmt.Errorf("%w: %s: %s", ErrModel, path, l.logs.reason())
	}
	return &model{lib: l, handle: h, vocab: l.api.vocab(h), path: path}, nil
}

func (m *model) free() {
	if m.handle != 0 {
		m.lib.api.modelFree(m.handle)
		m.handle = 0
	}
}

// maxMeta bounds a metadata value; chat templates of some models have 30 kB.
const maxMeta = 4 << 20

// meta reads a metadata value as text; "" when the model has none.
func (m *model) meta(key string) string {
	for size := 256; size <= maxMeta; {
		buf := make([]byte, size)
		n := int(m.lib.api.modelMeta(m.handle, key, &buf[0], uintptr(size)))
		if n < 0 {
			return ""
		}
		// The library answers the length it wanted to write, as snprintf does.
		if n < size {
			return string(buf[:n])
		}
		size = n + 1
	}
	return ""
}

// description is the library's one-line description of architecture and size.
func (m *model) description() string {
	buf := make([]byte, 256)
	n := int(m.lib.api.modelDesc(m.handle, &buf[0], uintptr(len(buf))))
	return string(buf[:min(max(n, 0), len(buf)-1)])
}

// chatTemplate is the Jinja source of the model's default chat template, or "".
func (m *model) chatTemplate() string {
	return cString(m.lib.api.modelChatTemplate(m.handle, nil), maxMeta)
}

// trained is the length in tokens the model was trained for.
func (m *model) trained() int { return int(m.lib.api.modelContextTrain(m.handle)) }

// rope types whose positions are not one number per token.
const (
	ropeMulti  = 8  // M-RoPE
	ropeVision = 24 // vision RoPE
	ropeIMulti = 40 // interleaved M-RoPE
)

// unsupported names the property that keeps the model from handing over KV blocks,
// or "" when the library's own flags show none. The self-test at open has the
// last word (selftest.go).
func (m *model) unsupported() string {
	a := &m.lib.api
	switch rope := a.modelRopeType(m.handle); {
	case a.modelHasEncoder(m.handle):
		return "it has an encoder"
	case !a.modelHasDecoder(m.handle):
		return "it has no decoder"
	case a.modelIsRecurrent(m.handle):
		return "it is recurrent: its state is not a row per token"
	case a.modelIsHybrid(m.handle):
		return "it has recurrent layers: their state is not a row per token"
	case a.modelSWA(m.handle) > 0:
		return fmt.Sprintf("it has sliding-window attention over %d tokens: its state is two caches", a.modelSWA(m.handle))
	case rope == ropeMulti || rope == ropeVision || rope == ropeIMulti:
		return "it uses multi-dimensional positions (M-RoPE)"
	}
	return ""
}
