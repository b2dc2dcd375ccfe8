// Command weir runs and drives weir: see `weir help`.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/weir-dev/weir/services/proc"
	"github.com/weir-dev/weir/services/serve"
)

// version is set by the linker for releases.
var version string

func main() { os.Exit(run()) }

// run returns the exit code: 0, 1 (failed) or 2 (wrong use).
func run() int {
	ctx, stop := proc.Context()
	defer stop()
	if version != "" {
		serve.SetVersion(version)
	}
	began := false
	c := root()
	c.PersistentPreRun = func(*cobra.Command, []string) { began = true }
	err := c.ExecuteContext(ctx)
	switch {
	case err == nil:
		return 0
	case !began:
		// An unknown command or a wrong number of arguments.
		fmt.Fprintf(os.Stderr, "weir: %v; see \"weir help\"\n", err)
		return 2
	case errors.Is(err, serve.ErrUsage):
		fmt.Fprintln(os.Stderr, "weir:", err)
		return 2
	}
	var coded interface{ ExitCode() int }
	if errors.As(err, &coded) {
		if msg := err.Error(); msg != "" {
			fmt.Fprintln(os.Stderr, "weir:", msg)
		}
		return coded.ExitCode()
	}
	fmt.Fprintln(os.Stderr, "weir:", err)
	return 1
}
