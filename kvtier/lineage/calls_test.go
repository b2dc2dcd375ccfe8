package lineage

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/weir-dev/weir/schemas"
)

// TestCallIndex: in every list the call that a search from its end would find first
// is found, however the list grew in between.
func TestCallIndex(t *testing.T) {
	id := rapid.SampledFrom([]string{"", "a", "b", "c"})
	rapid.Check(t, func(t *rapid.T) {
		var list []*entry
		var x callIndex
		for range rapid.IntRange(0, 12).Draw(t, "messages") {
			e := &entry{}
			for _, s := range rapid.SliceOfN(id, 0, 3).Draw(t, "calls") {
				e.calls = append(e.calls, schemas.CanonicalCall{ID: s})
			}
			list = append(list, e)
			if rapid.Bool().Draw(t, "later") {
				continue
			}
			find := id.Draw(t, "find")
			at, k := searched(list, find)
			if gotAt, gotK := x.find(list, find); gotAt != at || gotK != k {
				t.Fatalf("call %q is found at %d, %d, it is at %d, %d", find, gotAt, gotK, at, k)
			}
		}
	})
}

func searched(list []*entry, id string) (at, k int) {
	for at = len(list) - 1; at >= 0; at-- {
		for k, c := range list[at].calls {
			if c.ID == id {
				return at, k
			}
		}
	}
	return -1, -1
}

// BenchmarkToolResults reads a list of results whose calls are not there. It must
// take the same time per message for any number of them.
func BenchmarkToolResults(b *testing.B) {
	for _, n := range []int{1000, 100000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			raws := make([]jsonRaw, n)
			for i := range raws {
				raws[i] = jsonRaw(fmt.Sprintf(`{"role":"tool","tool_call_id":"c%d"}`, i))
			}
			for b.Loop() {
				newSession("t", "s").entries(raws, nil, nil)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/message")
		})
	}
}
