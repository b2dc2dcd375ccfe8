// Package serve runs weir's services in this process: the same binary is every
// part, and --target says which.
//
// Read options.go (the flags), then serve.go (what each target starts).
package serve

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/weir-dev/weir/kvtier/hostmem"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/model"
	"github.com/weir-dev/weir/services/record"
	"github.com/weir-dev/weir/streams"
)

// Targets are the services, in the order in which they start.
func Targets() []string {
	return []string{"nats", "tier", "tokenizer", "lineage", "router", "planner", "gateway", "executor"}
}

// Options are what `weir up` and `weir serve` share.
type Options struct {
	Targets []string
	Dir     string
	NATS    string // URL of a server, or host:port on which to start one
	HTTP    string
	Cell    string
	Node    string
	ID      string
	Role    string // first role of an executor that nobody has assigned one
	Arena   string // folder of the shared KV memory
	KVMem   int64
	KVOrder string // of eviction, see hostmem.Config.Order
	// PeerAddr is where other nodes get KV blocks from this one: host:port, or off.
	PeerAddr string
	// KVDisk is a folder on a local disk for blocks that leave the KV memory, at most
	// KVDiskBytes of them per node; empty for none.
	KVDisk      string
	KVDiskBytes int64

	Engine    string
	ModelPath string
	ModelName string
	LibDir    string
	Context   int
	Slots     int
	Keep      bool // finished contexts stay in the engine until it needs the room
	Threads   int
	GPULayers int
	// Speed is how many times faster than the device of the calibration file Calib
	// executors with simulated devices are; without a file it is one with round numbers.
	Speed float64
	Calib string
	// NullVision: the null engine, which is a fake, takes images too.
	NullVision bool

	DirectMax  int
	Admit      bool
	Deadline   time.Duration
	Durability string
	StoreMB    int64 // bytes of the largest streams, in MiB; 0 is the default
	// StreamBytes are limits of single streams, by name. `weir up` fits them to
	// the disk and tells its children.
	StreamBytes map[string]int64
	// Replicas of the file streams: 3 on a cluster of three or more NATS servers.
	Replicas int
	// Retain chooses how long streams keep messages, by name; see retention.go. A
	// stream that is not named keeps the age that it has.
	Retain    map[string]string
	LogLevel  string
	TraceFile string
	Metrics   string // address on which this process serves its metrics
	Output    string
	// KeepBilling: see gateway.Options.KeepBillingHeader.
	KeepBilling bool

	// Planner is act, advise or off: what the planner may do where people have not said
	// otherwise. With off, `weir up` runs none.
	Planner string
	// Record is a folder that takes what router and planner are told and answer, at
	// most RecordBytes; empty for none.
	Record      string
	RecordBytes int64
}

// Defaults of the flags.
func Defaults() Options {
	return Options{
		Dir: ".weir", NATS: "127.0.0.1:4222", HTTP: "127.0.0.1:8080", Cell: schemas.DefaultCell, Node: "n0", PeerAddr: "127.0.0.1:0", KVMem: 1 << 30, KVOrder: hostmem.OrderWeir, KVDiskBytes: DefaultDiskBytes,
		Engine: model.EngineAuto, Context: 8192, Slots: 8, Keep: true, Threads: 1, DirectMax: schemas.SizeSMax, Admit: true, Speed: 1,
		Deadline: 10 * time.Minute, Durability: "process", Replicas: 1, LogLevel: "info", Planner: PlannerAct, RecordBytes: record.DefaultBytes,
	}
}

// ErrUsage marks errors of the command line; the exit code is 2.
var ErrUsage = errors.New("usage")

