package bench

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/weir-dev/weir/e2e/stack"
	"github.com/weir-dev/weir/gpuexec/worker"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
)

// The turn of the overhead figures: a prompt of 256 tokens that nobody has seen,
// and an answer of 32.
const (
	overheadPrompt = 256
	overheadOutput = 32
)

func overheadTurn(n int) *schemas.Turn {
	toks := make(schemas.Tokens, overheadPrompt)
	for i := range toks {
		toks[i] = int32(300 + (i*7+n*31+i*n)%200)
	}
	zero, out := 0.0, int64(overheadOutput)
	t := &schemas.Turn{Weir: schemas.TurnMeta{Turn: fmt.Sprintf("t%d", n), InputTokens: toks, IgnoreEOS: true}}
	t.Temperature, t.MaxTokens = &zero, &out
	return t
}

// sample is one turn's times in seconds.
type sample struct{ ttft, total float64 }

// Overhead compares turns through weir with the same engine called in this
// process: alternating, so that both meet the same noise. The first figures are at
// one turn, those that end in _8 at eight at once, where the engine in this
// process batches the same eight.
func Overhead(ctx context.Context, dir, engine string, rounds int) ([]Figure, error) {
	s, err := stack.Launch(ctx, stack.Options{Dir: dir, Args: []string{
		"--engine", engine, "--prefill", "1", "--decode", "1", "--ctx", "1024", "--slots", "8", "--kv-mem", "1GiB",
	}})
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.Stop() }() // its own test checks what stopping leaves behind
	c, err := s.Client()
	if err != nil {
		return nil, err
	}
	e, m, err := open(engine, dir, 8, 1024)
	if err != nil {
		return nil, err
	}
	defer func() { _ = e.Close(); _ = m.Close() }() // the process ends soon
	w := worker.New(worker.Config{
		Engine: e, Vocab: m.Vocab, Tier: noTier{}, Keys: noKeys{}, Now: func() int64 { return time.Now().UnixNano() },
	})
	var out []Figure
	for _, conc := range []int{1, 8} {
		var through, direct []sample
		for n := range max(10, rounds/(3*conc-2)) { // fewer where each round has more turns
			base := conc*100_000 + n*conc
			a, err := throughWeir(ctx, c, base, conc)
			if err != nil {
				return nil, err
			}
			b, err := inProcess(w, base, conc)
			if err != nil {
				return nil, err
			}
			through, direct = append(through, a...), append(direct, b...)
		}
		out = append(out, overheadFigures(conc, through, direct)...)
	}
	return out, nil
}

func overheadFigures(conc int, through, direct []sample) []Figure {
	pick := func(ss []sample, f func(sample) float64) []float64 {
		xs := make([]float64, len(ss))
		for i, s := range ss {
			xs[i] = f(s)
		}
		return xs
	}
	ttft := func(s sample) float64 { return s.ttft }
	total := func(s sample) float64 { return s.total }
	added := func(q float64) float64 {
		return (quantile(pick(through, ttft), q) - quantile(pick(direct, ttft), q)) * 1000
	}
	share := median(pick(through, total))/median(pick(direct, total)) - 1
	suffix := ""
	if conc > 1 {
		suffix = fmt.Sprintf("_%d", conc)
	}
	return []Figure{
		{"overhead.ttft_ms_p50" + suffix, added(0.5), "ms added"},
		{"overhead.ttft_ms_p99" + suffix, added(0.99), "ms added"},
		{"overhead.e2e_share" + suffix, share, "share of the time in one process"},
	}
}

func throughWeir(ctx context.Context, c *turns.Client, base, conc int) ([]sample, error) {
	out := make([]sample, conc)
	errs := make([]error, conc)
	var wg sync.WaitGroup
	for i := range conc {
		wg.Go(func() {
			begin := time.Now()
			s, err := c.Publish(ctx, turns.Request{Session: fmt.Sprintf("o%d-%d", conc, i), Turn: overheadTurn(base + i)})
			if err != nil {
				errs[i] = err
				return
			}
			defer s.Close()
			_, errs[i] = turns.Collect(ctx, s, func(*turns.Event) error {
				if out[i].ttft == 0 {
					out[i].ttft = time.Since(begin).Seconds()
				}
				return nil
			})
			out[i].total = time.Since(begin).Seconds()
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// inProcess runs the same turns on a worker in this process: prompts one after
// the other, as an executor does, then all rows together.
func inProcess(w *worker.Worker, base, conc int) ([]sample, error) {
	begin := time.Now()
	out := make([]sample, conc)
	var seqs []int32
	for i := range conc {
		t := overheadTurn(base + i)
		op := &schemas.OpenOp{Seq: int32(i), Stage: schemas.StageDecode, Attempt: 1, Ready: &schemas.Ready{
			Prompt: schemas.Prompt{N: overheadPrompt, Tail: t.Weir.InputTokens}, MaxNew: overheadOutput, IgnoreEOS: true,
		}}
		if d := w.Do(&schemas.Op{Open: op}); d.Err != "" {
			return nil, fmt.Errorf("bench: %s", d.Err)
		}
		if d := w.Do(&schemas.Op{Prefill: &schemas.PrefillOp{Seq: int32(i), MaxBlocks: 1 << 20, MaxNS: 1 << 62}}); d.Err != "" {
			return nil, fmt.Errorf("bench: %s", d.Err)
		}
		if d := w.Do(&schemas.Op{Decode: &schemas.DecodeOp{Seqs: []int32{int32(i)}}}); d.Err != "" {
			return nil, fmt.Errorf("bench: %s", d.Err)
		}
		out[i].ttft = time.Since(begin).Seconds()
		seqs = append(seqs, int32(i))
	}
	for step := 1; step < overheadOutput; step++ {
		if d := w.Do(&schemas.Op{Decode: &schemas.DecodeOp{Seqs: seqs, MaxSteps: 1, MaxNS: 1 << 62}}); d.Err != "" {
			return nil, fmt.Errorf("bench: %s", d.Err)
		}
	}
	for i := range out {
		out[i].total = time.Since(begin).Seconds()
		w.Do(&schemas.Op{Drop: &schemas.DropOp{Seq: int32(i)}})
	}
	return out, nil
}

// noTier remembers nothing: every prompt is computed.
type noTier struct{}

func (noTier) Lease([]worker.Key) []worker.Ref           { return nil }
func (noTier) Data(worker.Ref) []byte                    { return nil }
func (noTier) Valid(worker.Ref) bool                     { return false }
func (noTier) Release([]worker.Ref)                      {}
func (noTier) Has(worker.Key) bool                       { return false }
func (noTier) Parent(worker.Key) (worker.Key, int, bool) { return worker.Key{}, 0, false }
func (noTier) Reserve(int) ([]worker.Slot, error)        { return nil, nil }
func (noTier) Seal(worker.Slot, worker.Block) error      { return nil }
func (noTier) Abandon([]worker.Slot)                     {}

// noKeys names nothing, for there is nothing to look up.
type noKeys struct{}

func (noKeys) Root(schemas.KeySpec, schemas.KVFormat) (worker.Key, error) { return worker.Key{}, nil }
func (noKeys) Chain(worker.Key, int, []int32) worker.Key                  { return worker.Key{} }
