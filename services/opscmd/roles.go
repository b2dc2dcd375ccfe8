package opscmd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/assign"
	"github.com/weir-dev/weir/services/serve"
	"github.com/weir-dev/weir/streams"
)

// Roles is `weir roles` with its sub-command set.
func Roles() *cobra.Command {
	b := &bus{}
	c := &cobra.Command{
		Use: "roles", Short: "See and set what executors do", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return b.listRoles(cmd) },
	}
	b.flags(c)
	o := setting{hear: hearFor}
	set := &cobra.Command{
		Use: "set EXECUTOR ROLE", Short: "Assign a role: prefill, decode, mixed or standby", Args: cobra.ExactArgs(2),
		Long: "Assigns a role. The executor finishes or hands over what it does, keeps its model and its KV blocks,\nand takes work of the new role, all without a restart.\n" +
			"An executor that is not heard gets no role, unless --force says so: a name with a slip would be kept for ever.",
		RunE: func(cmd *cobra.Command, args []string) error { return b.setRole(cmd, args[0], args[1], o) },
	}
	set.Flags().DurationVar(&o.wait, "wait", 15*time.Second, "how long to wait until the executor reports the new role; 0 does not wait")
	set.Flags().BoolVar(&o.force, "force", false, "assign the role even if the executor is not heard; it takes it when it starts")
	c.AddCommand(set)
	return c
}

// setting is how a role is set.
type setting struct {
	hear  time.Duration // how long the executor is listened for first
	wait  time.Duration // how long to wait for the role to be in force, 0 for not at all
	force bool          // do not listen first
}

// hearFor is four heartbeats: executors send one every 500 ms.
const hearFor = 2 * time.Second

// row is one executor as people see it.
type row struct {
	Executor string       `json:"executor"`
	Assigned schemas.Role `json:"assigned"`
	Epoch    uint64       `json:"epoch"`
	Role     schemas.Role `json:"role"` // as reported, "" when nothing was heard
	InForce  uint64       `json:"epoch_in_force"`
	By       string       `json:"by,omitempty"`
	Reason   string       `json:"reason,omitempty"`
	Running  int          `json:"running"`
	Queued   int          `json:"queued"`
	Free     int          `json:"slots_free"`
	// AgeMS is how old the report is that the last columns are from. Executors
	// report every 2 s; one that has gone leaves its last report.
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
	rows, err := readRoles(cmd.Context(), js, b.cell, time.Now())
	if err != nil {
		return err
	}
	if b.output == "json" {
		for _, r := range rows {
			if err := printJSON(cmd.OutOrStdout(), r); err != nil {
				return err
			}
		}
		return nil
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "EXECUTOR\tASSIGNED\tEPOCH\tROLE\tRUNNING\tQUEUED\tFREE\tBY\tREASON")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%d\t%d\t%d\t%s\t%s\n", r.Executor, r.Assigned, r.Epoch, r.shown(), r.Running, r.Queued, r.Free, r.By, r.Reason)
	}
	return w.Flush()
}

// readRoles joins assignments and last reports of a cell.
func readRoles(ctx context.Context, js jetstream.JetStream, cell string, now time.Time) ([]row, error) {
	rows := map[string]*row{}
	err := lastPerSubject(ctx, js, streams.Role, schemas.RoleSubject(cell, "*"), func(subject string, seq uint64, body []byte) {
		s, err := schemas.ParseSubject(subject)
		var a schemas.Assignment
		if err != nil || schemas.Decode(body, &a) != nil {
			return
		}
		id := s.Get("executor")
		rows[id] = &row{Executor: id, Assigned: a.Role, Epoch: seq, By: a.By, Reason: a.Reason}
	})
	if err != nil {
		return nil, err
	}
	err = lastPerSubject(ctx, js, streams.Report, schemas.ReportSubject(cell, "*"), func(_ string, _ uint64, body []byte) {
		var rep schemas.Report
		if schemas.Decode(body, &rep) != nil {
			return
		}
		r := rows[rep.Executor]
		if r == nil {
			r = &row{Executor: rep.Executor}
			rows[rep.Executor] = r
		}
		r.Role, r.InForce, r.Running, r.Queued, r.Free = rep.Role, rep.Epoch, rep.Running, rep.Queued, rep.SlotsFree
		r.AgeMS = max(0, now.Sub(time.Unix(0, rep.AtNS)).Milliseconds())
	})
	out := make([]row, 0, len(rows))
	for _, r := range rows {
		out = append(out, *r)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Executor < out[j].Executor })
	return out, err
}

