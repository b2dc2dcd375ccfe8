package disk

import (
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Config of a Store.
type Config struct {
	// Dir is the store's folder. It is made, with mode 0700, if it is not there. No two
	// stores share one.
	Dir string
	// Bytes bounds the sum of all files in it. At least 64 KiB.
	Bytes int64
	// SegmentBytes bounds one file. 0 means a sixteenth of Bytes, but at most 4 GiB: the
	// unit in which pools take room from each other. A block that is larger gets a file
	// of its own.
	SegmentBytes int64
	// Logger is told once when the disk is switched off or grows no more; nil for none.
	Logger *slog.Logger
	// Now is the clock of last use in Unix nanoseconds; nil means the wall clock.
	Now func() int64
}

const (
	minBytes        = 64 << 10
	mostSegment     = 4 << 30
	segmentsPerDisk = 16
	// maxBlocks bounds the blocks of one pool: its table takes about 120 bytes for each.
	maxBlocks = 4 << 20
	// maxPools bounds the pools in one folder.
	maxPools = 16
)

func (c *Config) fill() {
	if c.SegmentBytes == 0 {
		c.SegmentBytes = min(c.Bytes/segmentsPerDisk, mostSegment)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = func() int64 { return time.Now().UnixNano() }
	}
}

// Validate reports every problem at once.
func (c Config) Validate() error {
	var errs []error
	if c.Dir == "" {
		errs = append(errs, errors.New("disk: no folder given"))
	}
	if c.Bytes < minBytes {
		errs = append(errs, fmt.Errorf("%w: %d bytes asked for, at least %d are needed", ErrBudget, c.Bytes, minBytes))
	}
	if c.SegmentBytes < 0 {
		errs = append(errs, fmt.Errorf("disk: segments of %d bytes", c.SegmentBytes))
	}
	return errors.Join(errs...)
}
