package peer

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/kvtier/hostmem"
)

// Every bit that changes on the way, in either direction and wherever it is, is
// noticed; blocks that come are right, and slots are given back.
func TestFlippedBits(t *testing.T) {
	noLeak(t)
	const block = 4096
	far, near := newNodeOf(t, 4<<20, block), newNodeOf(t, 4<<20, block)
	chain := testChain("a", 12)
	put(t, far.mem, chain...)
	srv := newServer(t, far.dir)
	quick := func(o *Options) {
		o.BackoffMin, o.BackoffMax = time.Microsecond, time.Microsecond
		o.ReadTimeout, o.DialTimeout = 100*time.Millisecond, 100*time.Millisecond
		o.Streams = 1
	}
	once := func(p *proxy, change func(*Options)) (res Result, err error) {
		c := newClient(t, near.mem, change)
		defer c.Close()
		near.empty(t, chain)
		chainGot, err := c.List(t.Context(), p.addr(), kvtier.Extent{Key: chain[11].Key, N: 12})
		if err != nil {
			return res, err
		}
		if len(chainGot) != 12 {
			return res, errors.New("a list of other blocks")
		}
		for i := range chainGot {
			if chainGot[i] != chain[i] {
				t.Fatalf("listed %+v, sealed was %+v", chainGot[i], chain[i])
			}
		}
		res, err = c.Fetch(t.Context(), p.addr(), keysOf(chain))
		checkResult(t, res)
		if n := checkBlocks(t, near.mem, chain); n != res.Brought {
			t.Fatalf("%d blocks are here, %d came", n, res.Brought)
		}
		return res, err
	}
	plain := newProxy(t, srv.Addr())
	if res, err := once(plain, func(o *Options) { o.Streams = 1 }); err != nil || res.Brought != 12 {
		t.Fatalf("unharmed: %+v, %v", res, err)
	}
	down, up := plain.down.Load(), plain.up.Load()
	rng := rand.New(rand.NewPCG(1, 1))
	missed, corrupt := 0, 0
	try := func(p *proxy) {
		bad := srv.Stats().Bad
		res, err := once(p, quick)
		// A request that changed ends its connection; if that had been used before, the
		// request is sent again on a new one.
		if err == nil && res.Corrupt == 0 && srv.Stats().Bad == bad {
			missed++
			t.Errorf("a flip of byte %d down, %d up is not noticed: %+v", p.flipAt.Load(), p.flipUp.Load(), res)
		}
		corrupt += res.Corrupt
		p.close()
	}
	for i := range 150 {
		p := newProxy(t, srv.Addr())
		at := int64(rng.IntN(int(down)))
		if i < 100 { // heads are few among the bytes: the first ones, and those before each block
			at = int64(i) % 72
			if i >= 50 {
				at = max(0, down-int64(1+i%12)*(block+blockBytes)+int64(rng.IntN(blockBytes)))
			}
		}
		p.flipAt.Store(at)
		try(p)
	}
	for range 60 {
		p := newProxy(t, srv.Addr())
		p.flipUp.Store(int64(rng.IntN(int(up))))
		try(p)
	}
	if corrupt == 0 || missed > 0 {
		t.Errorf("%d blocks were corrupt, %d flips missed", corrupt, missed)
	}
	near.settled(t)
	far.settled(t)
}

// Whoever has another token, pool, block size or protocol is refused, and told why.
func TestRefused(t *testing.T) {
	noLeak(t)
	far, near := newNode(t, 4<<20), newNode(t, 4<<20)
	chain := testChain("a", 3)
	put(t, far.mem, chain...)
	put(t, near.mem, chain...)
	open, closed := newServer(t, far.dir), newServer(t, far.dir, func(c *ServerConfig) { c.Token = "secret" })
	other := newNodeOf(t, 4<<20, 2*testBlock)
	stranger, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	go func() {
		for {
			nc, err := stranger.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(nc, "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n")
			_ = nc.Close()
		}
	}()
	for name, q := range map[string]struct {
		mem   node
		addr  string
		token string
		want  error
		text  string
	}{
		"no token":       {near, closed.Addr(), "", ErrToken, "differ"},
		"wrong token":    {near, closed.Addr(), "secreT", ErrToken, "differ"},
		"token too many": {near, open.Addr(), "secret", ErrToken, "differ"},
		"right token":    {near, closed.Addr(), "secret", nil, ""},
		"block size":     {other, open.Addr(), "", ErrNoPool, testPool},
		"no weir node":   {near, stranger.Addr().String(), "", ErrVersion, "SSH"},
		"nobody":         {near, "127.0.0.1:1", "", nil, ""},
	} {
		c := newClient(t, q.mem.mem, func(o *Options) { o.Token = q.token })
		q.mem.empty(t, chain)
		res, err := c.Fetch(t.Context(), q.addr, keysOf(chain))
		checkResult(t, res)
		switch {
		case name == "right token":
			if err != nil || res.Brought != 3 {
				t.Errorf("%s: %+v, %v", name, res, err)
			}
		case name == "nobody":
			if err == nil || res.Lost != 3 {
				t.Errorf("%s: %+v, %v", name, res, err)
			}
		case !errors.Is(err, q.want) || !strings.Contains(err.Error(), q.text) || res.Lost != 3:
			t.Errorf("%s: %+v, %v", name, res, err)
		}
		if _, err := c.List(t.Context(), q.addr, kvtier.Extent{Key: chain[2].Key, N: 3}); q.token != "secret" && !errors.Is(err, ErrAway) {
			t.Errorf("%s: tried again at once: %v", name, err)
		}
	}
	if s, _ := far.d.Stats(); len(s) != 1 {
		t.Errorf("a request made a pool: %d pools", len(s))
	}
}

