package up

import (
	"fmt"
	"net"
	"strconv"

	"github.com/weir-dev/weir/services/serve"
)

// node is a tier node of the stack: a tier process and its memory.
type node struct {
	id    string
	tier  string // id of the process
	arena string
	bytes int64
}

// maxNodes bounds --nodes.
const maxNodes = 16

func checkNodes(o *Options) error {
	if o.Nodes == 0 {
		o.Nodes = 1
	}
	switch {
	case o.Nodes < 1 || o.Nodes > maxNodes:
		return fmt.Errorf("%w: --nodes is %d, allowed are 1 to %d", serve.ErrUsage, o.Nodes, maxNodes)
	case o.Nodes == 1:
		return nil
	case o.Nodes > o.Prefill+o.Decode+o.Mixed:
		return fmt.Errorf("%w: --nodes is %d, but there are %d executors; a node without one is of no use", serve.ErrUsage, o.Nodes, o.Prefill+o.Decode+o.Mixed)
	case o.Node != serve.Defaults().Node:
		return fmt.Errorf("%w: --node names one host, but --nodes asks for %d, which are called n0, n1 and so on; give one of the two", serve.ErrUsage, o.Nodes)
	case fixedPort(o.PeerAddr):
		return fmt.Errorf("%w: --peer-addr is %q, but %d nodes of one machine need a port each; name port 0", serve.ErrUsage, o.PeerAddr, o.Nodes)
	case o.KVMem/int64(o.Nodes) < 1<<20:
		return fmt.Errorf("%w: --kv-mem is %d bytes for %d nodes, each needs at least 1MiB", serve.ErrUsage, o.KVMem, o.Nodes)
	}
	return nil
}

// fixedPort: an address that only one process can listen on.
func fixedPort(addr string) bool {
	_, port, err := net.SplitHostPort(addr)
	return err == nil && port != "0"
}

// nodesOf are the nodes of a stack. With one node names are those of a single host.
func nodesOf(o *Options) []node {
	if o.Nodes == 1 {
		return []node{{id: o.Node, tier: "tier", arena: o.Arena, bytes: o.KVMem}}
	}
	ns := make([]node, o.Nodes)
	for i := range ns {
		id := "n" + strconv.Itoa(i)
		ns[i] = node{id: id, tier: "tier-" + id, arena: o.Arena + "-" + id, bytes: o.KVMem / int64(o.Nodes)}
	}
	return ns
}

func arenas(ns []node) []string {
	dirs := make([]string, len(ns))
	for i, n := range ns {
		dirs[i] = n.arena
	}
	return dirs
}
