package hostmem

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/weir-dev/weir/kvtier/disk"
)

// Config says what memory a daemon manages.
type Config struct {
	// Dir is the folder that daemon and clients share, on tmpfs (/dev/shm) or a
	// disk. Its path must be short: a Unix socket's path has at most 100 bytes here.
	Dir string
	// Bytes is the whole budget (--kv-mem), allocated at start. At least 1 MiB.
	Bytes int64
	// PoolBytes caps one pool. 0 gives the first pool everything; a host that
	// serves two models at once sets it to a half.
	PoolBytes int64
	// Order is in which order blocks are evicted: OrderWeir, the default, or OrderLRU.
	Order string
	// EventBatches is how many batches of events wait for a slow reader before
	// they are dropped and a gap is flagged. 0 means 64.
	EventBatches int
	// Disk is a folder on a local disk that takes what memory gives up, DiskBytes at
	// most; empty for none. One daemon per folder. A folder that cannot be used costs the
	// disk, never the memory: see DiskStats.
	Disk      string
	DiskBytes int64
	// DiskRate bounds how fast blocks are written, in bytes per second. 0 means 512 MiB.
	DiskRate int64
	// Logger is told what goes wrong with the disk; nil for none.
	Logger *slog.Logger
}

const (
	minBytes       = 1 << 20
	maxSocketPath  = 100
	maxEventsQueue = 1 << 16 // events that wait in the daemon while the channel is full
)

func (c *Config) fill() {
	if c.EventBatches == 0 {
		c.EventBatches = 64
	}
	if c.PoolBytes == 0 {
		c.PoolBytes = c.Bytes
	}
	if c.DiskRate == 0 {
		c.DiskRate = 512 << 20
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

// Validate reports every problem at once.
func (c Config) Validate() error {
	var errs []error
	if c.Dir == "" {
		errs = append(errs, errors.New("hostmem: no folder given"))
	}
	if c.Bytes < minBytes {
		errs = append(errs, fmt.Errorf("%w: %d bytes asked for, at least %d are needed", ErrBudget, c.Bytes, minBytes))
	}
	if c.PoolBytes < 0 || c.PoolBytes > c.Bytes {
		errs = append(errs, fmt.Errorf("%w: %d bytes per pool of %d in all", ErrBudget, c.PoolBytes, c.Bytes))
	}
	errs = append(errs, checkOrder(c.Order))
	if c.EventBatches < 0 {
		errs = append(errs, fmt.Errorf("hostmem: %d event batches", c.EventBatches))
	}
	if c.DiskRate < 0 {
		errs = append(errs, fmt.Errorf("hostmem: %d bytes per second to disk", c.DiskRate))
	}
	if c.Disk != "" {
		if err := (disk.Config{Dir: c.Disk, Bytes: c.DiskBytes}).Validate(); err != nil {
			errs = append(errs, err)
		}
	}
	errs = append(errs, checkSocket(c.Dir))
	return errors.Join(errs...)
}

func checkSocket(dir string) error {
	if p := filepath.Join(dir, socketName); len(p) > maxSocketPath {
		return fmt.Errorf("%w: socket path %s has %d bytes, at most %d work; choose a shorter folder",
			ErrName, p, len(p), maxSocketPath)
	}
	return nil
}
