package opscmd

import (
	"errors"
	"fmt"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/serve"
	"github.com/weir-dev/weir/streams"
)

// letter is a dead letter with its place in the stream.
type letter struct {
	Seq uint64 `json:"seq"`
	schemas.Dead
}

// Dead is `weir dead` with its sub-commands show and rm.
func Dead() *cobra.Command {
	b := &bus{}
	limit := 50
	c := &cobra.Command{
		Use: "dead", Short: "List what could not be processed, and why", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return b.listDead(cmd, limit) },
	}
	b.flags(c)
	c.Flags().IntVar(&limit, "limit", limit, "newest letters to show")
	c.AddCommand(&cobra.Command{
		Use: "show SEQ", Short: "Print one dead letter with its message", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return b.showDead(cmd, args[0]) },
	}, &cobra.Command{
		Use: "rm SEQ", Short: "Remove a dead letter", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return b.removeDead(cmd, args[0]) },
	})
	return c
}

func (b *bus) listDead(cmd *cobra.Command, limit int) error {
	nc, js, err := b.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	ctx := cmd.Context()
	s, err := js.Stream(ctx, streams.Dead)
	if err != nil {
		return fmt.Errorf("stream %s: %w", streams.Dead, err)
	}
	st := s.CachedInfo().State
	var ls []letter
	for seq := st.LastSeq; seq >= max(st.FirstSeq, 1) && len(ls) < limit && st.Msgs > 0; seq-- {
		m, err := s.GetMsg(ctx, seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		l := letter{Seq: seq}
		if schemas.Decode(m.Data, &l.Dead) != nil {
			l.Reason = "this dead letter is of another version"
		}
		ls = append(ls, l)
	}
	if b.output == "json" {
		for _, l := range ls {
			if err := printJSON(cmd.OutOrStdout(), l); err != nil {
				return err
			}
		}
		return nil
	}
	if len(ls) == 0 {
		fmt.Fprintln(cmd.OutOrStdout(), "no dead letters")
		return nil
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SEQ\tTIME\tSTAGE\tTENANT\tSESSION\tTURN\tCODE\tREASON")
	for _, l := range ls {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.Seq, time.Unix(0, l.AtNS).Format(time.DateTime), l.Stage, l.Tenant, l.Session, l.Turn, l.Code, l.Reason)
	}
	return w.Flush()
}

func parseSeq(s string) (uint64, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%w: %q is not the sequence of a dead letter; see: weir dead", serve.ErrUsage, s)
	}
	return n, nil
}

// onDead finds a dead letter and hands it to f.
func (b *bus) onDead(cmd *cobra.Command, arg string, f func(s jetstream.Stream, m *jetstream.RawStreamMsg) error) error {
	seq, err := parseSeq(arg)
	if err != nil {
		return err
	}
	nc, js, err := b.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	s, err := js.Stream(cmd.Context(), streams.Dead)
	if err != nil {
		return fmt.Errorf("stream %s: %w", streams.Dead, err)
	}
	m, err := s.GetMsg(cmd.Context(), seq)
	if err != nil {
		return absent(seq, err)
	}
	return f(s, m)
}

func (b *bus) showDead(cmd *cobra.Command, arg string) error {
	return b.onDead(cmd, arg, func(_ jetstream.Stream, m *jetstream.RawStreamMsg) error {
		l := letter{Seq: m.Sequence}
		if err := schemas.Decode(m.Data, &l.Dead); err != nil {
			return err
		}
		if b.output == "json" {
			return printJSON(cmd.OutOrStdout(), l)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "seq      %d\nsubject  %s\ntenant   %s\nsession  %s\nturn     %s\ncode     %s\nreason   %s\n\n%s\n",
			l.Seq, l.Subject, l.Tenant, l.Session, l.Turn, l.Code, l.Reason, l.Body)
		return nil
	})
}

// removeDead reads before it deletes: deleting what is not there reports no code
// of its own.
func (b *bus) removeDead(cmd *cobra.Command, arg string) error {
	return b.onDead(cmd, arg, func(s jetstream.Stream, m *jetstream.RawStreamMsg) error {
		return s.SecureDeleteMsg(cmd.Context(), m.Sequence) // the letter has a copy of the message
	})
}

// absent says what to do about a letter that cannot be read.
func absent(seq uint64, err error) error {
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return fmt.Errorf("there is no dead letter %d: it was removed, or never written; see: weir dead", seq)
	}
	return fmt.Errorf("dead letter %d: %w", seq, err)
}
