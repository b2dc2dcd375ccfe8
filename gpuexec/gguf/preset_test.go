package gguf_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/weir-dev/weir/gpuexec/gguf"
)

// TestPresetBytes pins the presets: block keys hold the model's hash, so a changed
// byte would make every stored block useless and two versions incompatible.
func TestPresetBytes(t *testing.T) {
	golden := map[string]struct {
		sum  string
		size int
	}{
		"tiny":  {"81c45aaf4dd63159e3e05824cf91eeeb471bcbbae17e1f6bfcf39aeaf67471b2", 993312},
		"small": {"99ceb62c79f911b1c54071cccaf2d64aed6e5a6d36995f9438caf1424f937b27", 25675392},
	}
	for name, want := range golden {
		t.Run(name, func(t *testing.T) {
			if name == "small" && testing.Short() {
				t.Skip("24 million parameters take about a second")
			}
			var b bytes.Buffer
			if err := gguf.WritePreset(&b, name); err != nil {
				t.Fatal(err)
			}
			sum := sha256.Sum256(b.Bytes())
			if got := hex.EncodeToString(sum[:]); got != want.sum || b.Len() != want.size {
				t.Errorf("sha256 %s, %d bytes; want %s, %d bytes", got, b.Len(), want.sum, want.size)
			}
		})
	}
}
