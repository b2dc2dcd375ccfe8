package tierchaos

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"time"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/kvtier/hostmem"
)

// report is what a client process has done so far. It writes one now and then, and
// with Paused when it was told to pause.
type report struct {
	Reads, Puts, Full, Down, Probes, Shared int
	Served, Differ                          int64
	Paused                                  bool
}

const (
	cmdPause  = "pause"
	cmdResume = "resume"
	cmdQuit   = "quit"

	attachWait  = 20 * time.Second
	reportEvery = 50 // operations
)

// client is one process that stores and reads at random until it is killed.
type client struct {
	mem   *hostmem.Client
	u     *universe
	rng   *rand.Rand
	buf   []byte
	stale []hostmem.Ref  // released: they may still be read, and checked
	held  []hostmem.Slot // reserved and not written yet
	count report
}

func clientChild(dir, writer string, c class, seed uint64) error {
	ctx, cancel := context.WithTimeout(context.Background(), attachWait)
	defer cancel()
	mem, err := attach(ctx, dir, writer, c)
	if err != nil {
		return err
	}
	x := &client{mem: mem, u: newUniverse(c), rng: rand.New(rand.NewPCG(seed, 0)), buf: make([]byte, c.block)}
	out := json.NewEncoder(os.Stdout)
	tell := func(paused bool) {
		x.count.Paused = paused
		_ = out.Encode(x.count)
	}
	lines := make(chan string)
	go func() {
		in := bufio.NewScanner(os.Stdin)
		for in.Scan() {
			lines <- in.Text()
		}
		close(lines)
	}()
	tell(false)
	for n := 1; ; n++ {
		select {
		case line, ok := <-lines:
			for ok && line == cmdPause {
				tell(true)
				line, ok = <-lines
			}
			if !ok || line == cmdQuit {
				tell(false)
				return mem.Close()
			}
		default:
		}
		x.act()
		if n%reportEvery == 0 {
			tell(false)
		}
	}
}

func attach(ctx context.Context, dir, writer string, c class) (*hostmem.Client, error) {
	return hostmem.Attach(ctx, hostmem.Options{
		Dir: dir, Writer: writer, Pool: "chaos-" + c.name, BlockBytes: c.block, Wait: 20 * time.Millisecond,
	})
}

// act does one thing at random.
func (x *client) act() {
	tenant := x.rng.IntN(tenants)
	n := x.rng.IntN(x.u.chains)
	chain := x.u.blocks[tenant][n]
	switch p := x.rng.IntN(100); {
	case p < 40 && (tenant == 0 || n >= private):
		x.put(tenant, chain)
	case p < 45:
		x.holdBack(tenant, chain)
	case p < 90:
		x.read(tenant, chain)
	case p < 95:
		x.readStale(tenant)
	default:
		x.probe(x.u.blocks[1][x.rng.IntN(private)])
	}
}

// put stores the next blocks of a chain.
func (x *client) put(tenant int, chain []kvtier.Block) {
	have := x.mem.Match(keysOf(chain))
	more := chain[have:min(len(chain), have+1+x.rng.IntN(4))]
	if len(more) == 0 {
		return
	}
	slots := x.held
	x.held = nil
	if n := len(more) - len(slots); n > 0 {
		got, err := x.mem.Reserve(context.Background(), n)
		x.refused(err)
		slots = append(slots, got...)
	}
	for i, s := range slots {
		if i >= len(more) || x.rng.IntN(20) == 0 {
			x.mem.Abandon(slots[i:])
			return
		}
		x.seal(s, tenant, more[i])
	}
}

func (x *client) refused(err error) {
	switch {
	case errors.Is(err, hostmem.ErrFull):
		x.count.Full++
	case err != nil:
		x.count.Down++
	}
}

func (x *client) seal(s hostmem.Slot, tenant int, b kvtier.Block) {
	var err error
	if x.rng.IntN(2) == 0 {
		fill(x.buf, tenant, &b.Key)
		_, err = x.mem.SealFrom(s, b, x.buf)
	} else {
		fill(s.Data(), tenant, &b.Key)
		_, err = x.mem.Seal(s, b)
	}
	if err == nil {
		x.count.Puts++
	}
}

// holdBack reserves a slot, writes half of it, and keeps it: whoever is killed or
// stopped then leaves it so.
func (x *client) holdBack(tenant int, chain []kvtier.Block) {
	if len(x.held) > 0 {
		x.mem.Abandon(x.held)
		x.held = nil
	}
	slots, err := x.mem.Reserve(context.Background(), 1+x.rng.IntN(2))
	x.refused(err)
	x.held = slots
	for _, s := range slots {
		fill(s.Data()[:x.u.block/2], tenant, &chain[0].Key)
	}
}

// read leases the resident prefix of a chain and reads some of it.
func (x *client) read(tenant int, chain []kvtier.Block) {
	refs := x.mem.Lease(keysOf(chain))
	for _, r := range refs {
		if x.rng.IntN(3) > 0 {
			x.check(r, tenant)
		}
	}
	x.mem.Release(refs)
	if len(refs) > 0 {
		x.stale = refs[:min(len(refs), 8)]
	}
}

// readStale reads what is leased no more: it may be gone, and must then not be served.
func (x *client) readStale(tenant int) {
	for _, r := range x.stale {
		if x.u.owner[r.Key] == tenant {
			x.check(r, tenant)
		}
	}
}

// check reads a block by copy or in place and compares it.
func (x *client) check(r hostmem.Ref, tenant int) {
	n := int64(0)
	if x.rng.IntN(2) == 0 {
		if !x.mem.Copy(r, x.buf) {
			return
		}
		n = differing(x.buf, tenant, &r.Key)
	} else {
		n = differing(x.mem.Data(r), tenant, &r.Key)
		if !x.mem.Valid(r) {
			return
		}
	}
	x.count.Reads++
	x.count.Served += x.u.block
	x.count.Differ += n
	if n > 0 && differing(x.mem.Data(r), (tenant+1)%tenants, &r.Key) == 0 {
		x.count.Shared++
	}
}

// probe looks for a chain that only the other tenant stored.
func (x *client) probe(chain []kvtier.Block) {
	x.count.Probes++
	x.count.Shared += x.mem.Match(keysOf(chain))
}
