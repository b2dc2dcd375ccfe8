package tier

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/kvtier/hostmem"
	"github.com/weir-dev/weir/kvtier/retain"
	"github.com/weir-dev/weir/schemas"
)

// BlocksSubject is where a node says where blocks are, who holds them and when they
// would go.
func BlocksSubject(node string) string { return "weir.tier." + node + ".blocks" }

// StatsSubject is where a node says what its order of eviction brought.
func StatsSubject(node string) string { return "weir.tier." + node + ".stats" }

// BlocksRequest names blocks by their keys in hex, or a session: then the reply is
// about its branches and the last blocks of their contexts.
type BlocksRequest struct {
	Keys    []string `json:"keys,omitempty"`
	Tenant  string   `json:"tenant,omitempty"`
	Session string   `json:"session,omitempty"`
}

// BlocksReply is what a node knows.
type BlocksReply struct {
	Node     string          `json:"node"`
	Order    string          `json:"order"` // in which blocks are evicted: weir or lru
	Blocks   []Block         `json:"blocks,omitempty"`
	Branches []retain.Holder `json:"branches,omitempty"`
	Error    string          `json:"error,omitempty"`
}

// Block is one block.
type Block struct {
	Key    string         `json:"key"`
	Medium schemas.Medium `json:"medium,omitempty"` // empty when the node does not have it
	Pool   string         `json:"pool,omitempty"`
	Index  int            `json:"index"` // in its chain: the key names the index+1 blocks up to it
	Whole  bool           `json:"whole"` // those before it are there too
	Leaf   bool           `json:"leaf"`  // no block that is there follows it
	Leased bool           `json:"leased"`
	Class  string         `json:"class,omitempty"`
	UsedNS int64          `json:"used_ns,omitempty"` // Unix time of its last use
	// Holders are the branches whose context goes through it, More those that are not
	// listed.
	Holders []retain.Holder `json:"holders,omitempty"`
	More    int             `json:"more,omitempty"`
	// Before is how many leaves go before it; absent when it is none, or one of many.
	Before *int   `json:"before,omitempty"`
	Why    string `json:"why"`               // why it would go when it would, or why it went
	GoneNS int64  `json:"gone_ns,omitempty"` // when it went
	Rule   string `json:"rule,omitempty"`    // by which rule
}

// StatsReply is what a node's order of eviction brought since its start.
type StatsReply struct {
	Node     string               `json:"node"`
	Order    string               `json:"order"`
	Branches int                  `json:"branches"`
	Tenants  int                  `json:"tenants"`
	Classes  map[string]ClassLine `json:"classes"`
	Error    string               `json:"error,omitempty"`
}

// ClassLine is one retention class.
type ClassLine struct {
	Bytes     int64  `json:"bytes"`
	Hits      uint64 `json:"hits"`      // blocks that branches found when they went on
	Evictions uint64 `json:"evictions"` // blocks
	Regrets   uint64 `json:"regrets"`   // blocks evicted and computed again within a minute
}

// inspect adds the endpoints to a node's service.
func inspect(svc micro.Service, cfg Config, d *hostmem.Daemon) error {
	respond := func(req micro.Request, v any) {
		if err := req.RespondJSON(v); err != nil {
			cfg.Logger.Warn("reply not sent", "subject", req.Subject(), "error", err)
		}
	}
	return errors.Join(
		svc.AddEndpoint("blocks", micro.HandlerFunc(func(req micro.Request) {
			rep := blocks(d, req.Data(), time.Now())
			rep.Node = cfg.Node
			respond(req, rep)
		}), micro.WithEndpointSubject(BlocksSubject(cfg.Node))),
		svc.AddEndpoint("stats", micro.HandlerFunc(func(req micro.Request) {
			rep := stats(d)
			rep.Node = cfg.Node
			respond(req, rep)
		}), micro.WithEndpointSubject(StatsSubject(cfg.Node))),
	)
}

// maxBlocks keeps a reply below the largest message: 256 blocks of 16 holders.
const maxBlocks = 256

func blocks(d *hostmem.Daemon, body []byte, now time.Time) (rep BlocksReply) {
	var q BlocksRequest
	if err := json.Unmarshal(body, &q); err != nil {
		rep.Error = "the request is not understood: " + err.Error()
		return rep
	}
	if len(q.Keys) > maxBlocks {
		rep.Error = fmt.Sprintf("%d keys, at most %d may be asked for at once", len(q.Keys), maxBlocks)
		return rep
	}
	if q.Session != "" {
		bs, err := d.Branches(q.Tenant, q.Session)
		if err != nil {
			rep.Error = err.Error()
			return rep
		}
		rep.Branches = bs[:min(len(bs), maxBlocks)]
		for _, b := range rep.Branches {
			if b.Tail != "" && len(q.Keys) < maxBlocks {
				q.Keys = append(q.Keys, b.Tail)
			}
		}
	}
	keys := make([]kvtier.Key, len(q.Keys))
	for i, s := range q.Keys {
		k, err := kvtier.ParseKey(s)
		if err != nil {
			rep.Error = fmt.Sprintf("keys[%d] is not a key of 64 hex digits", i)
			return rep
		}
		keys[i] = k
	}
	infos, err := d.Blocks(keys)
	if err != nil {
		rep.Error = err.Error()
		return rep
	}
	rep.Order = d.Order()
	for i := range infos {
		rep.Blocks = append(rep.Blocks, describe(&infos[i], rep.Order, now))
	}
	return rep
}

