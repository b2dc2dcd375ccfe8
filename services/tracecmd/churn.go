package tracecmd

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/weir-dev/weir/kvtier/workload"
	"github.com/weir-dev/weir/kvtier/workload/churn"
	"github.com/weir-dev/weir/services/serve"
)

// maxParams bounds a file of parameters in bytes.
const maxParams = 1 << 20

func churnCommand() *cobra.Command {
	d := churn.Default()
	var seed uint64
	var file, output string
	var show bool
	c := &cobra.Command{
		Use:   "churn",
		Short: "Generate a load of agents that compact, fork, retry and wait",
		Long: "Generate a load of agents as JSON lines, one call each, for `weir trace evict FILE`.\n" +
			"Equal seeds and parameters give equal bytes. Lengths are tokens, times seconds.",
		Example: "  weir trace churn --seed 1 > churn.jsonl\n  weir trace churn --show-params > params.json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			p := churn.Default()
			if err := readParams(file, &p); err != nil {
				return err
			}
			f := cmd.Flags()
			for name, set := range map[string]func(){
				"agents":  func() { p.Agents = d.Agents },
				"calls":   func() { p.MaxCalls = d.MaxCalls },
				"horizon": func() { p.Horizon = d.Horizon },
			} {
				if f.Changed(name) {
					set()
				}
			}
			if show {
				e := json.NewEncoder(cmd.OutOrStdout())
				e.SetIndent("", "  ")
				return e.Encode(p)
			}
			if p.MaxCalls < 1 {
				return fmt.Errorf("%w: --calls is %d, it must be positive", serve.ErrUsage, p.MaxCalls)
			}
			s, err := churn.Generate(p, seed)
			if err != nil {
				return fmt.Errorf("%w: %w", serve.ErrUsage, err)
			}
			return workload.Encode(cmd.OutOrStdout(), s)
		},
	}
	f := c.Flags()
	f.Uint64Var(&seed, "seed", 1, "seed of all that is random")
	f.IntVar(&d.Agents, "agents", d.Agents, "agents at work at the same time")
	f.IntVar(&d.MaxCalls, "calls", d.MaxCalls, "keep the first so many calls")
	f.Float64Var(&d.Horizon, "horizon", d.Horizon, "seconds in which calls begin")
	f.StringVar(&file, "params", "", "JSON file of parameters that differ from the defaults")
	f.BoolVar(&show, "show-params", false, "print the parameters as JSON instead")
	f.StringVarP(&output, "output", "o", "json", "form of the output: json")
	return c
}

// readParams reads what a file says into p; "" is no file.
func readParams(file string, p *churn.Params) error {
	if file == "" {
		return nil
	}
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("%w; name a file that `weir trace churn --show-params` could have written", err)
	}
	defer func() { _ = f.Close() }()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if st.Size() > maxParams {
		return fmt.Errorf("%w: %s has %d bytes, parameters have at most %d", serve.ErrUsage, file, st.Size(), maxParams)
	}
	d := json.NewDecoder(f)
	d.DisallowUnknownFields()
	if err := d.Decode(p); err != nil {
		return fmt.Errorf("%w: %s: %w", serve.ErrUsage, file, err)
	}
	return nil
}