// lastPerSubject calls f for the last message of each subject.
func lastPerSubject(ctx context.Context, js jetstream.JetStream, stream, filter string, f func(subject string, seq uint64, body []byte)) error {
	cons, err := js.OrderedConsumer(ctx, stream, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{filter}, DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy,
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("stream %s does not exist: no weir has run on this NATS", stream)
	}
	if err != nil {
		return err
	}
	info, err := cons.Info(ctx)
	if err != nil {
		return err
	}
	for left := info.NumPending; left > 0; {
		batch, err := cons.Fetch(int(min(left, 256)), jetstream.FetchMaxWait(2*time.Second))
		if err != nil {
			return err
		}
		got := uint64(0)
		for m := range batch.Messages() {
			seq := uint64(0)
			if md, err := m.Metadata(); err == nil {
				seq = md.Sequence.Stream
			}
			f(m.Subject(), seq, m.Data())
			got++
		}
		if batch.Error() != nil {
			return batch.Error()
		}
		if got == 0 {
			return nil
		}
		left -= min(left, got)
	}
	return nil
}

func (b *bus) setRole(cmd *cobra.Command, executor, role string, o setting) error {
	a := &schemas.Assignment{Header: schemas.H(), Role: schemas.Role(role), By: "weir roles", Reason: "set by hand"}
	if err := errors.Join(a.Check(), schemas.CheckID("EXECUTOR", executor)); err != nil {
		return fmt.Errorf("%w: %w", serve.ErrUsage, err)
	}
	nc, js, err := b.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	ctx := cmd.Context()
	beats := make(chan *nats.Msg, 1024) // two seconds of a full cell
	sub, err := nc.ChanSubscribe(schemas.HBSubject(b.cell, "*"), beats)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if !o.force {
		if err := awaitAlive(ctx, beats, o.hear, b.cell, executor); err != nil {
			return err
		}
	}
	_, last, err := assign.Read(ctx, js, b.cell, executor)
	if err != nil {
		return err
	}
	epoch, err := assign.Write(ctx, js, b.cell, executor, a, last)
	if err != nil {
		return fmt.Errorf("role not assigned: %w; somebody else may have written it at the same moment, look with: weir roles", err)
	}
	start := time.Now()
	if o.wait > 0 {
		if err := awaitEpoch(ctx, beats, epoch, o.wait, executor); err != nil {
			return err
		}
	}
	if b.output == "json" {
		return printJSON(cmd.OutOrStdout(), map[string]any{"executor": executor, "role": role, "epoch": epoch, "ms": time.Since(start).Milliseconds()})
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s is %s, epoch %d, after %d ms\n", executor, role, epoch, time.Since(start).Milliseconds())
	return nil
}

// awaitAlive waits for a heartbeat of an executor. The error names those that were
// heard instead.
func awaitAlive(ctx context.Context, beats <-chan *nats.Msg, wait time.Duration, cell, executor string) error {
	t := time.NewTimer(wait)
	defer t.Stop()
	alive := map[string]bool{}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
			others := "no executor of this cell is: is weir running, and is --cell right?"
			if len(alive) > 0 {
				others = "alive are: " + strings.Join(slices.Sorted(maps.Keys(alive)), ", ")
			}
			return fmt.Errorf("executor %q of cell %q was not heard within %s, so no role was assigned; %s; --force assigns it anyway", executor, cell, wait, others)
		case m := <-beats:
			var h schemas.Heartbeat
			switch {
			case schemas.Decode(m.Data, &h) != nil:
			case h.Dead: // a supervisor's word
				delete(alive, h.Executor)
			case h.Executor == executor:
				return nil
			default:
				alive[h.Executor] = true
			}
		}
	}
}

// awaitEpoch waits until the executor reports that the assignment is in force.
func awaitEpoch(ctx context.Context, beats <-chan *nats.Msg, epoch uint64, wait time.Duration, executor string) error {
	t := time.NewTimer(wait)
	defer t.Stop()
	heard := false
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
			if !heard {
				return fmt.Errorf("epoch %d is assigned, but executor %q was not heard within %s: is it running? see: weir roles", epoch, executor, wait)
			}
			return fmt.Errorf("epoch %d is assigned, but executor %q has not applied it within %s; it still drains", epoch, executor, wait)
		case m := <-beats:
			var h schemas.Heartbeat
			if schemas.Decode(m.Data, &h) != nil || h.Dead || h.Executor != executor {
				continue
			}
			heard = true
			if h.Epoch >= epoch {
				return nil
			}
		}
	}
}
