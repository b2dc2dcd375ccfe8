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

// tableWidth is how many columns the list of roles takes at most.
const tableWidth = 120

// printRoles lists executors, one a line; what is wrong with one stands below it.
func printRoles(out io.Writer, rows []row, now time.Time) error {
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "EXECUTOR\tNODE\tSIZE\tROLE\tEPOCH\tABSORB\tRUN\tQUEUE\tFREE\tFLIPPED FROM\tBY\tREASON")
	for _, r := range rows {
		size := "-"
		if r.Size > 0 {
			size = fmt.Sprint(r.Size)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%s\t%s\t%s\n", cutTo(r.Executor, 16), cutTo(r.Node, 8), size, r.held(), cutTo(fmt.Sprint(r.epoch()), 14),
			r.absorb(), r.Running, r.Queued, r.Free, flipText(r.Flip, now), cutTo(oneLine(r.By), 12), oneLine(r.Reason))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for i, line := range strings.Split(strings.TrimSuffix(table.String(), "\n"), "\n") {
		fmt.Fprintln(out, strings.TrimRight(cutTo(line, tableWidth), " "))
		if i == 0 {
			continue
		}
		for _, wrong := range rows[i-1].wrong() {
			fmt.Fprintln(out, cutTo("  "+oneLine(wrong), tableWidth))
		}
	}
	return nil
}

// cutTo shortens a text to n characters.
func cutTo(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "…"
}

// oneLine keeps others' words from breaking the table.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// roles is the role that an executor has, and the one that it is assigned while that is
// another; a question mark says that nothing was heard of it.
func (r *row) roles() string {
	switch is := r.shown(); {
	case is == string(r.Assigned) || r.Assigned == "":
		return is
	case is == "":
		return string(r.Assigned) + "?"
	case is != string(r.Role):
		return is
	default:
		return is + ">" + string(r.Assigned)
	}
}

// held is roles, and whether people hold it.
func (r *row) held() string {
	if r.Pinned {
		return r.roles() + ", pinned"
	}
	return r.roles()
}

// epoch is the one in force, or the assigned one of an executor that was not heard.
func (r *row) epoch() uint64 {
	if r.Role == "" {
		return r.Epoch
	}
	return r.InForce
}

// wrong is what an executor reports against itself.
func (r *row) wrong() (out []string) {
	if r.Unfit != "" {
		out = append(out, "unfit: "+r.Unfit)
	}
	if r.Problem != "" {
		out = append(out, "problem: "+r.Problem)
	}
	if r.Flip != nil && r.Flip.Back != "" {
		out = append(out, "its last role change was rolled back: "+r.Flip.Back)
	}
	return out
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

// flipText is the last role change for people: from which role, what it took, how long
// ago. `weir explain flip` has its stages.
func flipText(f *schemas.Flip, now time.Time) string {
	if f == nil {
		return ""
	}
	if f.Back != "" {
		return fmt.Sprintf("not to %s, %s ago", f.To, now.Sub(time.Unix(0, f.AtNS)).Round(time.Second))
	}
	return fmt.Sprintf("%s, %.0f ms, %s ago", f.From, float64(f.ReturnNS+f.HandNS+f.VerifyNS)/1e6, now.Sub(time.Unix(0, f.AtNS)).Round(time.Second))
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
