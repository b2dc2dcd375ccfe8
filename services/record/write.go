package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/gzip"
)

// Bounds of a recording.
const (
	// DefaultBytes of all files in the folder together: about an hour of a busy cell.
	DefaultBytes = 2 << 30
	// partBytes is the size at which a new part begins, compressed.
	partBytes = 64 << 20
	// queueBytes bounds the lines that wait for the disk. An actor never waits for it:
	// when they are more, the recording ends.
	queueBytes = 64 << 20
	// flushEvery is how much time a killed process loses of its recording.
	flushEvery = time.Second
	suffix     = ".jsonl.gz"
)

// Options of a Recorder.
type Options struct {
	Dir    string
	Bytes  int64  // of all files in Dir, those of earlier recordings too; DefaultBytes by default
	Part   int64  // of one file, 64 MiB by default
	Weir   string // version of the build
	Logger *slog.Logger
}

// Recorder writes the recordings of one process into a folder.
type Recorder struct {
	o    Options
	used atomic.Int64 // bytes in the folder
}

// New makes the folder and counts what is in it.
func New(o Options) (*Recorder, error) {
	if o.Bytes <= 0 {
		o.Bytes = DefaultBytes
	}
	if o.Part <= 0 {
		o.Part = partBytes
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(o.Dir, 0o750); err != nil {
		return nil, fmt.Errorf("--record: %w", err)
	}
	r := &Recorder{o: o}
	files, err := filepath.Glob(filepath.Join(o.Dir, "*"+suffix))
	if err != nil {
		return nil, fmt.Errorf("--record: %w", err)
	}
	for _, f := range files {
		if st, err := os.Stat(f); err == nil {
			r.used.Add(st.Size())
		}
	}
	if used := r.used.Load(); used >= o.Bytes {
		return nil, fmt.Errorf("--record: %s holds %d bytes of recordings, the limit is %d; remove some, or raise --record-bytes", o.Dir, used, o.Bytes)
	}
	return r, nil
}

// writer writes one recording. line and stop are called by the goroutine of the
// actor; the files belong to a goroutine of the writer's own.
type writer struct {
	r      *Recorder
	h      Header
	queue  chan []byte
	queued atomic.Int64
	ended  atomic.Bool // nothing more is taken
	done   chan struct{}
	err    error // after done

	mu  sync.Mutex
	why string // it ended while the actor goes on

	f     *os.File
	z     *gzip.Writer
	size  int64 // bytes of the part on disk
	lines int
}

// Write counts what reaches the disk.
func (w *writer) Write(p []byte) (int, error) {
	n, err := w.f.Write(p)
	w.size += int64(n)
	w.r.used.Add(int64(n))
	return n, err
}

func (r *Recorder) writer(h Header) (*writer, error) {
	h.Record, h.Weir = Version, r.o.Weir
	w := &writer{r: r, h: h, queue: make(chan []byte, 1<<14), done: make(chan struct{})}
	if err := w.next(); err != nil {
		return nil, fmt.Errorf("--record: %w", err)
	}
	r.o.Logger.Info("recording", "actor", h.Actor, "epoch", h.Epoch, "file", w.f.Name(), "bytes_left", r.o.Bytes-r.used.Load())
	go w.run()
	return w, nil
}

func (w *writer) stopped() bool { return w.ended.Load() }

// line takes one line. It never blocks.
func (w *writer) line(l *Line) {
	if w.stopped() {
		return
	}
	b, err := l.encode()
	switch {
	case err != nil:
		w.stop(err.Error())
		return
	case w.queued.Load() > queueBytes:
		w.stop("the disk is too slow: 64 MiB wait for it")
		return
	}
	select {
	case w.queue <- b:
		w.queued.Add(int64(len(b)))
	default:
		w.stop("the disk is too slow: too many lines wait for it")
	}
}

// stop ends the recording while the actor goes on. Lines that were taken before are
// still written.
func (w *writer) stop(why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.why == "" {
		w.why = why
	}
	w.ended.Store(true)
}

// close ends the recording and waits for the disk. The actor makes no step any more.
func (w *writer) close() error {
	w.ended.Store(true)
	close(w.queue)
	<-w.done
	return w.err
}

// run owns the files.
func (w *writer) run() {
	defer close(w.done)
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	var err error
	for {
		select {
		case b, ok := <-w.queue:
			if !ok {
				w.err = errors.Join(err, w.end())
				return
			}
			w.queued.Add(-int64(len(b)))
			if w.f != nil && err == nil {
				err = w.write(b)
			}
		case <-tick.C:
			if w.f != nil && err == nil {
				err = w.flush()
			}
			if w.stopped() && len(w.queue) == 0 {
				err = errors.Join(err, w.end())
			}
		}
		if errors.Is(err, errRoom) {
			w.stop(err.Error())
			err = w.end()
		} else if err != nil {
			w.stop(err.Error())
		}
	}
}

var errRoom = errors.New("the folder of recordings is full")

func (w *writer) write(b []byte) error {
	if _, err := w.z.Write(b); err != nil {
		return err
	}
	if w.lines++; w.size >= w.r.o.Part {
		if err := w.finish(); err != nil {
			return err
		}
		if err := w.next(); err != nil {
			return err
		}
	}
	return w.room()
}

// flush brings what was written to the disk.
func (w *writer) flush() error {
	if err := w.z.Flush(); err != nil {
		return err
	}
	return w.room()
}

func (w *writer) room() error {
	if used := w.r.used.Load(); used >= w.r.o.Bytes {
		return fmt.Errorf("%w: %d bytes, the limit is %d", errRoom, used, w.r.o.Bytes)
	}
	return nil
}

// next begins a part.
func (w *writer) next() (err error) {
	w.h.Part++
	w.h.AtNS, w.h.FirstNo, w.size = time.Now().UnixNano(), w.lines+1, 0
	if w.f, err = os.OpenFile(filepath.Join(w.r.o.Dir, w.h.file()), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640); err != nil {
		return err
	}
	if w.z, err = gzip.NewWriterLevel(w, gzip.BestSpeed); err != nil {
		return err
	}
	b, err := json.Marshal(&w.h)
	if err != nil {
		return err
	}
	if _, err = w.z.Write(append(b, '\n')); err != nil {
		return err
	}
	return w.z.Flush() // a part without its header is of no use
}

// end ends the recording and says why when the actor goes on.
func (w *writer) end() error {
	if w.f == nil {
		return nil
	}
	w.mu.Lock()
	why := w.why
	w.mu.Unlock()
	if why != "" {
		w.r.o.Logger.Warn("recording stopped; the service goes on", "actor", w.h.Actor, "epoch", w.h.Epoch, "lines", w.lines, "reason", why)
		if b, err := (&Line{T: time.Now().UnixNano(), Stopped: why}).encode(); err == nil {
			_, _ = w.z.Write(b) // the reason is in the log too
		}
	}
	return w.finish()
}

// finish ends a part.
func (w *writer) finish() error {
	if w.f == nil {
		return nil
	}
	err := errors.Join(w.z.Close(), w.f.Close())
	w.f, w.z = nil, nil
	return err
}

// file is the name of a part.
func (h *Header) file() string {
	return fmt.Sprintf("%s-%s-%d-%04d%s", h.Actor, h.Cell, h.Epoch, h.Part, suffix)
}
