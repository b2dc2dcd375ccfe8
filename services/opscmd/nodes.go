package opscmd

import (
	"context"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/services/tier"
)

// tierNodes is a check for each tier node of a cell that answers: its order of eviction
// and what its memory holds by class.
func tierNodes(ctx context.Context, nc *nats.Conn, cell string) []check {
	nodes, err := tier.Nodes(ctx, nc, cell)
	if err != nil {
		return []check{{"tier nodes", "bad", err.Error()}}
	}
	if len(nodes) == 0 {
		return []check{{"tier nodes", "note", fmt.Sprintf("none of cell %s answers: is weir running, and is --cell right?", cell)}}
	}
	var cs []check
	for _, n := range nodes {
		name := "tier " + n
		s, err := tier.AskStats(ctx, nc, n)
		if err != nil {
			cs = append(cs, check{name, "bad", err.Error()})
			continue
		}
		cs = append(cs, check{name, "ok", nodeWords(s)})
	}
	return cs
}

// nodeWords says what a node holds, classes in the order in which they go.
func nodeWords(s *tier.StatsReply) string {
	parts := []string{"order " + s.Order, fmt.Sprintf("%d branches", s.Branches)}
	for c := kvtier.ClassDead; c <= kvtier.ClassRunning; c++ {
		parts = append(parts, fmt.Sprintf("%s %d MiB", c, s.Classes[c.String()].Bytes>>20))
	}
	regrets := uint64(0)
	for _, c := range s.Classes {
		regrets += c.Regrets
	}
	return strings.Join(append(parts, fmt.Sprintf("%d blocks evicted and asked again within a minute", regrets)), ", ")
}
