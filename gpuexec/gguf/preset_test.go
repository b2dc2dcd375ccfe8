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
		"tiny":  {"4b330e0b4c67d412c6a280911dbfd6325478d6e5e992d7852143112fafdb7494", 993536},
		"small": {"b0b937f3cbc7c8cf6dcf9f2a5b2e334867ddc5a6808f85b7745f6ef10d145036", 25675584},
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