// Flags registers what both commands take.
func (o *Options) Flags(f *pflag.FlagSet) {
	f.StringVar(&o.Dir, "dir", o.Dir, "folder for the NATS store, logs and the default model")
	f.StringVar(&o.HTTP, "http", o.HTTP, "address of the OpenAI-compatible gateway")
	f.StringVar(&o.Cell, "cell", o.Cell, "cell of this deployment")
	f.StringVar(&o.Node, "node", o.Node, "name of this host in KV notices")
	f.StringVar(&o.Engine, "engine", o.Engine, "auto, llama, go, null or sim; null computes nothing, sim computes nothing in the time that a modelled device takes")
	f.StringVar(&o.ModelPath, "model", o.ModelPath, "GGUF file; without it a small random model is made, which writes gibberish")
	f.StringVar(&o.ModelName, "model-name", o.ModelName, "name of the model towards callers (default: from the file)")
	f.StringVar(&o.LibDir, "llama-lib", o.LibDir, "folder of the llama.cpp libraries (default: WEIR_LLAMA_LIB, then .engine)")
	f.IntVar(&o.Context, "ctx", o.Context, "tokens per sequence")
	f.IntVar(&o.Slots, "slots", o.Slots, "sequences that an executor holds at once")
	f.BoolVar(&o.Keep, "keep-sequences", o.Keep, "leave the contexts of finished turns in the engine until it needs the room")
	f.IntVar(&o.Threads, "threads", o.Threads, "compute threads per executor; their sum must not exceed the cores")
	f.IntVar(&o.GPULayers, "gpu-layers", o.GPULayers, "layers on the GPU, -1 for all (llama engine)")
	f.Var((*size)(&o.KVMem), "kv-mem", "shared host memory for KV blocks, such as 512MiB or 4GiB")
	f.StringVar(&o.KVOrder, "kv-order", o.KVOrder, "order in which KV blocks are evicted: weir (by what the agents' branches still need) or lru (by last use)")
	f.StringVar(&o.Arena, "kv-dir", o.Arena, "folder of the shared KV memory (default: below /dev/shm)")
	f.StringVar(&o.KVDisk, "kv-disk", o.KVDisk, "folder on a local disk that takes KV blocks before the KV memory gives them up (default: none)")
	f.Var((*size)(&o.KVDiskBytes), "kv-disk-bytes", "most bytes in --kv-disk, per node")
	f.StringVar(&o.PeerAddr, "peer-addr", o.PeerAddr, "address on which other nodes get KV blocks from this one, or off; one that other hosts reach needs a token in "+EnvPeerToken)
	f.Float64Var(&o.Speed, "speed", o.Speed, "with --engine sim: how many times faster than the simulated device; refused where the bus would take 2 % of its shortest step or more")
	f.StringVar(&o.Calib, "calib", o.Calib, "with --engine sim: calibration file (calib/v1) of the device (default: a made-up one with round numbers)")
	f.BoolVar(&o.NullVision, "null-vision", o.NullVision, "let the null engine take images; it is a fake that sees nothing, for tests of everything around a model with vision")
	f.BoolVar(&o.Admit, "admit", o.Admit, "let new sessions wait, at most a minute, while those that are served fill the KV memory, or keep prefill busy for longer than turns should wait")
	f.IntVar(&o.DirectMax, "direct-max", o.DirectMax, "uncached prompt tokens up to which a turn skips the prefill stage; negative: never")
	f.DurationVar(&o.Deadline, "deadline", o.Deadline, "time that a turn without its own deadline may take")
	f.StringVar(&o.Durability, "durability", o.Durability, "process: acknowledged turns survive any crash of a process; sync: also a loss of power, at the cost of one disk sync per message")
	f.Int64Var(&o.StoreMB, "store-mib", o.StoreMB, "size limit of the large file streams in MiB (default 1024)")
	f.StringToInt64Var(&o.StreamBytes, "stream-bytes", nil, "size limits of single streams in bytes, such as AGENT=1073741824; all processes of a deployment need the same")
	f.IntVar(&o.Replicas, "nats-replicas", o.Replicas, "copies of each file stream, 3 on a NATS cluster; streams in memory always have one")
	f.StringToStringVar(&o.Retain, "retain", nil, "how long single streams keep messages, such as AGENT=36h,RESULT=7d,PAYLOAD=7d; known are "+retainNames()+"; streams that are not named keep their time")
	f.BoolVar(&o.KeepBilling, "keep-billing-header", o.KeepBilling, "keep a system block of Claude Code in prompts that differs from request to request, so that nothing behind it is found again")
	f.StringVar(&o.LogLevel, "log-level", o.LogLevel, "debug, info, warn or error")
	f.StringVar(&o.TraceFile, "trace-file", o.TraceFile, "write finished spans as JSON lines to this file; without a traceparent one turn in a hundred is traced, all with OTEL_TRACES_SAMPLER=always_on")
	f.StringVar(&o.Planner, "planner", o.Planner, "act: the planner changes roles; advise: it says what it would change; off: weir up runs none; what weir planner pause|resume|advise said stays in force")
	f.StringVar(&o.Record, "record", o.Record, "folder that takes everything that router and planner are told and answer, for weir planner replay (default: none)")
	f.Var((*size)(&o.RecordBytes), "record-bytes", "most bytes in --record; then recording stops and says so")
	f.StringVarP(&o.Output, "output", "o", o.Output, "json: machine-readable lines on standard output")
}

