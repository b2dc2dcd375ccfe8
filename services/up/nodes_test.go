package up

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/weir-dev/weir/services/model"
	"github.com/weir-dev/weir/services/serve"
)

// TestNodes: executors are spread over the nodes in turn, each node has its share of
// the memory and a folder of its own, and what makes no sense is refused with a reason.
func TestNodes(t *testing.T) {
	for _, c := range []struct {
		name  string
		nodes int
		set   func(*Options)
		bad   string
		want  []string // id, node, memory in MiB and folder of each tier and executor
	}{
		{name: "default", want: []string{"tier n0 64 /m", "p0 n0 64 /m", "d0 n0 64 /m", "d1 n0 64 /m"}},
		{name: "named", nodes: 1, set: func(o *Options) { o.Node = "h" }, want: []string{"tier h 64 /m", "p0 h 64 /m", "d0 h 64 /m", "d1 h 64 /m"}},
		{name: "two", nodes: 2, want: []string{
			"tier-n0 n0 32 /m-n0", "tier-n1 n1 32 /m-n1", "p0 n0 32 /m-n0", "d0 n1 32 /m-n1", "d1 n0 32 /m-n0",
		}},
		{name: "more than executors", nodes: 4, bad: "there are 3 executors"},
		{name: "negative", nodes: -1, bad: "allowed are 1 to 16"},
		{name: "too many", nodes: 17, bad: "allowed are 1 to 16"},
		{name: "two named", nodes: 2, set: func(o *Options) { o.Node = "h" }, bad: "--node names one host"},
		{name: "one port", nodes: 2, set: func(o *Options) { o.PeerAddr = "127.0.0.1:7000" }, bad: "need a port each"},
		{name: "no memory", nodes: 2, set: func(o *Options) { o.KVMem = 1 << 20 }, bad: "at least 1MiB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := Options{Options: serve.Defaults(), Prefill: 1, Decode: 2, Nodes: c.nodes}
			o.KVMem, o.Arena = 64<<20, "/m"
			if c.set != nil {
				c.set(&o)
			}
			if err := checkNodes(&o); c.bad != "" {
				if !errors.Is(err, serve.ErrUsage) || !strings.Contains(err.Error(), c.bad) {
					t.Errorf("error %v, want %q", err, c.bad)
				}
				return
			} else if err != nil {
				t.Fatal(err)
			}
			s := &stack{o: o, nodes: nodesOf(&o), model: noModel()}
			var got []string
			for _, ch := range s.children()[1:] {
				flag := func(name string) string { return ch.args[slices.Index(ch.args, name)+1] }
				got = append(got, strings.Join([]string{ch.id, flag("--node"), mib(t, flag("--kv-mem")), flag("--kv-dir")}, " "))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("children\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

func noModel() *model.Model { return &model.Model{} }

func mib(t *testing.T, bytes string) string {
	t.Helper()
	n, err := strconv.ParseInt(bytes, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return strconv.FormatInt(n>>20, 10)
}
