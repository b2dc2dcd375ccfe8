package stack

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/weir-dev/weir/services/model"
)

// ModelFile is the path of a seeded random model, "small" (the default model of
// `weir up`) or "tiny", made once for all tests of this user: the same name gives
// the same bytes.
func ModelFile(preset string) (string, error) {
	dir, err := Shared("models")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "weir-"+preset+"-v2.gguf")
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		return path, err
	}
	return path, model.WritePreset(path, preset) // whole or not at all
}
