// Command benchtier prints the figures of package tierbench, one JSON line each.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/weir-dev/weir/e2e/tierbench"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	figures, err := tierbench.Run(ctx, tierbench.Options{
		Log: func(format string, args ...any) { fmt.Fprintf(os.Stderr, "benchtier: "+format+"\n", args...) },
	})
	out := json.NewEncoder(os.Stdout)
	for _, f := range figures {
		_ = out.Encode(f)
		if !f.OK() {
			fmt.Fprintf(os.Stderr, "benchtier: %s is %.4g %s, the bar is %.4g\n", f.Name, f.Value, f.Unit, f.Bar)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchtier:", err)
		os.Exit(1)
	}
}
