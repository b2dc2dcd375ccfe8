package model

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/weir-dev/weir/gpuexec/gguf"
)

// mapGGUF maps a model file and parses its header. The weights are read when
// they are used, and several processes share them.
func mapGGUF(path string) (f *gguf.File, release func() error, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("model: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	st, err := file.Stat()
	if err != nil {
		return nil, nil, fmt.Errorf("model: %w", err)
	}
	if st.IsDir() || st.Size() == 0 {
		return nil, nil, fmt.Errorf("model %s: %w: it is empty or a folder", path, gguf.ErrFormat)
	}
	b, err := unix.Mmap(int(file.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, fmt.Errorf("model %s: mapping it: %w", path, err)
	}
	if f, err = gguf.Parse(b); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("model %s: %w", path, err), unix.Munmap(b))
	}
	return f, func() error { return unix.Munmap(b) }, nil
}
