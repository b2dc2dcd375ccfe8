package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-dev/weir/streams/jsrun"
)

// ErrDisk: the store of NATS could not be written. A server that met this takes
// nothing more for that stream, so it starts again once there is room.
var ErrDisk = errors.New("the disk of the NATS store was full")

// ErrStore: two NATS servers must not share a store.
var ErrStore = errors.New("another NATS of weir still uses the store")

const (
	// diskRoom is the free space in bytes with which it is worth to go on.
	diskRoom = 8 << 20
	// diskLook is the pause between looks at a full disk, diskSay between lines
	// of the log about it.
	diskLook = 250 * time.Millisecond
	diskSay  = 10 * time.Second
)

func (h *host) startNATS(ctx context.Context) error {
	if !h.o.EmbeddedNATS() {
		return fmt.Errorf("%w: target nats starts a server, so --nats must be an address, not the URL %s", ErrUsage, h.o.NATS)
	}
	dir := filepath.Join(h.o.Dir, "nats")
	if _, err := os.Stat(dir); err == nil {
		// A stack that was killed while its disk is full comes back by itself.
		if err := h.waitRoom(ctx, dir); err != nil {
			return err
		}
	}
	if err := h.lockStore(ctx); err != nil {
		return err
	}
	log := &natsLog{log: h.log, full: make(chan struct{})}
	s, err := jsrun.Embedded(jsrun.EmbeddedOptions{
		Dir: dir, Listen: h.o.NATS, Topology: h.topo, SyncAlways: h.o.Durability == "sync", Name: "weir", Logger: log,
	})
	if err != nil {
		return err
	}
	h.nats = s
	h.log.Info("NATS runs", "url", s.ClientURL(), "store", dir)
	h.wg.Go(func() {
		select {
		case <-ctx.Done():
		case <-log.full:
			if h.waitRoom(ctx, dir) == nil {
				h.cancel(fmt.Errorf("%w (%s); there is room again, so this process ends to start NATS on it anew", ErrDisk, dir))
			}
		}
	})
	return nil
}

// storeWait bounds the wait for a server that is just ending: a control process
// whose supervisor was killed still ends the requests in work.
const storeWait = 20 * time.Second

// lockStore takes the store for this process. NATS does not keep two servers from
// one store, and they would destroy it.
func (h *host) lockStore(ctx context.Context) error {
	if err := os.MkdirAll(h.o.Dir, 0o750); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(h.o.Dir, "nats.lock"), os.O_CREATE|os.O_RDWR, 0o640)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			h.store = f
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			_ = f.Close()
			return fmt.Errorf("%w in %s (%w); stop it, or choose another folder with --dir", ErrStore, h.o.Dir, err)
		}
	}
}

// waitRoom waits until the disk has room, and says so while it waits. The error is
// that of ctx.
func (h *host) waitRoom(ctx context.Context, dir string) error {
	t := time.NewTicker(diskLook)
	defer t.Stop()
	said := time.Time{}
	for {
		free, err := diskFree(dir)
		if err == nil && free >= diskRoom {
			return nil
		}
		if time.Since(said) >= diskSay {
			said = time.Now()
			h.log.Error("the disk of the NATS store is full: turns are refused until there is room; free some, what was acknowledged is kept",
				"store", dir, "free_bytes", free, "needed_bytes", diskRoom, "error", err)
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func diskFree(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * int64(st.Bsize), nil //nolint:unconvert // the field's type differs between systems
}

// natsLog passes the server's warnings and errors on, and notices a full disk: the
// server tells it to nobody but its log.
type natsLog struct {
	log  *slog.Logger
	once sync.Once
	full chan struct{} // closed when a write found no space
}

func (l *natsLog) Warnf(format string, v ...any)  { l.say(slog.LevelWarn, format, v) }
func (l *natsLog) Errorf(format string, v ...any) { l.say(slog.LevelError, format, v) }
func (l *natsLog) Fatalf(format string, v ...any) { l.say(slog.LevelError, format, v) }
func (l *natsLog) Noticef(string, ...any)         {}
func (l *natsLog) Debugf(string, ...any)          {}
func (l *natsLog) Tracef(string, ...any)          {}

func (l *natsLog) say(level slog.Level, format string, v []any) {
	text := fmt.Sprintf(format, v...)
	l.log.Log(context.Background(), level, "NATS: "+text)
	if strings.Contains(text, "no space left") || strings.Contains(text, "disk quota exceeded") {
		l.once.Do(func() { close(l.full) })
	}
}
