package tier

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-dev/weir/kvtier"
)

// TestOnDisk: the last word on a block counts, whatever came before it in a batch.
func TestOnDisk(t *testing.T) {
	const (
		stored, evicted = kvtier.EventStored, kvtier.EventEvicted
		moved, dropped  = kvtier.EventMoved, kvtier.EventDropped
		cleared         = kvtier.EventCleared
	)
	for _, tc := range []struct {
		name   string
		events []kvtier.EventKind
		want   string
	}{
		{"memory alone", []kvtier.EventKind{stored, evicted}, ""},
		{"left memory", []kvtier.EventKind{moved}, "moved"},
		{"stored, then left", []kvtier.EventKind{stored, moved}, "moved"},
		{"evicted before it was written", []kvtier.EventKind{evicted, moved}, "moved"},
		{"left and came back", []kvtier.EventKind{moved, stored}, "stored"},
		{"left and came back and left", []kvtier.EventKind{moved, stored, moved}, "moved"},
		{"left memory and disk", []kvtier.EventKind{moved, dropped}, "dropped"},
		{"left the disk while in memory", []kvtier.EventKind{dropped}, "dropped"},
		{"cleared", []kvtier.EventKind{moved, cleared}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := kvtier.Block{Key: kvtier.Key{1}, Index: 3}
			var events []kvtier.Event
			for _, k := range tc.events {
				e := kvtier.Event{Kind: k, Block: b}
				if k == cleared {
					e.Block = kvtier.Block{}
				}
				events = append(events, e)
			}
			m, s, d := onDisk(events)
			got := ""
			for name, list := range map[string][]kvtier.Block{"moved": m, "stored": s, "dropped": d} {
				if len(list) > 0 {
					got += name
					if diff := cmp.Diff([]kvtier.Block{b}, list); diff != "" {
						t.Error(diff)
					}
				}
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
