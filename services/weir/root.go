package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-dev/weir/services/explaincmd"
	"github.com/weir-dev/weir/services/opscmd"
	"github.com/weir-dev/weir/services/plannercmd"
	"github.com/weir-dev/weir/services/serve"
	"github.com/weir-dev/weir/services/sessioncmd"
	"github.com/weir-dev/weir/services/sim"
	"github.com/weir-dev/weir/services/tracecmd"
	"github.com/weir-dev/weir/services/turncmd"
	"github.com/weir-dev/weir/services/up"
)

// root is the command line.
func root() *cobra.Command {
	c := &cobra.Command{
		Use: "weir", Short: "Serve language models to agents over NATS", Version: serve.Version(),
		SilenceErrors: true, SilenceUsage: true,
	}
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w: %w", serve.ErrUsage, err) })
	c.AddCommand(upCommand(), serveCommand(), turncmd.NewCommand(), opscmd.Roles(), plannercmd.NewCommand(), opscmd.Dead(), opscmd.Doctor(), opscmd.Probe(), sessioncmd.NewCommand(), explaincmd.NewCommand(), tracecmd.NewCommand(), sim.Command())
	return c
}

func upCommand() *cobra.Command {
	o := up.Options{Options: serve.Defaults(), ReadyWait: time.Minute}
	c := &cobra.Command{
		Use: "up", Short: "Run a whole stack on this machine", Args: cobra.NoArgs,
		Long: "Runs NATS, all services and the executors as processes of this machine.\nCtrl-C stops everything and leaves no process, port or shared memory.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out, o.Err = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return up.Run(cmd.Context(), o)
		},
	}
	f := c.Flags()
	o.Flags(f)
	f.StringVar(&o.NATS, "nats", o.NATS, "address on which to start NATS, or the URL of a server that runs")
	f.IntVar(&o.Prefill, "prefill", 0, "executors that prefill (default 1, with --decode 1)")
	f.IntVar(&o.Decode, "decode", 0, "executors that decode")
	f.IntVar(&o.Mixed, "mixed", 0, "executors that do both")
	f.IntVar(&o.Nodes, "nodes", 1, "tier nodes: each has its share of --kv-mem, and executors are spread over them, as if they were on several hosts")
	f.DurationVar(&o.ReadyWait, "ready-wait", o.ReadyWait, "how long the start may take")
	return c
}

func serveCommand() *cobra.Command {
	o := serve.Defaults()
	c := &cobra.Command{
		Use: "serve", Short: "Run single services against an existing NATS", Args: cobra.NoArgs,
		Long: "Runs the services named by --target in this process: " + strings.Join(serve.Targets(), ", ") + ".",
		RunE: func(cmd *cobra.Command, _ []string) error { return serve.Run(cmd.Context(), o) },
	}
	f := c.Flags()
	o.Flags(f)
	f.StringSliceVar(&o.Targets, "target", nil, "services to run, separated by commas")
	f.StringVar(&o.NATS, "nats", "nats://127.0.0.1:4222", "URL of NATS; with target nats, the address to listen on")
	f.StringVar(&o.ID, "id", "", "id of this instance; an executor's id in role assignments (default for an executor: the host's name)")
	f.StringVar(&o.Metrics, "metrics", "", "address on which this process serves its Prometheus metrics (the gateway has them on its own address too)")
	f.StringVar(&o.Role, "role", "", "first role of an executor that has none assigned: prefill, decode, mixed or standby")
	return c
}
