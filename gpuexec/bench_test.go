package gpuexec_test

import (
	"testing"

	"github.com/weir-dev/weir/schemas"
)

// BenchmarkTurn is what an executor's actor itself costs for one turn that decodes
// 16 tokens, messages not encoded.
func BenchmarkTurn(b *testing.B) {
	h := newHost(b, nil)
	h.pass(ms)
	h.assign(1, schemas.RoleMixed)
	j := job("u1", schemas.StageDecode, 1, 300, 16)
	j.Local = true
	b.ReportAllocs()
	for b.Loop() {
		c := *j
		c.PlacedNS = int64(h.now)
		h.job(&c)
		h.run()
		h.confirm(0, "")
		h.sent, h.frames = h.sent[:0], map[string]*stream{}
	}
}
