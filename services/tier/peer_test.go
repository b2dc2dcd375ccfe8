package tier

import (
	"os"
	"testing"
	"time"

	"github.com/weir-dev/weir/kvtier/hostmem"
	"github.com/weir-dev/weir/kvtier/peer"
	"github.com/weir-dev/weir/schemas"
)

// TestPeer: a node says in its notices and lists where its blocks can be had, and they
// can be had there.
func TestPeer(t *testing.T) {
	nc, c := node(t)
	sub, err := nc.SubscribeSync(schemas.KVSubject("c0", "n7"))
	if err != nil {
		t.Fatal(err)
	}
	keys := sealChain(t, c, 7, 5)
	m, err := sub.NextMsg(10 * time.Second)
	if err != nil {
		t.Fatal(err)
	}
	var n schemas.KVNotice
	if err := schemas.Decode(m.Data, &n); err != nil {
		t.Fatal(err)
	}
	body, err := schemas.Encode(&schemas.SyncRequest{Header: schemas.H()})
	if err != nil {
		t.Fatal(err)
	}
	if m, err = nc.Request(schemas.SyncSubject("n7"), body, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	var r schemas.SyncReply
	if err := schemas.Decode(m.Data, &r); err != nil {
		t.Fatal(err)
	}
	if n.Peer == "" || n.Peer != r.Peer {
		t.Fatalf("the notice says %q, the list %q", n.Peer, r.Peer)
	}
	base := ""
	if st, err := os.Stat("/dev/shm"); err == nil && st.IsDir() {
		base = "/dev/shm"
	}
	dir, err := os.MkdirTemp(base, "weirt")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	d, err := hostmem.NewDaemon(hostmem.Config{Dir: dir, Bytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	near, err := hostmem.Attach(t.Context(), hostmem.Options{Dir: dir, Writer: "w", Pool: "p", BlockBytes: 4096})
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	client := peer.NewClient(near, peer.Options{})
	defer client.Close()
	if res, err := client.Fetch(t.Context(), n.Peer, keys); err != nil || res.Brought != 5 || near.Match(keys) != 5 {
		t.Errorf("%+v, %v", res, err)
	}
}

func TestReachable(t *testing.T) {
	name := func() (string, error) { return "box", nil }
	for in, want := range map[string]string{
		"127.0.0.1:4": "127.0.0.1:4", "10.1.2.3:4": "10.1.2.3:4", "[::1]:4": "[::1]:4", "0.0.0.0:4": "box:4", "[::]:4": "box:4",
	} {
		if got, err := reachable(in, name); got != want || err != nil {
			t.Errorf("%s is reached at %s, %v, want %s", in, got, err, want)
		}
	}
	if _, err := reachable("nonsense", name); err == nil {
		t.Error("an address without a port is taken")
	}
}
