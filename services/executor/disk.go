package executor

import (
	"context"
	"log/slog"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/kvtier/hostmem"
)

// disk is the local disk below the memory, as its daemon keeps it.
type disk struct {
	mem    *hostmem.Client
	logger *slog.Logger
}

// lowersOf are the places below a memory.
func lowersOf(mem *hostmem.Client, logger *slog.Logger) []lower {
	if !mem.HasDisk() {
		return nil
	}
	return []lower{disk{mem, logger}}
}

// Fetch reads what lies on disk of a prompt's blocks, up to the first that is nowhere.
func (d disk) Fetch(ctx context.Context, keys []kvtier.Key) int {
	n, err := d.mem.Fetch(ctx, keys)
	if err != nil {
		d.logger.Info("blocks on disk did not all come; the rest is computed", "asked", len(keys), "brought", n, "error", err)
	}
	return n
}

// ask fills in names that only the memory's daemon knows: of blocks that lie on disk, and
// of some that went.
func (p *prompt) ask(ctx context.Context) {
	for end := range p.keys {
		first := len(p.known()) // a gap begins there
		if end <= first || p.keys[end].IsZero() {
			continue
		}
		back, err := p.mem.Trail(ctx, p.keys[end], end-first+1)
		if err != nil {
			return // it does not answer: what is known has to do
		}
		copy(p.keys[end+1-len(back):end+1], back)
	}
}