// Validate reports every problem at once.
func (o *Options) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, t := range o.Targets {
		if !slices.Contains(Targets(), t) {
			bad("--target %q is not one of %s", t, strings.Join(Targets(), ", "))
		}
	}
	for _, f := range [...]struct{ name, v string }{{"--cell", o.Cell}, {"--node", o.Node}} {
		if err := schemas.CheckID(f.name, f.v); err != nil {
			errs = append(errs, err)
		}
	}
	if o.Role != "" {
		if err := (&schemas.Assignment{Header: schemas.H(), Role: schemas.Role(o.Role)}).Check(); err != nil {
			bad("--role: %w", err)
		}
	}
	if o.Context < 128 || o.Context > schemas.MaxTokens {
		bad("--ctx is %d, allowed are 128 to %d", o.Context, schemas.MaxTokens)
	}
	if o.Slots < 1 || o.Slots > 4096 {
		bad("--slots is %d, allowed are 1 to 4096", o.Slots)
	}
	if n := runtime.NumCPU(); o.Threads < 1 || o.Threads > n {
		// More threads than cores wait for each other at every step of a layer.
		bad("--threads is %d, allowed are 1 to %d, the cores of this machine", o.Threads, n)
	}
	if o.NullVision && o.Engine != model.EngineNull {
		bad("--null-vision is for --engine null, the engine is %q", o.Engine)
	}
	o.checkSim(bad)
	if o.KVOrder != hostmem.OrderWeir && o.KVOrder != hostmem.OrderLRU {
		bad("--kv-order is %q, allowed are %s and %s", o.KVOrder, hostmem.OrderWeir, hostmem.OrderLRU)
	}
	if o.KVMem < 1<<20 {
		bad("--kv-mem is %d bytes, at least 1MiB is needed", o.KVMem)
	}
	o.checkDisk(bad)
	o.checkPeer(bad)
	if o.Durability != "process" && o.Durability != "sync" {
		bad("--durability is %q, allowed are process and sync", o.Durability)
	}
	if o.Output != "" && o.Output != "json" {
		bad("-o is %q, only json is known", o.Output)
	}
	o.checkPlanner(bad)
	if o.Replicas < 0 || o.Replicas > 5 {
		bad("--nats-replicas is %d, allowed are 1 to 5, as NATS has them", o.Replicas)
	}
	if o.StoreMB < 0 {
		bad("--store-mib is %d, it must not be negative", o.StoreMB)
	}
	o.checkRetention(bad)
	defaults := streams.Topology(streams.Options{})
	for name := range o.StreamBytes {
		if _, ok := streams.Find(defaults, name); !ok {
			bad("--stream-bytes names %q, which is no stream of weir", name)
		}
	}
	if err := streams.Check(o.Topology()); err != nil {
		bad("--store-mib and --stream-bytes: %w", err)
	}
	if len(errs) > 0 {
		return fmt.Errorf("%w: %w", ErrUsage, errors.Join(errs...))
	}
	return nil
}

// EmbeddedNATS reports whether weir starts NATS itself: the flag is an address
// to listen on, not a URL.
func (o *Options) EmbeddedNATS() bool { return !strings.Contains(o.NATS, "://") }

// URL is where NATS is reached.
func (o *Options) URL() string {
	if o.EmbeddedNATS() {
		return "nats://" + o.NATS
	}
	return o.NATS
}

// Topology is the set of streams for these options.
func (o *Options) Topology() []streams.Stream { return streams.Topology(o.StreamOptions()) }

// StreamOptions are the limits of the streams.
func (o *Options) StreamOptions() streams.Options {
	t := streams.Options{Replicas: o.Replicas, MaxBytes: map[string]int64{}, MaxAge: o.ages(func(string, ...any) {})}
	if o.StoreMB > 0 {
		for _, s := range streams.Topology(streams.Options{}) {
			if s.Store == streams.File {
				t.MaxBytes[s.Name] = min(s.MaxBytes, o.StoreMB<<20)
			}
		}
	}
	maps.Copy(t.MaxBytes, o.StreamBytes)
	return t
}

// Log makes the logger of a process.
func (o *Options) Log(w io.Writer) *slog.Logger {
	var level slog.Level
	if level.UnmarshalText([]byte(o.LogLevel)) != nil {
		level = slog.LevelInfo
	}
	if w == nil {
		w = os.Stderr
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}

// size is a flag of bytes with a binary or decimal unit.
type size int64

func (s *size) String() string {
	n := int64(*s)
	for _, u := range units {
		if n >= u.n && n%u.n == 0 {
			return fmt.Sprintf("%d%s", n/u.n, u.name)
		}
	}
	return fmt.Sprintf("%d", n)
}

func (s *size) Type() string { return "size" }

var units = [...]struct {
	name string
	n    int64
}{
	{"TiB", 1 << 40},
	{"GiB", 1 << 30},
	{"MiB", 1 << 20},
	{"KiB", 1 << 10},
	{"TB", 1e12},
	{"GB", 1e9},
	{"MB", 1e6},
	{"kB", 1e3},
	{"T", 1 << 40},
	{"G", 1 << 30},
	{"M", 1 << 20},
	{"K", 1 << 10},
	{"B", 1},
}

// Set reads a size such as 512MiB.
func (s *size) Set(v string) error {
	mult := int64(1)
	for _, u := range units {
		if rest, ok := strings.CutSuffix(v, u.name); ok {
			v, mult = strings.TrimSpace(rest), u.n
			break
		}
	}
	var n float64
	if _, err := fmt.Sscanf(v, "%g", &n); err != nil || n <= 0 || n*float64(mult) > 1<<50 {
		return fmt.Errorf("%q is not a size such as 512MiB or 4GiB", v)
	}
	*s = size(n * float64(mult))
	return nil
}