// An impostor that does not know the token is not believed.
func TestImpostor(t *testing.T) {
	noLeak(t)
	near := newNode(t, 4<<20)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		nc, err := ln.Accept()
		if err != nil {
			return
		}
		defer nc.Close()
		mine := newNonce()
		_, _ = nc.Write(appendGreeting(nil, mine))
		h, _ := readHello(nc)
		_, _ = nc.Write(appendWelcome(nil, statusOK, "", h.mac)) // it sends back what it was sent
		_, _ = io.Copy(io.Discard, nc)
	}()
	c := newClient(t, near.mem, func(o *Options) { o.Token = "secret" })
	if _, err := c.Fetch(t.Context(), ln.Addr().String(), keysOf(testChain("a", 1))); !errors.Is(err, ErrToken) {
		t.Errorf("%v", err)
	}
}

// A port that other hosts reach needs a token.
func TestOpenPort(t *testing.T) {
	far := newNode(t, 4<<20)
	if s, err := Serve(ServerConfig{Dir: far.dir, Addr: "0.0.0.0:0"}); !errors.Is(err, ErrOpen) {
		t.Errorf("%v, %v", s, err)
	}
	newServer(t, far.dir, func(c *ServerConfig) { c.Addr, c.Token = "0.0.0.0:0", "secret" })
	if _, err := Serve(ServerConfig{MaxConns: -1}); err == nil {
		t.Error("a bad configuration is taken")
	}
}

