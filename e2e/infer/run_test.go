package infer

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weir-dev/weir/kvtier/branch"
)

func sharedDir(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		s := filepath.Join(dir, "shared")
		if _, err := os.Stat(filepath.Join(s, "traces")); err == nil {
			return s
		}
		if dir == filepath.Dir(dir) {
			t.Skip("there is no folder shared/traces above this one")
		}
	}
}

func TestExplore(t *testing.T) {
	dir := sharedDir(t)
	start := time.Now()
	into := map[branch.Kind]*count{}
	for _, k := range []branch.Kind{branch.SubAgent, branch.Fork, branch.Compaction, branch.Rewrite} {
		into[k] = &count{}
	}
	conf := map[[2]branch.Kind]int{}
	n, items, maxItems, sub := 0, 0, 0, 0
	err := readWeka(filepath.Join(dir, "traces/weka-cc-traces/weka_cc_710.rle.jsonl.gz"), func(s *wekaSession) error {
		num, err := s.number()
		if err != nil {
			return err
		}
		if (num%2 == 1) != (os.Getenv("HALF") != "even") {
			return nil
		}
		calls := s.stream()
		ls := labels(calls)
		placed := replay(calls, branch.Options{})
		score(calls, ls, placed, into)
		for i, c := range calls {
			n++
			items += len(c.items)
			maxItems = max(maxItems, len(c.items))
			if c.first && c.line > 0 {
				sub++
			}
			k := placed[i].Kind
			if k == branch.Rewrite && !weighty(placed[i]) {
				k = "rewrite~"
			}
			if string(ls[i].kind) != string(k) && os.Getenv("VERBOSE") != "" && !(ls[i].kind == "continue" && k == "rewrite~") {
				la := 0
				if ls[i].prev >= 0 {
					la = calls[ls[i].prev].blocks
				}
				t.Logf("%s %d line %d label %s inferred %s kept %d dropped %d | before %d now %d lead %d lost %.2f rev %d types %v", s.ID, i, c.line, ls[i].kind, k, placed[i].KeptSize/64, placed[i].DroppedSize/64, la, c.blocks, c.lead, ls[i].lost, placed[i].Revived, c.InputTypes)
			}
			conf[[2]branch.Kind{ls[i].kind, k}]++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(n, "requests", items, "items, at most", maxItems, "sub", sub, time.Since(start))
	for k, c := range into {
		t.Log(k, c.String(), c.figures(string(k)))
	}
	for k, v := range conf {
		t.Log(k, v)
	}
}
