package replay

import (
	"cmp"
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weir-dev/weir/kvtier/workload"
	"github.com/weir-dev/weir/schemas"
)

// drawSchedule makes a small load of all that a load may hold: sessions of two tenants,
// several lines, prompts that go on, part, shrink and share global blocks, reasoning.
func drawSchedule(t *rapid.T) *workload.Schedule {
	s := &workload.Schedule{Name: "random", Seed: 7}
	sessions := rapid.IntRange(1, 4).Draw(t, "sessions")
	next := make([]int32, sessions)
	type line struct {
		prompt []workload.Run
		in     int32
		free   int64
	}
	lines := map[[2]int32]*line{}
	for i := range sessions {
		tenant := "a"
		if i%3 == 2 {
			tenant = "b"
		}
		s.Sessions = append(s.Sessions, workload.Session{ID: "s" + string(rune('0'+i)), Tenant: tenant})
	}
	now := int64(0)
	for range rapid.IntRange(1, 30).Draw(t, "calls") {
		session := int32(rapid.IntRange(0, sessions-1).Draw(t, "session"))
		number := int32(rapid.IntRange(0, 2).Draw(t, "line"))
		l := lines[[2]int32{session, number}]
		if l == nil {
			l = &line{}
			if from := lines[[2]int32{session, 0}]; from != nil && rapid.Bool().Draw(t, "fork") {
				l.prompt, l.in = from.prompt, from.in
			} else if n := rapid.Int32Range(0, 3).Draw(t, "global"); n > 0 {
				l.prompt, l.in = []workload.Run{{From: workload.Global, N: n}}, n*blockTokens
			}
			lines[[2]int32{session, number}] = l
		}
		keep := l.prompt
		switch rapid.IntRange(0, 4).Draw(t, "how") {
		case 0:
			keep = prefix(keep, rapid.Int32Range(0, int32(blocksOf(keep))).Draw(t, "kept"))
			if blocksOf(keep) == 0 {
				keep = nil
			}
			l.in = int32(blocksOf(keep)) * blockTokens
		case 1: // the same prompt again
		default:
			l.in += rapid.Int32Range(1, 200).Draw(t, "grown")
		}
		l.in = max(l.in, 1)
		if n := l.in/blockTokens - int32(blocksOf(keep)); n > 0 {
			keep = append(keep[:len(keep):len(keep)], workload.Run{From: next[session], N: n})
			next[session] += n
		}
		l.prompt = keep
		now = max(now+rapid.Int64Range(1, 40).Draw(t, "gap")*1e9+1, l.free)
		c := workload.Call{
			At: now, For: rapid.Int64Range(0, 20).Draw(t, "for") * 1e9, Session: session, Line: number, In: l.in, Out: rapid.Int32Range(0, 150).Draw(t, "out"),
			Prompt: keep, Finish: workload.Finish(rapid.IntRange(0, 1).Draw(t, "finish")), Tool: rapid.SampledFrom([]string{"", "read", "shell"}).Draw(t, "tool"),
		}
		c.Dropped = rapid.Int32Range(0, c.Out).Draw(t, "dropped") * int32(rapid.IntRange(0, 1).Draw(t, "thinks"))
		kind := schemas.EventUserWait
		if c.Finish == workload.FinishTools {
			kind = schemas.EventToolWait
		}
		c.Say = []workload.Say{{Kind: string(kind), Line: number, Tool: c.Tool}}
		if rapid.IntRange(0, 9).Draw(t, "end") == 0 {
			c.Say = append(c.Say, workload.Say{Kind: string(schemas.EventSessionEnd), After: 5})
		}
		l.free = c.At + c.For + 10
		s.Calls = append(s.Calls, c)
	}
	return s
}

func record(t *rapid.T, s *workload.Schedule, mode Mode) *Log {
	l, err := Record(s, mode)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestRandomLoads: every load is recorded, with the keys that an executor would compute
// (Record compares them), nothing beats the bound, and equal loads give equal bytes.
func TestRandomLoads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSchedule(t)
		blocks := rapid.Int64Range(1, 40).Draw(t, "capacity")
		bound := map[Mode]int64{}
		for _, mode := range []Mode{Explicit, Inferred} {
			l := record(t, s, mode)
			if l.Lineage.Turns != uint64(len(s.Calls)) {
				t.Fatalf("%d of %d calls became ready", l.Lineage.Turns, len(s.Calls))
			}
			best, err := Run(l, Belady, blocks*blockTokens)
			if err != nil {
				t.Fatal(err)
			}
			bound[mode] = best.Found
			for _, p := range policies {
				r, err := Run(l, p, blocks*blockTokens)
				if err != nil {
					t.Fatal(err)
				}
				if r.Found > best.Found {
					t.Fatalf("%s finds %d tokens, the bound is %d", p, r.Found, best.Found)
				}
				again, err := Run(record(t, s, mode), p, blocks*blockTokens)
				if err != nil {
					t.Fatal(err)
				}
				a, _ := json.Marshal(r)
				b, _ := json.Marshal(again)
				if string(a) != string(b) {
					t.Fatalf("twice the same:\n%s\n%s", a, b)
				}
			}
		}
		if bound[Explicit] != bound[Inferred] {
			t.Fatalf("the bound is %d tokens, or %d when agents say nothing", bound[Explicit], bound[Inferred])
		}
	})
}

