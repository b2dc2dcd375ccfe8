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
		"tiny":  {"d86e6d7722e1a209ff278a96a20efd461052ac49ff079e4d59743b8ca95a0f5a", 995872},
		"small": {"e13f0cd4a660d8b933b84401f5643c378c19bf4378610343fd9131801b3652c0", 25677952},
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
