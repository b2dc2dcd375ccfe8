// Package tracecmd is `weir trace`: recorded and generated loads, replayed through
// weir's own lineage and eviction without a model. Read evict.go first.
package tracecmd

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/weir-dev/weir/services/serve"
)

// NewCommand makes "weir trace".
func NewCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "trace", Short: "Replay recorded loads without a model", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(evictCommand(), scheduleCommand(), churnCommand())
	return c
}

func checkOutput(o string) error {
	if o != "" && o != "json" {
		return fmt.Errorf("%w: -o is %q, only json is known", serve.ErrUsage, o)
	}
	return nil
}

// printLines writes one JSON object a line.
func printLines[T any](w io.Writer, list []T) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	for _, v := range list {
		if err := e.Encode(v); err != nil {
			return err
		}
	}
	return nil
}
