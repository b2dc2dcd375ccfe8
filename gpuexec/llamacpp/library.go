package llamacpp

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/ebitengine/purego"
	"github.com/weir-dev/weir/gpuexec"
)

// Stems of the shared libraries in the order in which they are opened: each one
// needs symbols of those before it.
var libraryStems = []string{"libggml-base", "libggml", "libllama"}

// Library is the set of llama.cpp shared libraries, loaded once per process.
type Library struct {
	dir     string
	api     api
	version string
	devices []device
	logs    *logSink
}

// device is a device of the library with its kind, see ggml_backend_dev_type.
type device struct {
	gpuexec.Device
	kind int32
}

// deviceCPU is GGML_BACKEND_DEVICE_TYPE_CPU.
const deviceCPU = 0

// loaded is the library of this process. The C side keeps its backends and its
// log callback in process-wide state, so a second set cannot be loaded beside it.
var loaded struct {
	sync.Mutex
	lib *Library
}

// Load opens the libraries in dir, checks their binary interface and loads every
// backend that lies there (CPU variants, CUDA, Vulkan). Error lines of the library
// go to logs (nil discards them). Loading the same folder again returns the same
// Library and leaves its log writer alone.
//
// Errors: ErrNoLibrary names the missing files and how to install them, ErrABI
// names the fields that differ.
func Load(dir string, logs io.Writer) (*Library, error) {
	if dir == "" {
		return nil, fmt.Errorf("%w: no folder given; install them with `make engine` (npm package %s)", ErrNoLibrary, npmPackage())
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoLibrary, err)
	}
	loaded.Lock()
	defer loaded.Unlock()
	if l := loaded.lib; l != nil {
		if l.dir == dir {
			return l, nil
		}
		return nil, fmt.Errorf("%w: this process already uses those in %s", ErrNoLibrary, l.dir)
	}
	paths, err := findLibraries(dir)
	if err != nil {
		return nil, err
	}
	l, err := open(dir, paths, logs)
	if err != nil {
		return nil, err
	}
	loaded.lib = l
	return l, nil
}

// DefaultDir is where `npm ci --prefix ROOT/.engine` puts the libraries of this
// platform.
func DefaultDir(root string) string {
	p := platform()
	return filepath.Join(root, ".engine", "node_modules", "@node-llama-cpp", p, "bins", p)
}

// Dir is the folder the libraries were loaded from.
func (l *Library) Dir() string { return l.dir }

// Version names the libraries: llama.cpp's version, ggml's version and commit.
func (l *Library) Version() string { return l.version }

// Devices lists the devices that the loaded backends offer, as the library
// reports them. A CUDA build on a machine without a GPU lists the CPU only.
func (l *Library) Devices() []gpuexec.Device {
	out := make([]gpuexec.Device, len(l.devices))
	for i, d := range l.devices {
		out[i] = d.Device
	}
	return out
}

// platform is node-llama-cpp's name of this platform.
func platform() string {
	arch := map[string]string{"amd64": "x64"}[runtime.GOARCH]
	if arch == "" {
		arch = runtime.GOARCH
	}
	if runtime.GOOS == "darwin" {
		if runtime.GOARCH == "arm64" {
			return "mac-arm64-metal"
		}
		return "mac-" + arch
	}
	return runtime.GOOS + "-" + arch
}

func npmPackage() string { return "@node-llama-cpp/" + platform() + "@3.21.1" }

// librarySuffix is the file name extension of shared libraries.
func librarySuffix() string {
	if runtime.GOOS == "darwin" {
		return ".dylib"
	}
	return ".so"
}

// findLibraries finds one file per stem. File names carry the version
// (libllama.v0.4.0.so), and libggml.* would also match libggml-cpu-*; so the plain
// name is looked for first, then stem.*suffix.
func findLibraries(dir string) ([]string, error) {
	suffix := librarySuffix()
	var found, missing []string
	for _, stem := range libraryStems {
		if plain := filepath.Join(dir, stem+suffix); isFile(plain) {
			found = append(found, plain)
			continue
		}
		// Folders that cannot be read give no match; the error below says where we looked.
		matches, err := filepath.Glob(filepath.Join(escapeGlob(dir), stem+".*"))
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrNoLibrary, dir, err)
		}
		matches = slices.DeleteFunc(matches, func(p string) bool {
			return !strings.Contains(filepath.Base(p), suffix) || !isFile(p)
		})
		if len(matches) == 0 {
			missing = append(missing, stem+"[.version]"+suffix)
			continue
		}
		found = append(found, matches[0])
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("%w: no %s in %s; install them with `make engine` (npm package %s) or name the folder that holds them",
			ErrNoLibrary, strings.Join(missing, ", "), dir, npmPackage())
	}
	return found, nil
}

func isFile(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}

// escapeGlob makes a folder name safe as the fixed part of a glob pattern.
func escapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(s)
}

// open loads the libraries and their backends.
func open(dir string, paths []string, logs io.Writer) (*Library, error) {
	// Without it a failed assert of ggml starts a debugger before it aborts.
	if err := os.Setenv("GGML_NO_BACKTRACE", "1"); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoLibrary, err)
	}
	handles := make([]uintptr, len(paths))
	for i, p := range paths {
		h, err := purego.Dlopen(p, purego.RTLD_NOW|purego.RTLD_GLOBAL)
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w; they need glibc 2.34 or later and libstdc++6", ErrNoLibrary, p, err)
		}
		handles[i] = h
	}
	l := &Library{dir: dir, logs: newLogSink(logs)}
	if err := l.api.bind(handles[0], handles[1], handles[2]); err != nil {
		return nil, err
	}
	if err := checkABI(l.api.modelDefaults(), l.api.contextDefaults()); err != nil {
		return nil, err
	}
	callback := purego.NewCallback(l.logs.receive)
	l.api.logSet(callback, 0)
	l.api.ggmlLogSet(callback, 0)
	l.api.loadBackends(dir)
	l.api.backendInit()
	l.version = fmt.Sprintf("llama %s ggml %s %s", l.api.llamaVersion(), l.api.ggmlVersion(), l.api.ggmlCommit())
	for i := range l.api.devCount() {
		d := l.api.devGet(i)
		var free, total uintptr
		l.api.devMemory(d, &free, &total)
		l.devices = append(l.devices, device{
			Device: gpuexec.Device{Name: l.api.devName(d), Description: l.api.devDescription(d), MemoryBytes: int64(total)},
			kind:   l.api.devType(d),
		})
	}
	if len(l.devices) == 0 {
		return nil, fmt.Errorf("%w: no backend in %s fits this CPU: %s", ErrNoLibrary, dir, l.logs.reason())
	}
	return l, nil
}
