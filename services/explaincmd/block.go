package explaincmd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/kvtier/hostmem"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/serve"
	"github.com/weir-dev/weir/services/tier"
)

// BlockReport says what every tier node knows of blocks; -o json prints it.
type BlockReport struct {
	Nodes []*tier.BlocksReply `json:"nodes"`
	Notes []string            `json:"notes,omitempty"`
}

// maxKeys bounds one question: a node answers no more.
const maxKeys = 256

func (o *options) block(cmd *cobra.Command, keys []string) error {
	if len(keys) > maxKeys {
		return fmt.Errorf("%w: %d keys, at most %d may be asked for at once", serve.ErrUsage, len(keys), maxKeys)
	}
	for _, k := range keys {
		if _, err := kvtier.ParseKey(k); err != nil {
			return fmt.Errorf("%w: KEY %q: %w", serve.ErrUsage, k, err)
		}
	}
	s, end, err := o.source()
	if err != nil {
		return err
	}
	defer end()
	rep, err := s.Blocks(cmd.Context(), keys)
	if err != nil {
		return err
	}
	if o.output == "json" {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(rep)
	}
	return printBlocks(cmd.OutOrStdout(), rep)
}

// Blocks asks all tier nodes of the cell about blocks, by their keys in hex.
func (s *Source) Blocks(ctx context.Context, keys []string) (*BlockReport, error) {
	f := &facts{tenant: s.tenant}
	rep := &BlockReport{Nodes: s.memory(ctx, f, tier.BlocksRequest{Keys: keys}), Notes: f.notes}
	if len(rep.Nodes) == 0 {
		return nil, fmt.Errorf("no tier node of cell %s answers: is one running, and is --cell right?", s.cell)
	}
	return rep, nil
}

// memory asks all tier nodes of the cell. One that does not answer is noted.
func (s *Source) memory(ctx context.Context, f *facts, q tier.BlocksRequest) (reps []*tier.BlocksReply) {
	nodes, err := tier.Nodes(ctx, s.nc, s.cell)
	if err != nil {
		f.note("tier nodes: %s", err)
		return nil
	}
	for _, n := range nodes {
		rep, err := tier.AskBlocks(ctx, s.nc, n, q)
		if err != nil {
			f.note("%s", err)
			continue
		}
		reps = append(reps, rep)
	}
	return reps
}

// printBlocks writes one paragraph per block and node.
func printBlocks(w io.Writer, r *BlockReport) error {
	p := &page{w: w}
	for i, n := range r.Nodes {
		if i > 0 {
			p.line("")
		}
		p.line("node %s, order %s", n.Node, n.Order)
		for j := range n.Blocks {
			blockLines(p, &n.Blocks[j])
		}
	}
	notes(p, r.Notes)
	return p.err
}

func blockLines(p *page, b *tier.Block) {
	p.line("")
	switch {
	case b.Medium == "":
		p.line("block %s: not here", b.Key)
	case b.Medium == schemas.MediumDisk:
		p.line("block %s: on disk", b.Key)
	default:
		whole := "with all before it"
		if b.Index == 0 {
			whole = "the first of its prefix"
		} else if !b.Whole {
			whole = "without some before it"
		}
		p.line("block %s: in host memory, number %s of its prefix, %s", b.Key, comma(b.Index+1), whole)
	}
	if b.Class != "" {
		p.line("  class      %s", b.Class)
	}
	if b.Medium == schemas.MediumHost {
		switch {
		case b.Before != nil:
			p.line("  goes       after %s", many(*b.Before, "other leaf", "other leaves"))
		case b.Leaf:
			p.line("  goes       after many others, or not at all")
		default:
			p.line("  goes       after the blocks that follow it")
		}
	}
	p.line("  why        %s", clean(b.Why, 200))
	switch {
	case b.GoneNS > 0 && b.Medium == schemas.MediumDisk:
		p.line("  went       %s: to disk", time.Unix(0, b.GoneNS).UTC().Format(time.TimeOnly))
	case b.GoneNS > 0:
		p.line("  went       %s: %s", time.Unix(0, b.GoneNS).UTC().Format(time.TimeOnly), ruleWords(b.Rule))
	}
	for _, h := range b.Holders {
		p.line("  held by    branch %s of session %s, tenant %s: %s%s, %s of %s there", short(h.Branch), short(h.Session), short(h.Tenant), h.State,
			named(" for ", short(h.Tool)), comma(h.Resident), many(h.Blocks, "block", "blocks"))
	}
	if b.More > 0 {
		p.line("  … and by %d more", b.More)
	}
}

// memory writes what tier nodes hold of a session's branches. Nodes without any of it
// are left out; the keys stand below the table, which they would make too wide.
func memory(p *page, reps []*tier.BlocksReply) {
	type tail struct{ branch, key string }
	var tails []tail
	rows := 0
	t := tabwriter.NewWriter(p.w, 0, 0, 2, ' ', 0)
	for _, r := range reps {
		blocks := map[string]*tier.Block{}
		for i := range r.Blocks {
			blocks[r.Blocks[i].Key] = &r.Blocks[i]
		}
		for _, h := range r.Branches[:min(len(r.Branches), maxBranches)] {
			b := blocks[h.Tail]
			if h.Resident == 0 && (b == nil || b.Medium == "") {
				continue
			}
			if rows++; rows == 1 {
				p.line("")
				fmt.Fprintln(t, "NODE\tBRANCH\tCLASS\tBLOCKS THERE\tITS OWN\tWHY")
			}
			why := "its last block is not there"
			if b != nil {
				// Class and branch stand in the row already.
				why = strings.TrimPrefix(b.Why, h.Class+": ")
				why = strings.TrimPrefix(why, fmt.Sprintf("branch %s of session %s ", h.Branch, h.Session))
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s of %s\t%s\t%s\n", short(r.Node), short(h.Branch), h.Class, comma(h.Resident), comma(h.Blocks), comma(h.Own), clean(why, 50))
			if at := (tail{h.Branch, h.Tail}); !slices.Contains(tails, at) {
				tails = append(tails, at)
			}
		}
	}
	switch {
	case rows > 0:
		if err := t.Flush(); p.err == nil {
			p.err = err
		}
		p.line("")
		for _, at := range tails {
			p.line("last block of %s: %s", short(at.branch), at.key)
		}
	case slices.ContainsFunc(reps, func(r *tier.BlocksReply) bool { return r.Order == hostmem.OrderLRU }):
		p.line("")
		p.line("memory     in order lru no node knows which blocks are a session's")
	case len(reps) > 0:
		p.line("")
		p.line("memory     %s nothing of its branches, as far as they are known there", many(len(reps), "node holds", "nodes hold"))
	}
}
