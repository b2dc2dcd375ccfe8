package tier

import (
	"context"
	"encoding/hex"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/kvtier/hostmem"
	"github.com/weir-dev/weir/streams"
	"github.com/weir-dev/weir/streams/jsrun"
)

// node runs a tier process on an own NATS and returns a client of its memory.
func node(t *testing.T, change ...func(*Config)) (*nats.Conn, *hostmem.Client) {
	t.Helper()
	topo := streams.Topology(streams.Options{})
	s, err := jsrun.Embedded(jsrun.EmbeddedOptions{Dir: t.TempDir(), Topology: topo})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if err := jsrun.Provision(t.Context(), js, topo); err != nil {
		t.Fatal(err)
	}
	base := ""
	if st, err := os.Stat("/dev/shm"); err == nil && st.IsDir() {
		base = "/dev/shm"
	}
	dir, err := os.MkdirTemp(base, "weirt")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ctx, stop := context.WithCancel(t.Context())
	ready, ended := make(chan struct{}), make(chan error, 1)
	cfg := Config{
		Conn: nc, Cell: "c0", Node: "n7", Dir: dir, Bytes: 1 << 20, Topology: topo, Logger: slog.New(slog.DiscardHandler),
		Peer: "127.0.0.1:0", Ready: func(*hostmem.Daemon) { close(ready) },
	}
	for _, f := range change {
		f(&cfg)
	}
	go func() { ended <- Run(ctx, cfg) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	wait, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c, err := hostmem.Attach(wait, hostmem.Options{Dir: dir, Writer: "w", Pool: "p", BlockBytes: 4096})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return nc, c
}

// TestErase: blocks are removed by their chain's last key; what is read at the
// moment is waited for; bad requests say what is wrong with them.
func TestErase(t *testing.T) {
	nc, c := node(t)
	var parent kvtier.Key
	parent[0] = 1
	var keys []kvtier.Key
	for i := range 5 {
		k, err := kvtier.Chain(parent, i, []int32{7}, nil)
		if err != nil {
			t.Fatal(err)
		}
		slots, err := c.Reserve(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Seal(slots[0], kvtier.Block{Key: k, Parent: parent, Index: i}); err != nil {
			t.Fatal(err)
		}
		keys, parent = append(keys, k), k
	}
	nodes, err := Nodes(t.Context(), nc, "c0")
	if err != nil || len(nodes) != 1 || nodes[0] != "n7" {
		t.Fatalf("nodes %v, %v", nodes, err)
	}
	if other, err := Nodes(t.Context(), nc, "c1"); err != nil || len(other) != 0 {
		t.Errorf("nodes of another cell: %v, %v", other, err)
	}
	last := []string{hex.EncodeToString(keys[4][:])}
	refs := c.Lease(keys)
	// The reader ends when the node is asked a second time: it has said once that
	// blocks are in use.
	asked := 0
	watch, err := nc.Subscribe(EraseSubject("n7"), func(*nats.Msg) {
		if asked++; asked == 2 {
			c.Release(refs)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := Erase(t.Context(), nc, "n7", last); n != 5 || err != nil {
		t.Errorf("erased %d, %v", n, err)
	}
	if n := c.Match(keys); n != 0 {
		t.Errorf("%d blocks are left", n)
	}
	if err := watch.Unsubscribe(); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"xyz", strings.Repeat("0", 63), strings.Repeat("0", 66), strings.Repeat("g", 64)} {
		if _, err := Erase(t.Context(), nc, "n7", []string{bad}); err == nil || !strings.Contains(err.Error(), "64 hex digits") {
			t.Errorf("key %q: %v", bad, err)
		}
	}
	if rep := erase(nil, []byte("[")); rep.Error == "" {
		t.Error("a request that is no JSON was taken")
	}
}