// simple is a cache of blocks in a map, with all that a rule may ask for: what the
// policies are, in the shortest form.
type simple struct {
	log   *Log
	room  int
	in    map[int32]bool
	use   map[int32]int64 // when a block was used last
	clock int64           // of uses one by one
	turn  map[int32]int64
	until map[int32]int64
	refs  map[int32]int
	own   map[int32]bool // blocks of the operation in progress
	tied  bool           // two blocks were equal where one had to go
	found int64
}

func (c *simple) leaf(b int32) bool {
	for k := range c.in {
		if c.log.Blocks[k].Parent == b {
			return false
		}
	}
	return true
}

// play runs the log. victim orders the blocks that may go; those of the operation in
// progress may when own is set. leaves is whether only leaves may.
func (c *simple) play(own, leaves bool, order func(now int64, a, b int32) int, ended func(now int64, call int32)) {
	ends := map[int32]int64{}
	for _, o := range c.log.Ops {
		if o.Kind == OpEnd {
			ends[o.Call] = o.At
		}
	}
	for _, o := range c.log.Ops {
		if o.Kind == OpBranch {
			continue
		}
		call := &c.log.Calls[o.Call]
		path := []int32{}
		call.each(call.Blocks, func(_, b int32) bool { path = append(path, b); return true })
		from, to := call.Look, call.Blocks
		if o.Kind == OpStart {
			from, to = 0, call.Look
			for _, b := range path[:to] {
				if !c.in[b] {
					break
				}
				c.found += blockTokens
			}
		}
		c.own = map[int32]bool{}
		for _, b := range path[:to] {
			c.own[b] = true
		}
		full := false
		for _, b := range path[from:to] {
			c.clock++
			c.use[b], c.turn[b] = o.At, c.clock
			if o.Kind == OpStart {
				c.until[b] = max(c.until[b], ends[o.Call])
			}
			if c.in[b] {
				continue
			}
			if len(c.in) == c.room && !full {
				var may []int32
				for k := range c.in {
					if (own || !c.own[k]) && (!leaves || c.leaf(k)) {
						may = append(may, k)
					}
				}
				// The table takes a leased leaf that it meets as used now.
				met := func(k int32) bool {
					return c.in[k] && c.leaf(k) && (len(may) == 0 || order(o.At, k, slices.MinFunc(may, func(a, b int32) int { return order(o.At, a, b) })) <= 0)
				}
				c.tied = c.tied || slices.ContainsFunc(path[:from], met)
				if full = len(may) == 0; !full {
					goes := slices.MinFunc(may, func(a, b int32) int { return cmp.Or(order(o.At, a, b), cmp.Compare(a, b)) })
					c.tied = c.tied || slices.ContainsFunc(may, func(k int32) bool { return k != goes && order(o.At, k, goes) == 0 })
					delete(c.in, goes)
				}
			}
			if !full {
				c.in[b] = true
			}
		}
		if o.Kind == OpEnd && ended != nil {
			ended(o.At, o.Call)
		}
	}
}

func newSimple(l *Log, room int) *simple {
	return &simple{
		log: l, room: room, in: map[int32]bool{}, use: map[int32]int64{}, turn: map[int32]int64{}, until: map[int32]int64{}, refs: map[int32]int{},
	}
}

// byUse is leaf-first LRU: last use, deeper blocks first.
func (c *simple) byUse(_ int64, a, b int32) int {
	return cmp.Or(cmp.Compare(c.use[a], c.use[b]), cmp.Compare(c.log.Blocks[b].Index, c.log.Blocks[a].Index))
}

