package jsrun

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/weir-dev/weir/streams"
)

// EmbeddedOptions configures a NATS server inside this process.
type EmbeddedOptions struct {
	// Dir keeps the JetStream store; it must not be in use by another server.
	Dir string
	// Listen is host:port for other processes and the nats command line. Empty
	// means no network at all. Port 0 picks a free one.
	Listen string
	// Topology decides how much storage JetStream may use; half of it is added.
	Topology []streams.Stream
	// SyncAlways syncs every message to disk before it is acknowledged.
	SyncAlways bool
	Name       string
	// Ready bounds the wait for the start, 30 s by default: a large store is
	// scanned first.
	Ready time.Duration
	// Logger gets the server's own log; nil drops it.
	Logger server.Logger
}

// Embedded starts NATS with JetStream in this process. It returns when clients
// can connect, by nats.InProcessServer or on ClientURL. The caller shuts it down.
func Embedded(o EmbeddedOptions) (*server.Server, error) {
	opts, err := o.serverOptions()
	if err != nil {
		return nil, err
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrListen, err)
	}
	if o.Logger != nil {
		s.SetLoggerV2(o.Logger, false, false, false)
	}
	// Start does not return an error; it logs and shuts down. So look at the
	// parts that can fail afterwards.
	go s.Start()
	wait := o.Ready
	if wait <= 0 {
		wait = 30 * time.Second
	}
	if !s.ReadyForConnections(wait) || !s.JetStreamEnabled() {
		s.Shutdown()
		s.WaitForShutdown()
		return nil, fmt.Errorf("%w: the server with store %s was not ready within %s; is another process using the store or the address %s?",
			ErrListen, o.Dir, wait, o.Listen)
	}
	return s, nil
}

func (o EmbeddedOptions) serverOptions() (*server.Options, error) {
	if o.Dir == "" {
		return nil, fmt.Errorf("%w: Dir is empty, JetStream needs a folder", ErrConfig)
	}
	if err := checkDir(o.Dir); err != nil {
		return nil, err
	}
	file, mem := streams.Totals(o.Topology)
	opts := &server.Options{
		ServerName: o.Name, JetStream: true, StoreDir: o.Dir, NoSigs: true, NoLog: o.Logger == nil,
		JetStreamMaxMemory: max(mem+mem/2, 256<<20), JetStreamMaxStore: max(file+file/2, 1<<30),
		SyncAlways:      o.SyncAlways,
		JetStreamLimits: server.JSLimitOpts{DefaultMaxConsumers: 20000},
		DontListen:      o.Listen == "",
		MaxPending:      64 << 20, WriteDeadline: 10 * time.Second,
	}
	if o.Listen == "" {
		return opts, nil
	}
	host, portText, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return nil, fmt.Errorf("%w: the NATS address %q is not host:port: %w", ErrConfig, o.Listen, err)
	}
	port, err := strconv.Atoi(portText)
	if err != nil || port < 0 || port > 65535 {
		return nil, fmt.Errorf("%w: the NATS address %q has no valid port", ErrConfig, o.Listen)
	}
	opts.Host, opts.Port = host, port
	if port == 0 {
		opts.Port = server.RANDOM_PORT
		return opts, nil
	}
	// The server retries a busy port quietly, so try it here for a clear error.
	l, err := net.Listen("tcp", o.Listen)
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			return nil, fmt.Errorf("%w: address %s is in use; stop what listens there or choose another with --nats", ErrListen, o.Listen)
		}
		return nil, fmt.Errorf("%w: %w", ErrListen, err)
	}
	return opts, l.Close()
}

// checkDir makes the store's folder and tries to write there, because the server
// would find out only later and say less.
func checkDir(dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("%w: the store folder cannot be made: %w", ErrListen, err)
	}
	f, err := os.CreateTemp(dir, ".weir-write-test-*")
	if err != nil {
		return fmt.Errorf("%w: the store folder %s cannot be written: %w", ErrListen, filepath.Clean(dir), err)
	}
	name := f.Name()
	if err := f.Close(); err != nil {
		return fmt.Errorf("%w: the store folder %s: %w", ErrListen, dir, err)
	}
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: the store folder %s: %w", ErrListen, dir, err)
	}
	return nil
}
