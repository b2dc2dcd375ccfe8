package opscmd

import (
	"context"
	"fmt"
	"io"
	"sort"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/tail"
	"github.com/weir-dev/weir/streams"
)

// row is one executor as people see it.
type row struct {
	Executor string              `json:"executor"`
	Assigned schemas.Role        `json:"assigned"`
	Epoch    uint64              `json:"epoch"`
	Role     schemas.Role        `json:"role"` // as reported, "" when nothing was heard
	InForce  uint64              `json:"epoch_in_force"`
	Classes  []schemas.SizeClass `json:"classes,omitempty"`
	Absorb   schemas.SizeClass   `json:"absorb,omitempty"`
	Pinned   bool                `json:"pinned,omitempty"`
	Plan     string              `json:"plan,omitempty"`
	By       string              `json:"by,omitempty"`
	Reason   string              `json:"reason,omitempty"`
	Running  int                 `json:"running"`
	Queued   int                 `json:"queued"`
	Free     int                 `json:"slots_free"`
	// Node and Size are from a heartbeat; "" and 0 when none came while the command
	// listened.
	Node    string        `json:"node,omitempty"`
	Size    int           `json:"size,omitempty"`
	Unfit   string        `json:"unfit,omitempty"`
	Problem string        `json:"problem,omitempty"`
	Flips   uint64        `json:"flips,omitempty"`
	Flip    *schemas.Flip `json:"flip,omitempty"` // the last one
	// AgeMS is how old the report is that role, work, unfit and flips are from.
	// Executors report every 2 s; one that has gone leaves its last report.
	AgeMS int64 `json:"age_ms"`
}

// goneAfter is the age of a report beyond which its executor is shown as gone.
const goneAfter = 10 * time.Second

// shown is the role for people: a report that is too old says nothing about now.
func (r *row) shown() string {
	if age := time.Duration(r.AgeMS) * time.Millisecond; r.Role != "" && age > goneAfter {
		return fmt.Sprintf("gone %s", age.Round(time.Second))
	}
	return string(r.Role)
}

func (b *bus) listRoles(cmd *cobra.Command) error {
	nc, js, err := b.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	beats, err := nc.SubscribeSync(schemas.HBSubject(b.cell, "*"))
	if err != nil {
		return err
	}
	defer func() { _ = beats.Unsubscribe() }()
	rows, err := readRoles(cmd.Context(), js, b.cell, time.Now())
	if err != nil {
		return err
	}
	hearRows(cmd.Context(), beats, rows, listenFor)
	if b.output == "json" {
		for _, r := range rows {
			if err := printJSON(cmd.OutOrStdout(), r); err != nil {
				return err
			}
		}
		return nil
	}
	return printRoles(cmd.OutOrStdout(), rows, time.Now())
}

func printRoles(out io.Writer, rows []row, now time.Time) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "EXECUTOR\tNODE\tSIZE\tASSIGNED\tEPOCH\tROLE\tIN FORCE\tABSORB\tPIN\tUNFIT\tRUNNING\tQUEUED\tFREE\tLAST FLIP\tBY\tREASON")
	for _, r := range rows {
		size, pin := "-", ""
		if r.Size > 0 {
			size = fmt.Sprint(r.Size)
		}
		if r.Pinned {
			pin = "pinned"
		}
		unfit := r.Unfit
		if r.Problem != "" {
			unfit = strings.TrimPrefix(unfit+"; "+r.Problem, "; ")
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\t%d\t%s\t%s\t%s\t%d\t%d\t%d\t%s\t%s\t%s\n", r.Executor, r.Node, size, r.Assigned, r.Epoch, r.shown(), r.InForce,
			r.absorb(), pin, unfit, r.Running, r.Queued, r.Free, flipText(r.Flip, now), r.By, r.Reason)
	}
	return w.Flush()
}

// absorb is the largest class that the executor computes itself, where that is asked.
func (r *row) absorb() string {
	switch {
	case r.Assigned != schemas.RoleDecode:
		return ""
	case r.Absorb == "":
		return string(schemas.SizeS)
	}
	return string(r.Absorb)
}

// flipText is the last role change for people: what it was, its stages, how long ago.
func flipText(f *schemas.Flip, now time.Time) string {
	if f == nil {
		return ""
	}
	ms := func(ns int64) string { return fmt.Sprintf("%.0f", float64(ns)/1e6) }
	s := fmt.Sprintf("%s>%s %s ms (%s+%s+%s), %s ago", f.From, f.To, ms(f.ReturnNS+f.HandNS+f.VerifyNS), ms(f.ReturnNS), ms(f.HandNS), ms(f.VerifyNS),
		now.Sub(time.Unix(0, f.AtNS)).Round(time.Second))
	if f.Back != "" {
		s += ", rolled back: " + f.Back
	}
	return s
}

// readRoles joins assignments and last reports of a cell.
func readRoles(ctx context.Context, js jetstream.JetStream, cell string, now time.Time) ([]row, error) {
	rows := map[string]*row{}
	err := tail.Last(ctx, js, streams.Role, func(m tail.Message) bool {
		s, err := schemas.ParseSubject(m.Subject)
		var a schemas.Assignment
		if err == nil && schemas.Decode(m.Data, &a) == nil {
			id := s.Get("executor")
			rows[id] = &row{Executor: id, Assigned: a.Role, Epoch: m.Seq, Classes: a.Classes, Absorb: a.Absorb, Pinned: a.Pinned, Plan: a.Plan, By: a.By, Reason: a.Reason}
		}
		return true
	}, schemas.RoleSubject(cell, "*"))
	if err != nil {
		return nil, err
	}
	err = tail.Last(ctx, js, streams.Report, func(m tail.Message) bool {
		var rep schemas.Report
		if schemas.Decode(m.Data, &rep) != nil {
			return true
		}
		r := rows[rep.Executor]
		if r == nil {
			r = &row{Executor: rep.Executor}
			rows[rep.Executor] = r
		}
		r.Role, r.InForce, r.Running, r.Queued, r.Free = rep.Role, rep.Epoch, rep.Running, rep.Queued, rep.SlotsFree
		r.Unfit, r.Problem, r.Flips, r.Flip = rep.Unfit, rep.Problem, rep.Flips, rep.Flip
		r.AgeMS = max(0, now.Sub(time.Unix(0, rep.AtNS)).Milliseconds())
		return true
	}, schemas.ReportSubject(cell, "*"))
	out := make([]row, 0, len(rows))
	for _, r := range rows {
		out = append(out, *r)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Executor < out[j].Executor })
	return out, err
}

// listenFor is how long the list waits for heartbeats, which come every 500 ms.
const listenFor = 700 * time.Millisecond

// hearRows adds what only heartbeats say, of the executors that live.
func hearRows(ctx context.Context, beats *nats.Subscription, rows []row, wait time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	left := 0
	for i := range rows {
		if rows[i].Role != "" && time.Duration(rows[i].AgeMS)*time.Millisecond <= goneAfter {
			left++
		}
	}
	for left > 0 {
		m, err := beats.NextMsgWithContext(ctx)
		if err != nil {
			return
		}
		var h schemas.Heartbeat
		if schemas.Decode(m.Data, &h) != nil || h.Dead {
			continue
		}
		i := sort.Search(len(rows), func(i int) bool { return rows[i].Executor >= h.Executor })
		if i == len(rows) || rows[i].Executor != h.Executor || rows[i].Size > 0 {
			continue
		}
		rows[i].Node, rows[i].Size = h.Node, max(1, h.Size)
		left--
	}
}
