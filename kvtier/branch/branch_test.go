package branch

import (
	"crypto/sha256"
	"fmt"
	"testing"

	"github.com/weir-dev/weir/schemas"
)

// item makes an item of a short text: the first letter is its role (s, u, a, t, or
// i for a tool result with an image), then a name, which alone makes it equal to
// others, and after a colon its size, else 100.
func item(text string) Item {
	it := Item{Size: 100}
	name := text
	for i := range text {
		if text[i] == ':' {
			name = text[:i]
			if _, err := fmt.Sscan(text[i+1:], &it.Size); err != nil {
				panic(err)
			}
		}
	}
	switch text[0] {
	case 's':
		it.Role = System
	case 'u':
		it.Role = User
	case 'a':
		it.Role = Assistant
	case 't':
		it.Role = Tool
	case 'i':
		it.Role, it.Media = Tool, true
	default:
		panic("unknown role in " + text)
	}
	sum := sha256.Sum256([]byte(name))
	copy(it.Digest[:], sum[:])
	return it
}

func items(texts ...string) []Item {
	var out []Item
	for _, t := range texts {
		out = append(out, item(t))
	}
	return out
}

// table is a session told as a list of requests.
type table struct {
	f    *Forest
	busy map[string]bool
	made int
}

func newTable(o Options) *table {
	return &table{f: NewForest(o), busy: map[string]bool{}}
}

func (x *table) place(r Request) Placement {
	return x.f.Place(r, func(b string) bool { return x.busy[b] }, func() string {
		x.made++
		return fmt.Sprint("b", x.made)
	})
}

