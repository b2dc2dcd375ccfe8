package kvtier

import (
	"testing"

	"pgregory.net/rapid"
)

// TestKeyIndexAgainstMap: full up to its load, with keys that begin at few buckets and
// around the end, the index finds what a map finds.
func TestKeyIndexAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const slots = 12
		x, meta := newKeyIndex(slots), make([]slotMeta, slots)
		at, used := map[Key]SlotID{}, map[SlotID]bool{}
		key := rapid.Custom(func(t *rapid.T) Key {
			return Key{7: rapid.SampledFrom([]byte{0, 1, 0x80, 0xFE, 0xFF}).Draw(t, "home"), 31: byte(rapid.IntRange(0, 5).Draw(t, "n"))}
		})
		t.Repeat(map[string]func(*rapid.T){
			"insert": func(t *rapid.T) {
				k := key.Draw(t, "key")
				for id := range SlotID(slots) {
					if _, there := at[k]; there || used[id] {
						continue
					}
					meta[id].key = k
					x.insert(meta, id)
					at[k], used[id] = id, true
				}
			},
			"remove": func(t *rapid.T) {
				k := key.Draw(t, "key")
				if id, there := at[k]; there {
					if !x.remove(meta, id) || x.remove(meta, id) {
						t.Fatalf("remove of %s, twice", k)
					}
					delete(at, k)
					delete(used, id)
				}
			},
			"": func(t *rapid.T) {
				k := key.Draw(t, "key")
				id, ok := x.find(meta, &k)
				if want, there := at[k]; ok != there || ok && id != want {
					t.Fatalf("%s is in slot %d, %v; want %d, %v", k, id, ok, want, there)
				}
			},
		})
	})
}
