package tierbench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/weir-dev/weir/kvtier/hostmem"
)

// Figure is one measured value. Bar is what it must reach, 0 if nothing is asked;
// Low says that smaller is better.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	Bar   float64 `json:"bar,omitempty"`
	Low   bool    `json:"low,omitempty"`
	Note  string  `json:"note,omitempty"`
}

// OK tells whether the figure reaches its bar.
func (f Figure) OK() bool {
	return f.Bar == 0 || f.Low && f.Value <= f.Bar || !f.Low && f.Value >= f.Bar
}

// Options of a run. The zero value measures at full size, in about a minute.
type Options struct {
	Dir   string // parent of the folders for the memory; "" means tmpfs where there is one
	Short bool   // a tenth of everything, and no 10×: shows that it works, not how fast it is
	Log   func(format string, args ...any)
}

// names lists the figures; each is measured again at ten times the blocks as NAME.10x.
var names = []string{
	"get.vs_memcpy", "put.vs_memcpy", "index.matches_per_s", "index.bytes_per_block", "evict.decision_us_p99",
}

// Names lists the figures of a run.
func Names() (out []string) {
	for _, n := range names {
		out = append(out, n, n+".10x")
	}
	return out
}

// Run measures everything.
func Run(ctx context.Context, opt Options) ([]Figure, error) {
	if opt.Log == nil {
		opt.Log = func(string, ...any) {}
	}
	var out []Figure
	scales := []struct {
		factor int
		suffix string
	}{{1, ""}, {10, ".10x"}}
	if opt.Short {
		scales = scales[:1]
	}
	for _, s := range scales {
		for _, part := range []func(context.Context, Options, int) ([]Figure, error){copies, index, decisions} {
			figures, err := part(ctx, opt, s.factor)
			if err != nil {
				return out, err
			}
			for _, f := range figures {
				f.Name += s.suffix
				opt.Log("%s %.4g %s", f.Name, f.Value, f.Unit)
				out = append(out, f)
			}
		}
	}
	return out, nil
}

// memory is a daemon with one client of one pool.
type memory struct {
	dir    string
	daemon *hostmem.Daemon
	client *hostmem.Client
	opts   hostmem.Options
	bytes  int64
}

func newMemory(ctx context.Context, opt Options, block, size int64) (*memory, error) {
	base := opt.Dir
	if st, err := os.Stat("/dev/shm"); base == "" && err == nil && st.IsDir() {
		base = "/dev/shm"
	}
	dir, err := os.MkdirTemp(base, "weirbench")
	if err != nil {
		return nil, err
	}
	m := &memory{dir: dir, bytes: size, opts: hostmem.Options{Dir: dir, Writer: "bench", Pool: "bench", BlockBytes: block, Wait: 10 * time.Second}}
	if err := m.start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if m.client, err = hostmem.Attach(ctx, m.opts); err != nil {
		return nil, errors.Join(err, m.close())
	}
	return m, nil
}

func (m *memory) start() (err error) {
	m.daemon, err = hostmem.NewDaemon(hostmem.Config{Dir: m.dir, Bytes: m.bytes})
	if err != nil {
		return fmt.Errorf("tierbench: %w", err)
	}
	d := m.daemon
	go func() { // as a tier process reads them; ends with the process, the channel stays open
		for range d.Events() {
		}
	}()
	return nil
}

func (m *memory) close() error {
	var err error
	if m.client != nil {
		err = m.client.Close()
	}
	return errors.Join(err, m.daemon.Remove(), os.RemoveAll(m.dir))
}

// settled waits until the daemon knows n sealed blocks.
func (m *memory) settled(ctx context.Context, n int) error {
	deadline := time.Now().Add(20 * time.Second)
	for {
		s, err := m.daemon.Stats()
		if err != nil {
			return err
		}
		if len(s) == 1 && s[0].Sealed >= n {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("tierbench: the daemon knows %d of %d blocks", s[0].Sealed, n)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func median(v []float64) float64 {
	s := slices.Clone(v)
	slices.Sort(s)
	if len(s) == 0 {
		return 0
	}
	return s[len(s)/2]
}

// spread is the median distance from the median, as a share of it.
func spread(v []float64) float64 {
	m := median(v)
	if m == 0 {
		return 0
	}
	d := make([]float64, len(v))
	for i, x := range v {
		d[i] = max(x-m, m-x) / m
	}
	return median(d)
}

// quiet runs a measurement until one was quiet, three times at most, and returns the
// quietest one's median and spread. Another load on the machine shows as spread.
func quiet(measure func() ([]float64, error)) (value, noise float64, err error) {
	noise = 2
	for range 3 {
		v, err := measure()
		if err != nil {
			return 0, 0, err
		}
		if s := spread(v); s < noise {
			value, noise = median(v), s
		}
		if noise < 0.1 {
			break
		}
	}
	return value, noise, nil
}
