package jsrun

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/weir-dev/weir/streams"
)

// limitsFile, in the store's folder, holds the stream limits that were chosen
// when the store was made: later free space must not change them.
const limitsFile = "weir-streams.json"

// diskShare is the part of the free space that the streams may take; the rest is
// for the server's indexes and for others.
const diskShare = 0.7

type limits struct {
	MaxBytes map[string]int64 `json:"max_bytes"`
}

// FitDisk returns options whose streams fit the disk of an embedded server's
// store. A NATS server whose disk is full answers publishes not at all and stays
// so until it is restarted, while a stream at its limit refuses at once with a
// reason; so the limits must bite first. The choice is kept in the folder and
// used again at the next start. Limits set in o.MaxBytes are left alone.
func FitDisk(dir string, o streams.Options) (streams.Options, error) {
	if err := checkDir(dir); err != nil {
		return o, err
	}
	return fitDisk(dir, o, freeBytes)
}

func fitDisk(dir string, o streams.Options, free func(string) (int64, error)) (streams.Options, error) {
	file := filepath.Join(dir, limitsFile)
	kept, err := readLimits(file)
	if err != nil {
		return o, err
	}
	if kept == nil {
		room, err := free(dir)
		if err != nil {
			return o, fmt.Errorf("jsrun: free space of %s: %w", dir, err)
		}
		room = int64(float64(room) * diskShare)
		if kept, err = fit(o, room); err != nil {
			return o, fmt.Errorf("%w (store folder %s)", err, dir)
		}
		b, err := json.MarshalIndent(limits{kept}, "", "  ")
		if err != nil {
			return o, err
		}
		if err := os.WriteFile(file, append(b, '\n'), 0o600); err != nil {
			return o, fmt.Errorf("%w: %w", ErrListen, err)
		}
	}
	for name, n := range o.MaxBytes {
		kept[name] = n
	}
	o.MaxBytes = kept
	return o, nil
}

func readLimits(file string) (map[string]int64, error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrListen, err)
	}
	var l limits
	if err := json.Unmarshal(b, &l); err != nil || len(l.MaxBytes) == 0 {
		return nil, fmt.Errorf("%w: %s is damaged; remove it together with the store, or write back the limits that the streams have", ErrConfig, file)
	}
	return l.MaxBytes, nil
}

// fit scales the file streams down until they need at most room bytes.
func fit(o streams.Options, room int64) (map[string]int64, error) {
	scale := o.Scale
	if scale <= 0 {
		scale = 1
	}
	// Small streams do not shrink below their minimum, so one division may not do.
	for range 20 {
		o.Scale = scale
		topo := streams.Topology(o)
		need, _ := streams.Totals(topo)
		if need <= room {
			out := map[string]int64{}
			for _, s := range topo {
				out[s.Name] = s.MaxBytes
			}
			return out, nil
		}
		scale *= min(float64(room)/float64(need), 0.9)
	}
	o.Scale = 1e-9
	least, _ := streams.Totals(streams.Topology(o))
	return nil, fmt.Errorf("%w: the disk has room for %d MiB of streams, at least %d MiB are needed", ErrNoRoom, room>>20, least>>20)
}

// freeBytes is the space that this user may still take on the disk of dir.
func freeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}
