package spill

import (
	"slices"
	"testing"

	"github.com/weir-dev/weir/e2e/stack"
)

// TestEvictedSessionFindsItsPromptOnDisk: memory holds two of six sessions. With a disk the
// first one's second turn finds its prompt as if memory had no bound, and says the same;
// without a disk it is computed again.
func TestEvictedSessionFindsItsPromptOnDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("three stacks with prompts of 2,000 tokens")
	}
	engine := "go"
	if stack.Libraries() != "" {
		engine = "llama"
	}
	run := func(mem, disk string) *Outcome {
		t.Helper()
		o, err := Run(t.Context(), engine, mem, disk)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("memory %s, disk %v: %d of %d tokens found, first token after %s, %d bytes on disk", mem, disk != "", o.Cached, o.Prompt, o.TTFT, o.DiskBytes)
		return o
	}
	whole, none, disk := run("512MiB", ""), run("28MiB", ""), run("28MiB", t.TempDir())
	if disk.Share() < 0.9 || disk.DiskBytes == 0 || disk.DiskBytes > 256<<20 {
		t.Errorf("%.2f of the prompt was found with %d bytes on disk", disk.Share(), disk.DiskBytes)
	}
	if none.Share() > 0.5 {
		t.Errorf("%.2f of the prompt was found without a disk: nothing was evicted", none.Share())
	}
	if disk.Cached != whole.Cached || !slices.Equal(disk.Tokens, whole.Tokens) {
		t.Errorf("from disk %d cached tokens and answer %v, from memory %d and %v", disk.Cached, disk.Tokens, whole.Cached, whole.Tokens)
	}
}
