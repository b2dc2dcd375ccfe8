package hostmem

import (
	"errors"
	"fmt"
	"path/filepath"
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
