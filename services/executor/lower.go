package executor

import (
	"context"

	"github.com/weir-dev/weir/kvtier"
)

// lower is a place below the host's memory that holds blocks, such as a disk. The
// bringer asks such places in their order, before it asks other nodes.
type lower interface {
	// Fetch brings those of keys that the memory lacks into it, and returns how many
	// came. keys are a prompt's blocks in order, from the first one on as far as their
	// names are known. It ends when ctx does.
	Fetch(ctx context.Context, keys []kvtier.Key) (brought int)
}