func describe(i *hostmem.BlockInfo, order string, now time.Time) Block {
	b := Block{Key: i.Key.String(), Pool: i.Pool, Index: i.Index, Whole: i.Whole, Leaf: i.Leaf, Leased: i.Leased, UsedNS: i.UseNS, Holders: i.Holders, More: i.More}
	if !i.There {
		b.GoneNS, b.Rule = i.Gone.AtNS, i.Gone.Rule
		if b.Why = "it was not kept here"; b.Rule == hostmem.RuleDisk {
			b.Medium, b.Why = schemas.MediumDisk, "it left memory and lies on disk"
		} else if b.Rule != "" {
			b.Why = "it went by rule " + b.Rule
		}
		return b
	}
	b.Medium, b.Class = schemas.MediumHost, i.Class.String()
	if i.Place >= 0 {
		n := i.Place
		b.Before = &n
	}
	b.Why = why(i, order, now)
	return b
}

// why says what a block's place in the order follows from.
func why(i *hostmem.BlockInfo, order string, now time.Time) string {
	used := "last used " + ago(i.UseNS, now)
	switch {
	case i.Leased:
		return "being read: not evicted"
	case order == hostmem.OrderLRU:
		return used + ": blocks go by last use"
	}
	best := -1
	for n, h := range i.Holders {
		if best < 0 || h.Rank > i.Holders[best].Rank {
			best = n
		}
	}
	if best >= 0 {
		return holderWords(&i.Holders[best], now) + named(", ", behind(i))
	}
	if i.Class == kvtier.ClassDead && i.First != nil && i.First.LostNS > 0 {
		return fmt.Sprintf("dead since %s: branch %s of session %s was %s", clock(i.First.LostNS), i.First.Branch, i.First.Session, i.First.Lost)
	}
	if i.Class == kvtier.ClassDead {
		return "dead: what held it was replaced or has ended, " + used
	}
	return "idle: no live branch holds it, " + used + named(", ", behind(i))
}

// behind says that others must go first.
func behind(i *hostmem.BlockInfo) string {
	if i.Leaf {
		return ""
	}
	return "blocks that follow it go first"
}

// holderWords says what a branch does.
func holderWords(h *retain.Holder, now time.Time) string {
	who := fmt.Sprintf("branch %s of session %s", h.Branch, h.Session)
	switch h.State {
	case schemas.BranchRunning:
		return "running: " + who + " computes since " + clock(h.AtNS)
	case schemas.BranchToolWaiting:
		s := who + " waits for " + named("tool ", h.Tool)
		if h.Tool == "" {
			s = who + " waits for a tool"
		}
		return h.Class + ": " + s + named(", ", expected(h.ResumeNS, now))
	case schemas.BranchUserWaiting:
		return h.Class + ": " + who + " waits for its user" + named(", ", expected(h.ResumeNS, now))
	default:
		return h.Class + ": " + who + " is " + string(h.State)
	}
}

func expected(ns int64, now time.Time) string {
	if ns == 0 {
		return ""
	}
	if d := time.Unix(0, ns).Sub(now); d >= 0 {
		return "expected in " + d.Round(time.Second).String()
	}
	return "expected " + ago(ns, now)
}

func ago(ns int64, now time.Time) string {
	return max(0, now.Sub(time.Unix(0, ns))).Round(time.Second).String() + " ago"
}

func clock(ns int64) string { return time.Unix(0, ns).UTC().Format(time.TimeOnly) }

func named(before, s string) string {
	if s == "" {
		return ""
	}
	return before + s
}

func stats(d *hostmem.Daemon) (rep StatsReply) {
	s, err := d.Retention()
	if err != nil {
		rep.Error = err.Error()
		return rep
	}
	rep.Order, rep.Branches, rep.Tenants = s.Policy, s.Branches, s.Tenants
	rep.Classes = map[string]ClassLine{}
	for c, n := range s.Classes {
		rep.Classes[kvtier.Class(c).String()] = ClassLine{Bytes: n.Bytes, Hits: n.Hits, Evictions: n.Evictions, Regrets: n.Regrets}
	}
	return rep
}

// AskBlocks asks one node about blocks or a session.
func AskBlocks(ctx context.Context, nc *nats.Conn, node string, q BlocksRequest) (*BlocksReply, error) {
	rep := new(BlocksReply)
	if err := request(ctx, nc, BlocksSubject(node), q, rep); err != nil {
		return nil, fmt.Errorf("node %s: %w", node, err)
	}
	if rep.Error != "" {
		return nil, fmt.Errorf("node %s: %s", node, rep.Error)
	}
	return rep, nil
}

// AskStats asks one node what its order of eviction brought.
func AskStats(ctx context.Context, nc *nats.Conn, node string) (*StatsReply, error) {
	rep := new(StatsReply)
	if err := request(ctx, nc, StatsSubject(node), nil, rep); err != nil {
		return nil, fmt.Errorf("node %s: %w", node, err)
	}
	if rep.Error != "" {
		return nil, fmt.Errorf("node %s: %s", node, rep.Error)
	}
	return rep, nil
}

// askWait bounds a question.
const askWait = 2 * time.Second

func request(ctx context.Context, nc *nats.Conn, subject string, q, rep any) error {
	body, err := json.Marshal(q)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	m, err := nc.RequestWithContext(ctx, subject, body)
	if err != nil {
		return err
	}
	return json.Unmarshal(m.Data, rep)
}
