package hostmem

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// nextLife numbers the lives of a folder's daemons: Unix time of the start in ms, or one
// more than the last life when the clock was set back behind it. The number stands in the
// lock file, which the caller holds.
func nextLife(lock *os.File, now time.Time) (uint64, error) {
	var b [8]byte
	life := uint64(max(1, now.UnixMilli()))
	switch _, err := lock.ReadAt(b[:], 0); {
	case err == nil:
		if last := binary.LittleEndian.Uint64(b[:]); last >= life && last < maxLife {
			life = last + 1
		}
	case !errors.Is(err, io.EOF):
		return 0, fmt.Errorf("hostmem: lock file: %w", err)
	}
	binary.LittleEndian.PutUint64(b[:], life)
	switch _, err := lock.WriteAt(b[:], 0); {
	case errors.Is(err, unix.ENOSPC):
		return 0, fmt.Errorf("%w: %w", ErrNoSpace, err)
	case err != nil:
		return 0, fmt.Errorf("hostmem: lock file: %w", err)
	}
	return life, nil
}

// maxLife is past any clock: a number above it is damage.
const maxLife = 1 << 52

// Life is a number that grows with each daemon of the folder, whatever the clock says.
func (d *Daemon) Life() uint64 { return d.life }
