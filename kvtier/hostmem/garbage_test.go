package hostmem

import (
	"bufio"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func dialRaw(t *testing.T, dir string) net.Conn {
	t.Helper()
	nc, err := net.Dial("unix", filepath.Join(dir, socketName))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
	return nc
}

// TestWaitingOfLostConnection: what a connection waits for when its client comes back on
// another one is given to nobody, and lost to nobody.
func TestWaitingOfLostConnection(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	n := newNonce()
	lock, err := lockFile(filepath.Join(dir, writersFolder, "raw"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lock.Close() })
	if _, err := lock.WriteAt(n[:], 0); err != nil {
		t.Fatal(err)
	}
	hello := message{Op: opHello, Proto: protoVersion, Writer: "raw", Nonce: n.String(), Pool: testPool, Block: testBlock}
	join := func() (net.Conn, *bufio.Reader) {
		nc := dialRaw(t, dir)
		if _, err := nc.Write(encode(hello)); err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReaderSize(nc, maxLine)
		if m, err := readMessage(r); err != nil || m.Op != opWelcome {
			t.Fatalf("%+v, %v", m, err)
		}
		return nc, r
	}
	nc, r := join()
	all := stats(t, d).Total
	for i, ask := range []message{{Op: opReserve, ID: 1, N: all}, {Op: opReserve, ID: 2, N: 1, WaitMS: 9000}} {
		if _, err := nc.Write(encode(ask)); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			if m, err := readMessage(r); err != nil || len(m.Slots) != all {
				t.Fatalf("%d slots, %v", len(m.Slots), err)
			}
		}
	}
	until(t, "it waits", func() bool { return stats(t, d).Waiting == 1 })
	join() // it says that it holds nothing
	if s := stats(t, d); s.Reserved != 0 || s.Waiting != 0 {
		t.Errorf("%d slots are reserved and %d wait for a connection that has ended", s.Reserved, s.Waiting)
	}
	checkTier(t, d)
}

// Whoever talks nonsense is cut off or refused; others do not notice.
func TestGarbageClientsAreCutOff(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	c := attach(t, dir, "w")
	for _, tc := range []struct{ name, text string }{
		{"no JSON", "GET / HTTP/1.1\r\n\r\n"},
		{"too long", strings.Repeat("x", maxLine+1)},
		{"reserve before hello", `{"op":"reserve","id":1,"n":1}` + "\n"},
		{"unknown op", `{"op":"format"}` + "\n"},
		{"too many slots", `{"op":"sealed","slots":[` + strings.Repeat("[0,0],", maxRefs) + "[0,0]]}\n"},
		{"wrong types", `{"op":7}` + "\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			nc := dialRaw(t, dir)
			_, _ = nc.Write([]byte(tc.text)) // the daemon may close before it has all
			if _, err := bufio.NewReader(nc).ReadString('\n'); err == nil {
				t.Error("the daemon answers")
			}
		})
	}
	for _, tc := range []struct{ name, text, want string }{
		{"other protocol", `{"op":"hello","proto":99}`, "protocol 99"},
		{"no nonce", `{"op":"hello","proto":3}`, "nonce"},
		{"bad writer", `{"op":"hello","proto":3,"nonce":"` + strings.Repeat("0", 32) + `","writer":"../x","pool":"p","block":1}`, "writer id"},
		{"bad pool", `{"op":"hello","proto":3,"nonce":"` + strings.Repeat("0", 32) + `","writer":"x","pool":"p","block":-1}`, "blocks of -1"},
		{"stolen name", `{"op":"hello","proto":3,"nonce":"` + strings.Repeat("0", 32) + `","writer":"w","pool":"p","block":1}`, "does not hold its lock"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			nc := dialRaw(t, dir)
			if _, err := nc.Write([]byte(tc.text + "\n")); err != nil {
				t.Fatal(err)
			}
			if got, err := bufio.NewReader(nc).ReadString('\n'); err != nil || !strings.Contains(got, tc.want) {
				t.Errorf("%q, %v, want an error with %q", got, err, tc.want)
			}
		})
	}
	mustPut(t, c, testChain("a", 3)...)
	until(t, "known", func() bool { return stats(t, d).Sealed == 3 })
	if s := stats(t, d); s.Clients != 1 {
		t.Errorf("%d clients, want 1", s.Clients)
	}
	checkTier(t, d)
}

// A client that holds its lock but sends wrong slots changes nothing that is not its own.
func TestLyingClient(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	c := attach(t, dir, "w")
	mustPut(t, c, testChain("a", 3)...)
	until(t, "known", func() bool { return stats(t, d).Sealed == 3 })
	liar := attach(t, dir, "liar")
	liar.out.mu.Lock()
	for i := range uint64(300) {
		liar.out.seals = append(liar.out.seals, slotRef{i, 1}, slotRef{i << 33, 2})
		liar.out.drops = append(liar.out.drops, slotRef{i, 1}, slotRef{1<<64 - 1, 1})
	}
	liar.out.wake()
	liar.out.mu.Unlock()
	mustPut(t, liar, testChain("b", 2)...)
	until(t, "all known", func() bool { return stats(t, d).Sealed == 5 })
	checkTier(t, d)
	if n := c.Match(keysOf(testChain("a", 3))); n != 3 {
		t.Errorf("%d of 3 blocks are left", n)
	}
}

func FuzzDaemonMessages(f *testing.F) {
	f.Add(`{"op":"reserve","id":1,"n":1}`)
	f.Add(`{"op":"sealed","slots":[[1,2]]}`)
	f.Fuzz(func(t *testing.T, line string) {
		m, err := readMessage(bufio.NewReaderSize(strings.NewReader(line+"\n"), maxLine))
		if err != nil {
			return
		}
		if len(m.Slots) > maxRefs || len(m.Held) > maxRefs {
			t.Errorf("%d and %d slots", len(m.Slots), len(m.Held))
		}
		for _, r := range reservations(m.Slots) {
			if int64(r.Slot) > maxPoolSlots*2 {
				t.Errorf("slot %d", r.Slot)
			}
		}
	})
}
