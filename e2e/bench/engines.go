package bench

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"syscall"
	"time"

	"github.com/weir-dev/weir/e2e/show"
	"github.com/weir-dev/weir/e2e/stack"
	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/kvtier/hostmem"
	"github.com/weir-dev/weir/services/model"
)

// open loads the default model, or a preset, on an engine in this process.
func open(engine, dir string, slots, ctx int) (gpuexec.StepEngine, *model.Model, error) {
	m, err := model.Open(model.Options{Engine: engine, Dir: dir, LibDir: stack.Libraries(), Log: io.Discard})
	if err != nil {
		return nil, nil, err
	}
	e, err := m.NewEngine(model.EngineOptions{Slots: slots, Context: ctx, Threads: 1, Log: os.Stderr})
	return e, m, err
}

// cpu is the CPU time of this process.
func cpu() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// prefill computes n tokens in block steps and returns the CPU time.
func prefill(e gpuexec.StepEngine, seq gpuexec.SeqID, n, salt int) (time.Duration, error) {
	begin := cpu()
	for at := 0; at < n; at += gpuexec.BlockTokens {
		rows := make([]gpuexec.Row, 0, gpuexec.BlockTokens)
		for p := at; p < min(n, at+gpuexec.BlockTokens); p++ {
			rows = append(rows, gpuexec.Row{Seq: seq, Token: int32(300 + (p*7+salt)%200), Pos: int32(p), Logits: p == n-1})
		}
		if err := e.Step(gpuexec.PhasePrefill, rows); err != nil {
			return 0, err
		}
	}
	_ = e.Logits(n - 1 - (n-1)/gpuexec.BlockTokens*gpuexec.BlockTokens) // waits for the library
	return cpu() - begin, nil
}

// decode computes k tokens behind n and returns the CPU time.
func decode(e gpuexec.StepEngine, seq gpuexec.SeqID, n, k int) (time.Duration, error) {
	begin := cpu()
	for i := range k {
		if err := e.Step(gpuexec.PhaseDecode, []gpuexec.Row{{Seq: seq, Token: int32(300 + i%200), Pos: int32(n + i), Logits: true}}); err != nil {
			return 0, err
		}
		_ = e.Logits(0)
	}
	return cpu() - begin, nil
}

// GoAgainstLlama compares the go engine with llama.cpp on one thread, in CPU time
// on the default model: 512 tokens of prefill and 64 of decode behind them,
// alternating, medians of rounds.
func GoAgainstLlama(_ context.Context, dir string) ([]show.Figure, error) {
	return goAgainstLlama(dir, 9)
}

func goAgainstLlama(dir string, rounds int) ([]show.Figure, error) {
	if stack.Libraries() == "" {
		return nil, fmt.Errorf("bench: the llama.cpp libraries are not installed")
	}
	const n, k = 512, 64
	var times [2][2][]float64
	for i, name := range []string{model.EngineGo, model.EngineLlama} {
		e, m, err := open(name, dir, 2, 1024)
		if err != nil {
			return nil, err
		}
		for round := range rounds {
			p, err := prefill(e, 0, n, round)
			if err != nil {
				return nil, err
			}
			d, err := decode(e, 0, n, k)
			if err != nil {
				return nil, err
			}
			e.Drop(0)
			times[i][0], times[i][1] = append(times[i][0], p.Seconds()), append(times[i][1], d.Seconds())
		}
		if err := e.Close(); err != nil {
			return nil, err
		}
		if err := m.Close(); err != nil {
			return nil, err
		}
	}
	ratio := func(phase int) float64 { return median(times[1][phase]) / median(times[0][phase]) }
	return []show.Figure{{Name: "goengine.prefill_vs_llama", Value: ratio(0), Unit: "ratio of speed"}, {Name: "goengine.decode_vs_llama", Value: ratio(1), Unit: "ratio of speed"}}, nil
}

// KVAgainstMemcpy compares export into shared memory, and import from it, with
// copying the same bytes: 1,000 tokens on the default model, operations
// alternating so that none runs from cache alone.
func KVAgainstMemcpy(ctx context.Context, dir, engine string) ([]show.Figure, error) {
	e, m, err := open(engine, dir, 3, 1088)
	if err != nil {
		return nil, err
	}
	defer func() { _ = e.Close(); _ = m.Close() }() // the process ends soon
	const blocks, rounds = 1000 / gpuexec.BlockTokens, 60
	if _, err := prefill(e, 0, blocks*gpuexec.BlockTokens, 1); err != nil {
		return nil, err
	}
	size := e.Limits().BlockBytes
	arena, err := os.MkdirTemp(shm(), "weir-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(arena) }()
	d, err := hostmem.NewDaemon(hostmem.Config{Dir: filepath.Join(arena, "kv"), Bytes: int64(size) * (4*blocks + 64)})
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }()
	c, err := hostmem.Attach(ctx, hostmem.Options{Dir: filepath.Join(arena, "kv"), Writer: "bench", Pool: "bench", BlockBytes: int64(size)})
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	slots, err := c.Reserve(ctx, blocks)
	if err != nil {
		return nil, err
	}
	dst, heap := make([][]byte, blocks), make([][]byte, blocks)
	for i := range dst {
		dst[i], heap[i] = slots[i].Data(), make([]byte, size)
	}
	var ex, im, cp []float64
	for range rounds {
		ex = append(ex, timed(func() { err = firstOf(err, e.Export(0, 0, dst)) }))
		im = append(im, timed(func() { err = firstOf(err, e.Import(1, dst)) }))
		e.Drop(1)
		cp = append(cp, timed(func() {
			for i := range dst {
				copy(heap[i], dst[i])
			}
		}))
		if err != nil {
			return nil, err
		}
	}
	runtime.KeepAlive(heap)
	return []show.Figure{{Name: "kv.export_vs_memcpy", Value: median(cp) / median(ex), Unit: "ratio of speed"}, {Name: "kv.import_vs_memcpy", Value: median(cp) / median(im), Unit: "ratio of speed"}}, nil
}

func firstOf(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

func timed(f func()) float64 {
	begin := time.Now()
	f()
	return time.Since(begin).Seconds()
}

func shm() string {
	if st, err := os.Stat("/dev/shm"); err == nil && st.IsDir() {
		return "/dev/shm"
	}
	return ""
}

func median(xs []float64) float64 { return quantile(xs, 0.5) }

// quantile is the nearest-rank quantile.
func quantile(xs []float64, q float64) float64 {
	if len(xs) == 0 {
		return 0
	}
	s := append([]float64(nil), xs...)
	sort.Float64s(s)
	return s[min(len(s)-1, int(q*float64(len(s))))]
}