func TestKinds(t *testing.T) {
	long := []string{"s1:9000", "u1", "a1:9000", "u2", "a2:9000", "u3", "a3:9000"}
	tests := map[string]struct {
		contexts [][]string // of b1, b2, ..; an answer at the end is appended
		subs     bool       // all but the first began as sub-agents
		busy     []string
		hint     string // branch whose last turn was hinted to compact
		request  []string
		want     Placement
	}{
		"first": {request: []string{"s1", "u1"}, want: Placement{Branch: "b1", New: true, Kind: First}},
		"continue": {
			contexts: [][]string{{"s1", "u1", "a1"}},
			request:  []string{"s1", "u1", "a1", "t1"},
			want:     Placement{Branch: "b1", Kind: Continue, Kept: 3, KeptSize: 300},
		},
		"continue without the system prompt": {
			contexts: [][]string{{"u1", "a1"}},
			request:  []string{"u1", "a1", "u2"},
			want:     Placement{Branch: "b1", Kind: Continue, Kept: 2, KeptSize: 200},
		},
		"continue before the answer is known here": {
			contexts: [][]string{{"s1", "u1"}},
			busy:     []string{"b1"},
			request:  []string{"s1", "u1", "a1", "u2"},
			want:     Placement{Branch: "b1", Kind: Continue, Kept: 2, KeptSize: 200},
		},
		"continue the deeper of two": {
			contexts: [][]string{{"s1", "u1", "a1"}, {"s1", "u1", "a1", "u2", "a2"}},
			request:  []string{"s1", "u1", "a1", "u2", "a2", "u3"},
			want:     Placement{Branch: "b2", Kind: Continue, Kept: 5, KeptSize: 500},
		},
		"fork of a busy branch": {
			contexts: [][]string{{"s1", "u1", "a1", "u2"}},
			busy:     []string{"b1"},
			request:  []string{"s1", "u1", "a1", "u3"},
			want:     Placement{Branch: "b2", New: true, Kind: Fork, Parent: "b1", Kept: 3, KeptSize: 300},
		},
		"the same prompt on a busy branch": {
			contexts: [][]string{{"s1", "u1"}},
			busy:     []string{"b1"},
			request:  []string{"s1", "u1"},
			want:     Placement{Branch: "b2", New: true, Kind: Fork, Parent: "b1", Kept: 2, KeptSize: 200},
		},
		"a new message while the answer is made": {
			contexts: [][]string{{"s1", "u1"}},
			busy:     []string{"b1"},
			request:  []string{"s1", "u1", "u2"},
			want:     Placement{Branch: "b2", New: true, Kind: Fork, Parent: "b1", Kept: 2, KeptSize: 200},
		},
		"retry": {
			contexts: [][]string{{"s1", "u1", "a1"}},
			request:  []string{"s1", "u1"},
			want:     Placement{Branch: "b1", Kind: Retry, Kept: 2, Dropped: 1, KeptSize: 200, DroppedSize: 100},
		},
		"retry of a turn without an answer": {
			contexts: [][]string{{"s1", "u1"}},
			request:  []string{"s1", "u1"},
			want:     Placement{Branch: "b1", Kind: Retry, Kept: 2, KeptSize: 200},
		},
		"the answer came back changed": {
			contexts: [][]string{{"s1", "u1", "a1"}},
			request:  []string{"s1", "u1", "a1x", "u2"},
			want:     Placement{Branch: "b1", Kind: Rewrite, Kept: 2, Dropped: 1, KeptSize: 200, DroppedSize: 100},
		},
		"the user takes a step back": {
			contexts: [][]string{long},
			request:  []string{"s1:9000", "u1", "a1:9000", "u2x"},
			want:     Placement{Branch: "b1", Kind: Rewrite, Kept: 3, Dropped: 4, KeptSize: 18100, DroppedSize: 18200},
		},
		"system prompt changed": {
			contexts: [][]string{{"s1", "u1", "a1", "u2", "a2"}},
			request:  []string{"s2", "u1", "a1", "u2", "a2", "u3"},
			want:     Placement{Branch: "b1", Kind: Rewrite, Dropped: 5, DroppedSize: 500},
		},
		"system prompt changed on a busy branch": {
			contexts: [][]string{{"s1", "u1", "a1", "u2", "a2"}},
			busy:     []string{"b1"},
			request:  []string{"s2", "u1", "a1", "u2", "a2", "u3"},
			want:     Placement{Branch: "b2", New: true, Kind: Fork, Parent: "b1"},
		},
		"sub-agent with another system prompt": {
			contexts: [][]string{{"s1", "u1", "a1"}},
			request:  []string{"s2", "u9"},
			want:     Placement{Branch: "b2", New: true, Kind: SubAgent, Parent: "b1"},
		},
		"sub-agent with the same system prompt": {
			contexts: [][]string{long},
			request:  []string{"s1:9000", "u9:500"},
			want:     Placement{Branch: "b2", New: true, Kind: SubAgent, Parent: "b1", Kept: 1, KeptSize: 9000},
		},
		"the same question to another role": {
			contexts: [][]string{{"s1", "u1", "a1"}},
			request:  []string{"s2", "u1"},
			want:     Placement{Branch: "b2", New: true, Kind: SubAgent, Parent: "b1"},
		},
		"sub-agent beside its sibling": {
			contexts: [][]string{{"s1", "u1", "a1"}, {"s2", "u8"}},
			subs:     true,
			request:  []string{"s2", "u9"},
			want:     Placement{Branch: "b3", New: true, Kind: SubAgent, Parent: "b2", Kept: 1, KeptSize: 100},
		},
		"sub-agent beside a sibling at work": {
			contexts: [][]string{{"s1", "u1", "a1"}, {"s2", "u8", "a8:9000", "t8"}},
			subs:     true,
			busy:     []string{"b2"},
			request:  []string{"s2", "u9"},
			want:     Placement{Branch: "b3", New: true, Kind: SubAgent, Parent: "b2", Kept: 1, KeptSize: 100},
		},
		"compaction by the detector": {
			contexts: [][]string{{"s1:9000", "u1", "a1:150000", "u2"}},
			request:  []string{"s1:9000", "u9:20000"},
			want:     Placement{Branch: "b1", Kind: Compaction, Kept: 1, Dropped: 3, KeptSize: 9000, DroppedSize: 150200},
		},
		"compaction of a small context": {
			contexts: [][]string{{"s1:500", "u1", "a1:6000", "u2"}},
			request:  []string{"s1:500", "u1", "u9:900"},
			want:     Placement{Branch: "b1", Kind: Compaction, Kept: 2, Dropped: 2, KeptSize: 600, DroppedSize: 6100},
		},
		"compaction that keeps the last messages": {
			contexts: [][]string{{"s1:500", "u1", "a1:6000", "u2", "a2"}},
			request:  []string{"s1:500", "u9:900", "u2", "a2", "u3"},
			want:     Placement{Branch: "b1", Kind: Compaction, Kept: 1, Dropped: 4, KeptSize: 500, DroppedSize: 6300},
		},
		"compaction that was announced": {
			contexts: [][]string{{"s1:500", "u1", "a1:600", "u2", "a2"}},
			hint:     "b1",
			request:  []string{"s1:500", "u9:50"},
			want:     Placement{Branch: "b1", Kind: Compaction, Kept: 1, Dropped: 4, KeptSize: 500, DroppedSize: 900},
		},
		"pruned screenshot": {
			contexts: [][]string{{"s1", "u1", "a1", "i1:1500", "a2", "i2:1500", "a3"}},
			request:  []string{"s1", "u1", "a1", "tx:12", "a2", "i2:1500", "a3", "i3:1500"},
			want:     Placement{Branch: "b1", Kind: Pruned, Kept: 3, Dropped: 4, KeptSize: 300, DroppedSize: 3200},
		},
		"screenshots left out": {
			contexts: [][]string{{"s1", "u1", "a1", "i1:1500", "a2", "i2:1500", "a3"}},
			request:  []string{"s1", "u1", "a1", "a2", "a3", "i3:1500"},
			want:     Placement{Branch: "b1", Kind: Pruned, Kept: 3, Dropped: 4, KeptSize: 300, DroppedSize: 3200},
		},
		"tool result cut short": {
			contexts: [][]string{{"s1", "u1", "a1", "t1:9000", "a2"}},
			request:  []string{"s1", "u1", "a1", "tx:50", "a2", "u2"},
			want:     Placement{Branch: "b1", Kind: Pruned, Kept: 3, Dropped: 2, KeptSize: 300, DroppedSize: 9100},
		},
		"tool result replaced by a larger one": {
			contexts: [][]string{{"s1", "u1", "a1", "t1:50", "a2"}},
			request:  []string{"s1", "u1", "a1", "tx:900", "a2", "u2"},
			want:     Placement{Branch: "b1", Kind: Rewrite, Kept: 3, Dropped: 2, KeptSize: 300, DroppedSize: 150},
		},
		"what another branch still has is not dead": {
			contexts: [][]string{{"s1", "u1", "a1", "u2", "a2"}, {"s1", "u1", "a1", "u2", "a2", "u3"}},
			busy:     []string{"b2"},
			request:  []string{"s1", "u1", "a1x"},
			want:     Placement{Branch: "b1", Kind: Rewrite, Kept: 2, KeptSize: 200},
		},
		"nothing at all": {
			contexts: [][]string{{"s1", "u1", "a1"}},
			want:     Placement{Branch: "b2", New: true, Kind: SubAgent, Parent: "b1"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			x := newTable(Options{})
			for i, c := range tt.contexts {
				b := fmt.Sprint("b", i+1)
				x.made = i + 1
				if tt.subs && i > 0 {
					x.f.remember(b, placed{sub: true})
				}
				its := items(c...)
				if n := len(its) - 1; its[n].Role == Assistant {
					x.f.Set(b, "", its[:n], 0)
					x.f.Append(b, its[n], 0)
				} else {
					x.f.Set(b, "", its, 0)
				}
			}
			if tt.hint != "" {
				x.f.branches[tt.hint].hinted = true
			}
			for _, b := range tt.busy {
				x.busy[b] = true
			}
			r := Request{Items: items(tt.request...)}
			got := x.place(r)
			if got != tt.want {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
			if len(tt.contexts) > 0 && got.Branch != "" {
				if again := x.f.Place(r, func(b string) bool { return x.busy[b] }, func() string { return got.Branch }); again != got {
					t.Errorf("asked again: %+v", again)
				}
			}
			check(t, x.f)
		})
	}
}

// TestReturn: a superseded context that is asked for again is a branch of its own.
func TestReturn(t *testing.T) {
	x := newTable(Options{})
	step := func(want Placement, texts ...string) {
		t.Helper()
		r := Request{Items: items(texts...)}
		got := x.place(r)
		got.KeptSize, got.DroppedSize = 0, 0
		if got != want {
			t.Fatalf("got  %+v\nwant %+v", got, want)
		}
		x.f.Set(got.Branch, got.Parent, r.Items, 0)
		check(t, x.f)
	}
	step(Placement{Branch: "b1", New: true, Kind: First}, "s1", "u1", "a1", "u2")
	step(Placement{Branch: "b1", Kind: Rewrite, Kept: 3, Dropped: 1}, "s1", "u1", "a1", "u3")
	step(Placement{Branch: "b2", New: true, Kind: Fork, Parent: "b1", Kept: 3, Revived: 4}, "s1", "u1", "a1", "u2", "a2", "u4")
	step(Placement{Branch: "b1", Kind: Continue, Kept: 4}, "s1", "u1", "a1", "u3", "a3", "u5")
	step(Placement{Branch: "b2", Kind: Continue, Kept: 6}, "s1", "u1", "a1", "u2", "a2", "u4", "a4", "u6")
	// A part of a superseded context on the same branch.
	step(Placement{Branch: "b2", Kind: Rewrite, Kept: 5, Dropped: 3}, "s1", "u1", "a1", "u2", "a2", "u7", "a7")
	step(Placement{Branch: "b2", Kind: Rewrite, Kept: 5, Dropped: 2, Revived: 6}, "s1", "u1", "a1", "u2", "a2", "u4", "a9")
}

// TestNearReturn: nearly all of a superseded context is enough for a return.
func TestNearReturn(t *testing.T) {
	x := newTable(Options{})
	x.f.Set("b", "", items("s1", "u1", "a1:5000", "u2", "a2"), 0)
	x.f.Set("b", "", items("s1", "u1x", "a1x:5000", "u2", "a2", "u3"), 0)
	for request, want := range map[string]Kind{"u2": Fork, "u9": Rewrite} {
		r := Request{Items: items("s1", "u1", "a1:5000", request, "a3", "u3")}
		if request == "u9" {
			r.Items = items("s1", "u1", "a9:5000", "u2", "a2")
		}
		if p := x.place(r); p.Kind != want || p.Parent != "" && p.Parent != "b" {
			t.Errorf("%s: %+v", request, p)
		}
	}
}

// TestNamedSubAgent: a sub-agent that the client names is one for its siblings, too.
func TestNamedSubAgent(t *testing.T) {
	for name, tt := range map[string]struct {
		parent string
		want   Kind
	}{"with its parent": {"main", SubAgent}, "without": {"", Compaction}} {
		x := newTable(Options{})
		x.f.Set("main", "", items("s1", "u1"), 0)
		x.f.Set("agent", tt.parent, items("s2:5000", "u2:9000"), 0)
		x.f.Append("agent", item("a2:90000"), 0)
		if p := x.place(Request{Items: items("s2:5000", "u3:9500")}); p.Kind != tt.want {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// TestHint: a turn that is hinted to be a compaction makes the next prompt of its
// branch one, however small, and no later one.
func TestHint(t *testing.T) {
	x := newTable(Options{})
	step := func(hint schemas.TurnHint, want Kind, branch string, texts ...string) {
		t.Helper()
		r := Request{Items: items(texts...), Hint: hint}
		got := x.place(r)
		if got.Kind != want || got.Branch != branch {
			t.Fatalf("got %+v, want %s on %s", got, want, branch)
		}
		x.f.Set(got.Branch, got.Parent, r.Items, 0)
	}
	step("", First, "b1", "s1", "u1")
	step(schemas.HintCompaction, Continue, "b1", "s1", "u1", "a1", "u2")
	step("", Compaction, "b1", "s1", "u9:50")
	step("", SubAgent, "b2", "s1", "u8:50")
	step(schemas.HintCompaction, Continue, "b1", "s1", "u9:50", "a9", "u10")
	step("", Continue, "b1", "s1", "u9:50", "a9", "u10", "a10", "u11") // it went on instead
	step("", SubAgent, "b3", "s1", "u7:50")
}
