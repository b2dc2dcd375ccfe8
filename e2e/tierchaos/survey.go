package tierchaos

import (
	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/kvtier/hostmem"
)

// survey reads every block that is there, per class, and compares its bytes.
func (r *run) survey() []map[kvtier.Key]bool {
	out := make([]map[kvtier.Key]bool, len(r.universes))
	for i, u := range r.universes {
		out[i] = map[kvtier.Key]bool{}
		buf := make([]byte, u.block)
		for _, b := range u.all() {
			if wrong, ok := readBlock(r.observers[i], u, b, buf); ok {
				out[i][b.Key] = true
				r.res.Served += u.block
				r.res.BytesDiffering += wrong
			}
		}
	}
	return out
}

// readBlock copies one block out and returns how many of its bytes are wrong; ok is
// false if it was not served.
func readBlock(mem *hostmem.Client, u *universe, b kvtier.Block, buf []byte) (wrong int64, ok bool) {
	refs := mem.Lease([]kvtier.Key{b.Key})
	defer mem.Release(refs)
	if len(refs) == 0 || !mem.Copy(refs[0], buf) {
		return 0, false
	}
	return differing(buf, u.owner[b.Key], &b.Key), true
}
