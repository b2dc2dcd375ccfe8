package tier

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/kvtier/hostmem"
)

// ServiceName is the name under which tier nodes are listed (nats micro ls); the
// node is in the service's metadata.
const ServiceName = "weir-tier"

// EraseSubject is where a node erases blocks on request.
func EraseSubject(node string) string { return "weir.tier." + node + ".erase" }

// EraseRequest names the ends of chains whose blocks are to be removed for good, by
// their keys in hex: see hostmem.Daemon.Erase.
type EraseRequest struct {
	Keys []string `json:"keys"`
}

// EraseReply says how many blocks were removed. Left is set when blocks are read at
// this moment and stay: ask again.
type EraseReply struct {
	Node    string `json:"node"`
	Removed int    `json:"removed"`
	Left    bool   `json:"left,omitempty"`
	Error   string `json:"error,omitempty"`
}

// maxEraseKeys bounds one request; a message holds more.
const maxEraseKeys = 4096

// answer serves the node's requests until the service is stopped.
func answer(cfg Config, d *hostmem.Daemon) (micro.Service, error) {
	version := cfg.Version
	if version == "" {
		version = "0.1.0"
	}
	svc, err := micro.AddService(cfg.Conn, micro.Config{
		Name: ServiceName, Version: version, Description: "the KV memory of node " + cfg.Node,
		Metadata: map[string]string{"node": cfg.Node, "cell": cfg.Cell},
	})
	if err != nil {
		return nil, fmt.Errorf("tier: %w", err)
	}
	err = svc.AddEndpoint("erase", micro.HandlerFunc(func(req micro.Request) {
		rep := erase(d, req.Data())
		rep.Node = cfg.Node
		if rep.Error != "" {
			cfg.Logger.Warn("blocks not erased", "node", cfg.Node, "error", rep.Error)
		}
		if err := req.RespondJSON(rep); err != nil {
			cfg.Logger.Warn("erase reply not sent", "error", err)
		}
	}), micro.WithEndpointSubject(EraseSubject(cfg.Node)))
	if err = errors.Join(err, inspect(svc, cfg, d)); err != nil {
		return nil, errors.Join(fmt.Errorf("tier: %w", err), svc.Stop())
	}
	return svc, nil
}

func erase(d *hostmem.Daemon, body []byte) (rep EraseReply) {
	var q EraseRequest
	if err := json.Unmarshal(body, &q); err != nil {
		rep.Error = "the request is not understood: " + err.Error()
		return rep
	}
	if len(q.Keys) > maxEraseKeys {
		rep.Error = fmt.Sprintf("%d keys, at most %d may be sent at once", len(q.Keys), maxEraseKeys)
		return rep
	}
	keys := make([]kvtier.Key, len(q.Keys))
	for i, s := range q.Keys {
		if n, err := hex.Decode(keys[i][:], []byte(s[:min(len(s), 64)])); err != nil || n != len(keys[i]) || len(s) != 64 {
			rep.Error = fmt.Sprintf("keys[%d] is not a key of 64 hex digits", i)
			return rep
		}
	}
	removed, err := d.Erase(keys)
	rep.Removed = removed
	switch {
	case errors.Is(err, hostmem.ErrInUse):
		rep.Left = true
	case err != nil:
		rep.Error = err.Error()
	}
	return rep
}

// Bounds of asking nodes.
const (
	findWait  = 300 * time.Millisecond
	eraseWait = 10 * time.Second
	leftPause = 50 * time.Millisecond
)

// Nodes lists the tier nodes of a cell that answer now, sorted.
func Nodes(ctx context.Context, nc *nats.Conn, cell string) ([]string, error) {
	subject, err := micro.ControlSubject(micro.PingVerb, ServiceName, "")
	if err != nil {
		return nil, err
	}
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := nc.PublishRequest(subject, inbox, nil); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, findWait)
	defer cancel()
	var nodes []string
	for {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			break // all that answer in time have answered
		}
		var p micro.Ping
		if json.Unmarshal(m.Data, &p) == nil && p.Metadata["node"] != "" && p.Metadata["cell"] == cell {
			nodes = append(nodes, p.Metadata["node"])
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes), nil
}

// Erase asks one node to remove chains of blocks, keys in hex, and asks again while
// some are read, until ctx ends. It returns how many were removed.
func Erase(ctx context.Context, nc *nats.Conn, node string, keys []string) (removed int, err error) {
	ctx, cancel := context.WithTimeout(ctx, eraseWait)
	defer cancel()
	for len(keys) > 0 {
		n := min(len(keys), maxEraseKeys)
		body, err := json.Marshal(EraseRequest{Keys: keys[:n]})
		if err != nil {
			return removed, err
		}
		m, err := nc.RequestWithContext(ctx, EraseSubject(node), body)
		if err != nil {
			return removed, fmt.Errorf("node %s does not erase: %w", node, err)
		}
		var rep EraseReply
		if err := json.Unmarshal(m.Data, &rep); err != nil {
			return removed, fmt.Errorf("node %s does not erase: %w", node, err)
		}
		removed += rep.Removed
		if rep.Error != "" {
			return removed, fmt.Errorf("node %s does not erase: %s", node, rep.Error)
		}
		if !rep.Left {
			keys = keys[n:]
			continue
		}
		select {
		case <-ctx.Done():
			return removed, fmt.Errorf("node %s: %w", node, hostmem.ErrInUse)
		case <-time.After(leftPause):
		}
	}
	return removed, nil
}
