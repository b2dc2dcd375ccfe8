package plannercmd

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-dev/weir/services/control"
	"github.com/weir-dev/weir/services/record"
	"github.com/weir-dev/weir/services/serve"
)

func (o *options) replayCommand() *cobra.Command {
	actor := ""
	c := &cobra.Command{
		Use: "replay FILE|FOLDER", Short: "Feed a recording to the shipped planner or router again and compare what it answers", Args: cobra.ExactArgs(1),
		Long: "Reads what --record wrote, hands every message to a new planner or router of this build, at the\n" +
			"time that stands beside it, and compares every output byte for byte. The first difference is\n" +
			"shown, and the command fails. FILE is any part of a recording, FOLDER holds several.",
		Example: "  weir up --record rec\n  weir planner replay rec\n  weir planner replay rec --actor router",
		RunE:    func(cmd *cobra.Command, args []string) error { return o.replay(cmd, args[0], actor) },
	}
	c.Flags().StringVar(&actor, "actor", "", "only recordings of this actor: planner or router")
	return c
}

var errDiffers = errors.New("this build answers otherwise than the recording")

func (o *options) replay(cmd *cobra.Command, path, actor string) error {
	if err := o.check(); err != nil {
		return err
	}
	if actor != "" && actor != "planner" && actor != "router" {
		return fmt.Errorf("%w: --actor is %q, allowed are planner and router", serve.ErrUsage, actor)
	}
	firsts, err := record.Find(path, actor)
	if err != nil {
		return err
	}
	differs := false
	for _, f := range firsts {
		began := time.Now()
		res, err := record.Replay(f, control.Rebuild)
		if err != nil {
			return err
		}
		differs = differs || !res.Identical
		if o.output == "json" {
			err = printJSON(cmd.OutOrStdout(), res)
		} else {
			err = printReplay(cmd.OutOrStdout(), res, time.Since(began))
		}
		if err != nil {
			return err
		}
	}
	if differs {
		return errDiffers
	}
	return nil
}

func printReplay(w io.Writer, r *record.Result, took time.Duration) error {
	words := "identical"
	if !r.Identical {
		words = "DIFFERENT"
	}
	_, err := fmt.Fprintf(w, "%s of cell %s, epoch %d: %s; %d inputs over %s, %d outputs with %d bytes compared, in %s\n",
		r.Actor, r.Cell, r.Epoch, words, r.Inputs, r.Span().Round(time.Millisecond), r.Outputs, r.Bytes, took.Round(time.Millisecond))
	if r.Weir != serve.Version() {
		fmt.Fprintf(w, "  recorded by version %s, this is %s\n", clean(r.Weir, 60), serve.Version())
	}
	if r.Cut != "" {
		fmt.Fprintf(w, "  it ends early: %s\n", clean(r.Cut, 200))
	}
	d := r.First
	if d == nil || err != nil {
		return err
	}
	fmt.Fprintf(w, "  first difference in line %d, at %s", d.No, time.Unix(0, d.AtNS).UTC().Format("2006-01-02T15:04:05.000000000Z"))
	if d.In != nil {
		fmt.Fprintf(w, ", after a %s message%s%s, in output %d", d.In.Kind, named(" on ", clean(d.In.Subject, 200)), seq(d.In.Seq), d.Output)
	}
	at := 0
	for at < len(d.Recorded) && at < len(d.Replayed) && d.Recorded[at] == d.Replayed[at] {
		at++
	}
	_, err = fmt.Fprintf(w, "\n    from byte %d on\n    recorded  %s\n    replayed  %s\n", at, around(d.Recorded, at), around(d.Replayed, at))
	return err
}

func seq(n uint64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", sequence %d", n)
}

// around is what stands around a byte; "nothing" for an output that is not there.
func around(s string, at int) string {
	const before, after = 60, 160
	if s == "" {
		return "nothing"
	}
	from, to := max(0, at-before), min(len(s), at+after)
	text := clean(s[from:to], before+after+1)
	if from > 0 {
		text = "…" + text
	}
	if to < len(s) {
		text += "…"
	}
	return text
}
