package opscmd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/weir-dev/weir/gpuexec/llamacpp"
	"github.com/weir-dev/weir/kvtier/hostmem"
	"github.com/weir-dev/weir/services/model"
	"github.com/weir-dev/weir/services/serve"
	"github.com/weir-dev/weir/streams/jsrun"
)

// check is one line of the doctor's report.
type check struct {
	Name   string `json:"name"`
	State  string `json:"state"` // ok, note or bad
	Detail string `json:"detail"`
}

// Doctor is `weir doctor`.
func Doctor() *cobra.Command {
	o := serve.Defaults()
	natsURL := ""
	c := &cobra.Command{
		Use: "doctor", Short: "Check this machine, the engine and the model", Args: cobra.NoArgs,
		Long: "Checks memory, libraries and model, with --nats also NATS and the tier nodes of the cell,\nand measures whether a row's result depends on the rows beside it.\nThe exit code is 1 when something is bad.",
		RunE: func(cmd *cobra.Command, _ []string) error { return doctor(cmd, o, natsURL) },
	}
	o.Flags(c.Flags())
	c.Flags().StringVar(&natsURL, "nats", "", "URL of a NATS to check too")
	return c
}

func doctor(cmd *cobra.Command, o serve.Options, natsURL string) error {
	if err := o.Validate(); err != nil {
		return err
	}
	cs := append(machine(o), engineChecks(o)...)
	if natsURL != "" {
		cs = append(cs, bus1(cmd.Context(), o, natsURL)...)
	}
	bad := 0
	for _, c := range cs {
		if c.State == "bad" {
			bad++
		}
		if o.Output == "json" {
			if err := printJSON(cmd.OutOrStdout(), c); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%-5s %-18s %s\n", c.State, c.Name, c.Detail)
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d checks are bad", bad, len(cs))
	}
	return nil
}

func machine(o serve.Options) []check {
	cs := []check{{"platform", "ok", fmt.Sprintf("%s/%s, %d cores, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())}}
	dir := o.Arena
	if dir == "" {
		dir = "/dev/shm"
	}
	var st unix.Statfs_t
	switch err := unix.Statfs(dir, &st); {
	case err != nil:
		cs = append(cs, check{"kv memory", "note", fmt.Sprintf("%s: %s; a folder below --dir is used instead", dir, err)})
	case int64(st.Bavail)*int64(st.Bsize) < o.KVMem: //nolint:unconvert // the field's type differs between systems
		cs = append(cs, check{"kv memory", "bad", fmt.Sprintf("%s has %d MiB free, --kv-mem asks for %d MiB; enlarge it (mount -o remount,size=…) or ask for less",
			dir, int64(st.Bavail)*int64(st.Bsize)>>20, o.KVMem>>20)}) //nolint:unconvert // as above
	default:
		cs = append(cs, check{"kv memory", "ok", fmt.Sprintf("%s has %d MiB free, --kv-mem asks for %d MiB", dir, int64(st.Bavail)*int64(st.Bsize)>>20, o.KVMem>>20)}) //nolint:unconvert // as above
	}
	if huge, why := hostmem.HugePages(dir); huge {
		cs = append(cs, check{"huge pages", "ok", why})
	} else {
		cs = append(cs, check{"huge pages", "note", "KV memory does without: " + why})
	}
	if o.KVDisk != "" {
		if detail, err := o.CheckDisk(); err != nil {
			cs = append(cs, check{"kv disk", "bad", err.Error()})
		} else {
			cs = append(cs, check{"kv disk", "ok", detail})
		}
	}
	if err := os.MkdirAll(o.Dir, 0o750); err != nil {
		cs = append(cs, check{"folder", "bad", err.Error()})
	} else if abs, err := filepath.Abs(o.Dir); err == nil {
		cs = append(cs, check{"folder", "ok", abs})
	}
	return cs
}

func engineChecks(o serve.Options) []check {
	m, err := model.Open(model.Options{Engine: o.Engine, Path: o.ModelPath, Dir: o.Dir, LibDir: o.LibDir, Name: o.ModelName, Log: os.Stderr})
	if err != nil {
		return []check{{"model", "bad", err.Error()}}
	}
	defer func() { _ = m.Close() }() // a read-only mapping
	cs := []check{{"model", "ok", fmt.Sprintf("%s, sha256 %.12s…, made for %d tokens, tokenizer %.40s", m.Name, m.Digest, m.Trained, m.Vocab.Name())}}
	if m.Default {
		cs = append(cs, check{"default model", "note", "random weights: it computes for real and writes gibberish; name your own with --model"})
	}
	if m.Engine == model.EngineGo && o.Engine == model.EngineAuto {
		cs = append(cs, check{"libraries", "note", "the llama.cpp libraries are not installed, so the slower go engine is used; \"make engine\" installs them"})
	}
	ctx := min(o.Context, 2048)
	if m.Trained > 0 {
		ctx = min(ctx, m.Trained)
	}
	e, err := m.NewEngine(model.EngineOptions{Slots: max(2, min(o.Slots, 4)), Context: ctx, Threads: o.Threads, GPULayers: o.GPULayers, Log: os.Stderr})
	if err != nil {
		return append(cs, check{"engine", "bad", err.Error()})
	}
	defer func() { _ = e.Close() }() // nothing is left to do about it
	info := e.Info()
	cs = append(cs, check{"engine", "ok", fmt.Sprintf("%s %s, block %d bytes, devices %v", info.Engine, info.Version, e.Limits().BlockBytes, info.Devices)})
	le, ok := e.(*llamacpp.Engine)
	if !ok {
		return append(cs, check{"batch invariance", "ok", "a row's result never depends on the rows beside it, by construction"})
	}
	inv, err := llamacpp.BatchInvariant(le)
	switch {
	case err != nil:
		cs = append(cs, check{"batch invariance", "bad", err.Error()})
	case inv.Decode && inv.Prefill:
		cs = append(cs, check{"batch invariance", "ok", inv.Detail})
	default:
		cs = append(cs, check{"batch invariance", "note", inv.Detail + "; weir promises equal tokens for this model, not equal bits"})
	}
	return cs
}

func bus1(ctx context.Context, o serve.Options, url string) []check {
	b := bus{url: url}
	nc, js, err := b.connect()
	if err != nil {
		return []check{{"nats", "bad", err.Error()}}
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := jsrun.Provision(ctx, js, o.Topology()); err != nil {
		return []check{{"nats", "bad", err.Error()}}
	}
	rtt, err := nc.RTT()
	if err != nil {
		return []check{{"nats", "bad", err.Error()}}
	}
	ok := check{"nats", "ok", fmt.Sprintf("%s, version %s, round trip %s, streams are as they must be", url, nc.ConnectedServerVersion(), rtt.Round(time.Microsecond))}
	return append([]check{ok}, tierNodes(ctx, nc, o.Cell)...)
}