// A receiver that does not read is cut off, and its blocks may be evicted.
func TestStuckReceiver(t *testing.T) {
	noLeak(t)
	const block = 1 << 20
	far := newNodeOf(t, 64<<20, block)
	chain := testChain("a", 40)
	put(t, far.mem, chain...)
	srv := newServer(t, far.dir, func(c *ServerConfig) { c.LeaseTime = 200 * time.Millisecond })
	cn, err := dial(t.Context(), srv.Addr(), hello{pool: testPool, block: block}, Options{DialTimeout: time.Second, ReadTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer cn.nc.Close()
	if err := cn.ask(request{op: opGet, n: 40, keys: keysOf(chain)}); err != nil {
		t.Fatal(err)
	}
	leased := 0
	until(t, "it is cut off", func() bool {
		s, err := far.d.Stats()
		if err != nil {
			t.Fatal(err)
		}
		leased = max(leased, s[0].Leased)
		return srv.Stats().CutOff == 1
	})
	if leased > sendBytes/block {
		t.Errorf("%d blocks were leased at once, at most %d", leased, sendBytes/block)
	}
	far.settled(t)
}

// A node that sends slowly costs no more than the caller's time.
func TestSlowPeer(t *testing.T) {
	noLeak(t)
	far, near := newNode(t, 32<<20), newNode(t, 32<<20)
	chain := testChain("a", 300)
	put(t, far.mem, chain...)
	srv := newServer(t, far.dir)
	p := newProxy(t, srv.Addr())
	p.rate(1 << 20) // 19 s for all
	c := newClient(t, near.mem, func(o *Options) { o.Window = 8 * testBlock })
	ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
	defer cancel()
	begin := time.Now()
	res, err := c.Fetch(ctx, p.addr(), keysOf(chain))
	if took := time.Since(begin); took > 8*time.Second {
		t.Errorf("it took %s", took)
	}
	checkResult(t, res)
	if !errors.Is(err, context.DeadlineExceeded) || res.Lost == 0 {
		t.Errorf("%+v, %v", res, err)
	}
	if n := checkBlocks(t, near.mem, chain); n != res.Brought {
		t.Errorf("%d blocks are here, %d came", n, res.Brought)
	}
	near.settled(t)
}

// Bytes that no client sends end the connection and nothing else.
func TestGarbage(t *testing.T) {
	noLeak(t)
	far, near := newNode(t, 4<<20), newNode(t, 4<<20)
	chain := testChain("a", 3)
	put(t, far.mem, chain...)
	srv := newServer(t, far.dir)
	rng := rand.New(rand.NewPCG(2, 2))
	for i := range 60 {
		nc, err := net.Dial("tcp", srv.Addr())
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 { // behind a good hello
			cn, err := dial(t.Context(), srv.Addr(), hello{pool: testPool, block: testBlock}, Options{DialTimeout: time.Second, ReadTimeout: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			_ = nc.Close()
			nc = cn.nc
		}
		b := make([]byte, 1+rng.IntN(400))
		for k := range b {
			b[k] = byte(rng.Uint32())
		}
		_, _ = nc.Write(b)
		_ = nc.SetReadDeadline(time.Now().Add(time.Millisecond))
		_, _ = io.Copy(io.Discard, nc)
		_ = nc.Close()
	}
	c := newClient(t, near.mem)
	if res, err := c.Fetch(t.Context(), srv.Addr(), keysOf(chain)); err != nil || res.Brought != 3 {
		t.Errorf("%+v, %v", res, err)
	}
	until(t, "other connections are gone", func() bool { return srv.Stats().Conns <= 1 })
	if srv.Stats().Bad == 0 {
		t.Error("no bad connection is counted")
	}
}

// More pools than are allowed at once are refused while those are in use, and let in
// afterwards; more connections are turned away.
func TestServerBounds(t *testing.T) {
	noLeak(t)
	far := newNode(t, 4<<20)
	srv := newServer(t, far.dir, func(c *ServerConfig) { c.MaxConns = 2 })
	opt := Options{DialTimeout: time.Second, ReadTimeout: time.Second}
	var kept []*conn
	for range 2 {
		cn, err := dial(t.Context(), srv.Addr(), hello{pool: testPool, block: testBlock}, opt)
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, cn)
	}
	if _, err := dial(t.Context(), srv.Addr(), hello{pool: testPool, block: testBlock}, opt); err == nil {
		t.Error("a third connection is let in")
	}
	for _, cn := range kept {
		_ = cn.nc.Close()
	}
	until(t, "they are gone", func() bool { return srv.Stats().Conns == 0 })
	if s := srv.Stats(); s.Refused != 1 {
		t.Errorf("%d were refused", s.Refused)
	}
	p := pools{}
	cfg := ServerConfig{Dir: far.dir, MaxPools: 1, Writer: "q"}
	cfg.fill()
	p.init(cfg)
	defer p.close()
	mem, leave, err := p.use(t.Context(), poolID{testPool, testBlock})
	if err != nil || mem == nil {
		t.Fatal(err)
	}
	if _, _, err := p.use(t.Context(), poolID{"other", testBlock}); !errors.Is(err, ErrBusy) {
		t.Errorf("a second pool at once: %v", err)
	}
	leave()
	if _, _, err := p.use(t.Context(), poolID{"other", testBlock}); !errors.Is(err, ErrNoPool) {
		t.Errorf("a second pool afterwards: %v", err)
	}
}

// A pool that has given way to another model's is not served any more, and one that is
// made again is, with what is in it then.
func TestPoolGivesWay(t *testing.T) {
	noLeak(t)
	dir := shortDir(t)
	d, err := hostmem.NewDaemon(hostmem.Config{Dir: dir, Bytes: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	near := newNode(t, 4<<20)
	chain, fresh := testChain("a", 3), testChain("b", 3)
	srv := newServer(t, dir, func(c *ServerConfig) { c.Linger = time.Hour })
	c := newClient(t, near.mem, func(o *Options) { o.BackoffMin, o.BackoffMax = time.Microsecond, time.Microsecond })
	owner := attach(t, dir, "w", testBlock)
	put(t, owner, chain...)
	if res, err := c.Fetch(t.Context(), srv.Addr(), keysOf(chain[:2])); err != nil || res.Brought != 2 {
		t.Fatalf("%+v, %v", res, err)
	}
	_ = owner.Close()
	_ = attach(t, dir, "other", 2*testBlock).Close() // takes the whole budget
	until(t, "the pool is not served", func() bool {
		_, err := c.Fetch(t.Context(), srv.Addr(), keysOf(testChain("nowhere", 1)))
		return errors.Is(err, ErrNoPool)
	})
	put(t, attach(t, dir, "w", testBlock), fresh...)
	until(t, "it is served again", func() bool {
		_, err := c.Fetch(t.Context(), srv.Addr(), append(keysOf(fresh), chain[2].Key))
		return err == nil
	})
	if n := checkBlocks(t, near.mem, append(chain, fresh...)); n != 5 {
		t.Errorf("%d blocks came, want 2 and 3", n)
	}
}

func TestAway(t *testing.T) {
	var a away
	a.init(Options{BackoffMin: 100, BackoffMax: 1000, MaxPeers: 2})
	now := time.Unix(0, 0)
	at := func(d time.Duration) time.Time { return now.Add(d) }
	for i, q := range []struct {
		after, wait time.Duration
	}{{0, 100}, {100, 200}, {300, 400}, {700, 800}, {1500, 1000}, {2500, 1000}} {
		a.bad("x", at(q.after))
		a.bad("x", at(q.after)) // another stream of the same transfer
		if got := a.wait("x", at(q.after)); got != q.wait {
			t.Errorf("after failure %d the pause is %d, want %d", i, got, q.wait)
		}
	}
	a.bad("y", at(2500))
	a.bad("z", at(2500))
	if len(a.nodes) != 2 || a.wait("x", at(2500)) == 0 || a.wait("z", at(2500)) == 0 {
		t.Errorf("remembered are %v", a.nodes)
	}
	a.good("x")
	if a.wait("x", at(2500)) != 0 {
		t.Error("a node that works is left alone")
	}
}
