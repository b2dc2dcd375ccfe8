package executor

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/weir-dev/weir/kvtier/hostmem"
	"github.com/weir-dev/weir/kvtier/peer"
	"github.com/weir-dev/weir/schemas"
)

const (
	// bringTime bounds one operation, and so what a node that hangs costs a turn.
	bringTime = 2 * time.Second
	// brings is how many operations run at once; more wait for their turn, within their
	// time.
	brings = 4
	// bringLeast is the number of missing blocks from which on others are asked: fewer
	// are computed sooner.
	bringLeast = 2
)

// bringer brings blocks of prompts into the host's memory, from the places below it and
// from other nodes. It runs beside the engine.
type bringer struct {
	mem     *hostmem.Client
	format  schemas.KVFormat
	lowers  []lower
	peers   *peer.Client
	least   int
	permits chan struct{}
	logger  *slog.Logger

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

func newBringer(mem *hostmem.Client, format schemas.KVFormat, token string, logger *slog.Logger, lowers ...lower) *bringer {
	ctx, cancel := context.WithCancel(context.Background())
	return &bringer{
		mem: mem, format: format, lowers: lowers, peers: peer.NewClient(mem, peer.Options{Token: token, Timeout: bringTime}),
		least: bringLeast, permits: make(chan struct{}, brings), logger: logger, ctx: ctx, cancel: cancel,
	}
}

// start runs an operation in a goroutine of its own and calls done.
func (b *bringer) start(op *schemas.Op, done func(schemas.OpDone)) {
	b.wg.Go(func() {
		start := time.Now()
		n := b.bring(op.Bring)
		done(schemas.OpDone{ID: op.ID, TookNS: time.Since(start).Nanoseconds(), Bring: &schemas.BringDone{Brought: n}})
	})
}

// close ends all operations and waits for them: the memory may then be closed.
func (b *bringer) close() error {
	b.cancel()
	err := b.peers.Close()
	b.wg.Wait()
	return err
}

// bring returns how many blocks came.
func (b *bringer) bring(op *schemas.BringOp) (brought int) {
	limit := bringTime
	if at := op.Ready.DeadlineNS; at > 0 {
		limit = min(limit, time.Until(time.Unix(0, at))/2) // the other half is for computing
	}
	if limit <= 0 {
		return 0
	}
	ctx, cancel := context.WithTimeout(b.ctx, limit)
	defer cancel()
	select {
	case b.permits <- struct{}{}:
		defer func() { <-b.permits }()
	case <-ctx.Done():
		return 0
	}
	p, err := b.nameBlocks(op)
	if err != nil {
		b.logger.Warn("blocks are not brought in", "job", op.Ready.Job, "error", err)
		return 0
	}
	if p.missing() < b.least {
		return 0
	}
	brought = b.fromBelow(ctx, p)
	for _, r := range runsOf(op.Sources) {
		if ctx.Err() == nil {
			brought += b.fromPeer(ctx, p, r)
		}
	}
	return brought
}

// fromBelow asks the places below the memory. What is in memory of the prompt is leased
// meanwhile, because room for what comes is made by evicting; so it is in fromPeer.
func (b *bringer) fromBelow(ctx context.Context, p *prompt) (brought int) {
	if len(b.lowers) == 0 {
		return 0
	}
	p.ask(ctx)
	known := p.known()
	if len(known) == 0 {
		return 0
	}
	defer p.hold()()
	for _, l := range b.lowers {
		brought += l.Fetch(ctx, known)
	}
	return brought
}

// run is a stretch of blocks at one node: extents that follow each other.
type run struct {
	peer    string
	from, n int
	extents []schemas.Extent
}

// maxRun bounds what is asked of one node at once: a million tokens.
const maxRun = 1 << 14

// runsOf joins sources of one node that follow each other. Those that name nothing are
// left out.
func runsOf(sources []schemas.Source) []run {
	var out []run
	for _, s := range sources[:min(len(sources), schemas.MaxSources)] {
		e := s.Extent
		if s.Peer == "" || e.N < 1 || e.From < 0 || e.N > maxRun || e.From > schemas.MaxTokens {
			continue
		}
		if k := len(out); k > 0 && out[k-1].peer == s.Peer && out[k-1].from+out[k-1].n == e.From && out[k-1].n+e.N <= maxRun {
			out[k-1].n += e.N
			out[k-1].extents = append(out[k-1].extents, e)
			continue
		}
		out = append(out, run{peer: s.Peer, from: e.From, n: e.N, extents: []schemas.Extent{e}})
	}
	return out
}

// fromPeer fetches what is missing of a run. Blocks behind one that is not to be had are
// not fetched: they would be computed anyway.
func (b *bringer) fromPeer(ctx context.Context, p *prompt, r run) int {
	if !p.named(r.from, r.n) {
		b.resolve(ctx, p, r)
	}
	keys := p.lacking(r.from, r.n)
	if len(keys) == 0 || !p.reaches(r.from) {
		return 0
	}
	defer p.hold()()
	res, err := b.peers.Fetch(ctx, r.peer, keys)
	if err != nil || res.Corrupt > 0 {
		b.logger.Info("blocks of another node did not all come", "peer", r.peer, "asked", res.Asked, "brought", res.Brought, "missing", res.Missing,
			"corrupt", res.Corrupt, "full", res.Full, "lost", res.Lost, "error", err)
	}
	return res.Brought
}

// resolve asks the node for the names of a run's blocks: all at once, or extent by
// extent if the end of the run is not there any more.
func (b *bringer) resolve(ctx context.Context, p *prompt, r run) {
	asked := []schemas.Extent{{Key: r.extents[len(r.extents)-1].Key, From: r.from, N: r.n}}
	if len(r.extents) > 1 {
		asked = append(asked, r.extents...)
	}
	for i, e := range asked {
		key, ok := keyOf(e)
		if !ok {
			continue
		}
		chain, err := b.peers.List(ctx, r.peer, key)
		if err != nil {
			return // the node does not answer; the fetch says so
		}
		if p.learn(chain) && i == 0 && len(chain) == r.n {
			return
		}
	}
}