// TestBaselines: each baseline finds what its shortest form finds.
func TestBaselines(t *testing.T) {
	clear := 0 // loads in which leaf-first LRU left nothing open
	rapid.Check(t, func(t *rapid.T) {
		l := record(t, drawSchedule(t), Explicit)
		room := rapid.IntRange(1, 40).Draw(t, "capacity")
		tied := false
		for p, found := range map[Policy]func() int64{
			LRU: func() int64 {
				c := newSimple(l, room)
				c.play(true, false, func(_ int64, a, b int32) int { return cmp.Compare(c.turn[a], c.turn[b]) }, nil)
				return c.found
			},
			LeafLRU: func() int64 {
				c := newSimple(l, room)
				c.play(false, true, c.byUse, nil)
				if tied = c.tied; !tied {
					clear++
				}
				return c.found
			},
			TTL: func() int64 {
				c, rule := newSimple(l, room), pins(l)
				c.play(false, true, func(now int64, a, b int32) int {
					x, y := c.until[a], c.until[b]
					if x <= now {
						x = 0
					}
					if y <= now {
						y = 0
					}
					return cmp.Or(cmp.Compare(x, y), c.byUse(now, a, b))
				}, func(now int64, call int32) {
					l.Calls[call].each(l.Calls[call].Blocks, func(_, b int32) bool {
						c.until[b] = max(c.until[b], now+rule.ttl[l.waits[call].class])
						return true
					})
				})
				return c.found
			},
			Belady: func() int64 { return bestOrder(l, room) },
		} {
			r, err := Run(l, p, int64(room)*blockTokens)
			if err != nil {
				t.Fatal(err)
			}
			// Of blocks that are equal in use and depth the table gives up the one in the
			// lower slot, and it looks at leases only where it must.
			tied = false
			if want := found(); r.Found != want && !tied {
				t.Fatalf("%s finds %d tokens, its shortest form %d", p, r.Found, want)
			}
		}
	})
	if clear == 0 {
		t.Error("every load left something open")
	}
	t.Logf("%d loads left nothing open", clear)
}

// bestOrder is Belady's rule as a textbook has it: look ahead for the next use of each
// block, keep those that are used soonest, ties less deep first.
func bestOrder(l *Log, room int) (found int64) {
	next := func(b int32, from int) int {
		for i := from; i < len(l.Ops); i++ {
			if o := &l.Ops[i]; o.Kind == OpStart {
				c, hit := &l.Calls[o.Call], false
				c.each(c.Look, func(_, k int32) bool { hit = hit || k == b; return !hit })
				if hit {
					return i
				}
			}
		}
		return math.MaxInt
	}
	var in []int32
	for i := range l.Ops {
		o := &l.Ops[i]
		if o.Kind == OpBranch {
			continue
		}
		c := &l.Calls[o.Call]
		from, to := c.Look, c.Blocks
		if o.Kind == OpStart {
			from, to = 0, c.Look
			c.each(to, func(_, b int32) bool {
				if slices.Contains(in, b) {
					found += blockTokens
					return true
				}
				return false
			})
		}
		c.each(to, func(k, b int32) bool {
			if k >= from && !slices.Contains(in, b) {
				in = append(in, b)
			}
			return true
		})
		at := map[int32]int{}
		for _, b := range in {
			at[b] = next(b, i+1)
		}
		slices.SortFunc(in, func(a, b int32) int {
			return cmp.Or(cmp.Compare(at[a], at[b]), cmp.Compare(l.Blocks[a].Index, l.Blocks[b].Index))
		})
		in = in[:min(len(in), room)]
		in = slices.DeleteFunc(in, func(b int32) bool { return at[b] == math.MaxInt })
	}
	return found
}

// TestNames: a text stands for the same tokens wherever it is read.
func TestNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		session := rapid.Int32Range(0, 1<<20).Draw(t, "session")
		var ps []piece
		for range rapid.IntRange(0, 5).Draw(t, "pieces") {
			ps = append(ps, piece{rapid.Int32Range(0, 1<<30).Draw(t, "id"), rapid.Int32Range(0, blockTokens-1).Draw(t, "off"), rapid.Int32Range(1, 300).Draw(t, "n")})
		}
		s, got, err := parseName(appendName(nil, session, ps), nil)
		if err != nil || s != session || !reflect.DeepEqual(appendTokens(nil, s, got), appendTokens(nil, session, ps)) {
			t.Fatalf("%d %v: read as %d %v: %v", session, ps, s, got, err)
		}
	})
}

func FuzzParseName(f *testing.F) {
	f.Add([]byte("s1:2.3+4,5.6+7"))
	f.Fuzz(func(t *testing.T, b []byte) {
		session, ps, err := parseName(b, nil)
		if err != nil {
			return
		}
		for _, p := range ps {
			if p.id < 0 || p.off < 0 || p.off >= blockTokens || p.n < 0 || p.n > workload.MaxTokens || session < -1<<31 {
				t.Fatalf("%q is read as %+v", b, p)
			}
		}
	})
}
