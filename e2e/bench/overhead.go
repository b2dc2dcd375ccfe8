package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/weir-dev/weir/e2e/show"
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
	r := rand.New(rand.NewPCG(uint64(n), 256)) // no prompt may be a hit for another
	toks := make(schemas.Tokens, overheadPrompt)
	for i := range toks {
		toks[i] = int32(300 + r.IntN(200))
	}
	zero, out := 0.0, int64(overheadOutput)
	t := &schemas.Turn{Weir: schemas.TurnMeta{Turn: fmt.Sprintf("t%d", n), InputTokens: toks, IgnoreEOS: true}}
	t.Temperature, t.MaxTokens = &zero, &out
	return t
}

// sample is one turn's times in seconds; engine is the engine's own time up to the
// first token, where it is known.
type sample struct{ ttft, total, engine float64 }

// Overhead compares turns through weir with the same engine called in this
// process: alternating, so that both meet the same noise. The first figures are at
// one turn, which goes straight to the decode executor because little of it is
// uncached; those with _handover cross from a prefill executor to it. With _8 eight
// turns come at once, where the engine in this process computes the eight prompts
// one after the other and then decodes them together.
func Overhead(ctx context.Context, dir, engine string, rounds int) ([]show.Figure, error) {
	e, m, err := open(engine, dir, 8, 1024)
	if err != nil {
		return nil, err
	}
	defer func() { _ = e.Close(); _ = m.Close() }() // the process ends soon
	w := worker.New(worker.Config{
		Engine: e, Vocab: m.Vocab, Tier: noTier{}, Keys: noKeys{}, Now: func() int64 { return time.Now().UnixNano() },
	})
	var out []show.Figure
	for _, c := range []struct {
		suffix  string
		conc    int
		rounds  int
		handOff bool
	}{{"", 1, rounds, false}, {"_handover", 1, rounds / 2, true}, {"_8", 8, max(8, rounds/16), false}} {
		args := []string{"--engine", engine, "--prefill", "1", "--decode", "1", "--ctx", "1024", "--slots", "8", "--kv-mem", "1GiB"}
		if c.handOff {
			args = append(args, "--direct-max=-1")
		}
		fs, err := overheadOf(ctx, w, stack.Options{Dir: filepath.Join(dir, "stack"+c.suffix), Args: args}, c.suffix, c.conc, c.rounds)
		if err != nil {
			return nil, err
		}
		out = append(out, fs...)
	}
	return out, nil
}

func overheadOf(ctx context.Context, w *worker.Worker, o stack.Options, suffix string, conc, rounds int) ([]show.Figure, error) {
	s, err := stack.Launch(ctx, o)
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.Stop(); _ = os.RemoveAll(o.Dir) }() // its own test checks what stopping leaves behind
	c, err := s.Client()
	if err != nil {
		return nil, err
	}
	var through, direct []sample
	for n := range rounds {
		base := n * conc
		a, err := throughWeir(ctx, c, base, conc)
		if err != nil {
			return nil, err
		}
		b, err := inProcess(w, base, conc)
		if err != nil {
			return nil, err
		}
		if n > 0 { // the first round warms up both
			through, direct = append(through, a...), append(direct, b...)
		}
	}
	return overheadFigures(suffix, conc, through, direct), nil
}

// overheadFigures: what weir adds to a turn is its time to first token less the
// engine's own time in that very turn. A shared machine computes the same prompt at
// half or double the speed from one second to the next, so differences between two
// turns say nothing about milliseconds; engine_ratio says, from medians, whether the
// engine was slower inside weir than called directly. Totals are compared in pairs:
// a turn through weir and the same turn in this process right after it.
func overheadFigures(suffix string, conc int, through, direct []sample) []show.Figure {
	var added, share, inside, outside []float64
	for i := range through {
		added = append(added, (through[i].ttft-through[i].engine)*1000)
		inside, outside = append(inside, through[i].engine), append(outside, direct[i].ttft)
		share = append(share, through[i].total/direct[i].total-1)
	}
	p50, p99, unit := median(added), quantile(added, 0.99), "ms added"
	if conc > 1 {
		// Turns wait for each other in both, and that is what is compared.
		all := func(ss []sample, q float64) float64 {
			var xs []float64
			for _, s := range ss {
				xs = append(xs, s.ttft*1000)
			}
			return quantile(xs, q)
		}
		p50, p99 = all(through, 0.5)-all(direct, 0.5), all(through, 0.99)-all(direct, 0.99)
		return []show.Figure{
			{Name: "overhead.ttft_ms_p50" + suffix, Value: p50, Unit: unit},
			{Name: "overhead.ttft_ms_p99" + suffix, Value: p99, Unit: unit},
			{Name: "overhead.e2e_share" + suffix, Value: median(share), Unit: "share of the time in one process"},
		}
	}
	return []show.Figure{
		{Name: "overhead.ttft_ms_p50" + suffix, Value: p50, Unit: unit},
		{Name: "overhead.ttft_ms_p99" + suffix, Value: p99, Unit: unit},
		{Name: "overhead.e2e_share" + suffix, Value: median(share), Unit: "share of the time in one process"},
		{Name: "overhead.engine_ratio" + suffix, Value: median(inside) / median(outside), Unit: "engine time in weir to that in one process"},
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
			r, err := turns.Collect(ctx, s, func(*turns.Event) error {
				if out[i].ttft == 0 {
					out[i].ttft = time.Since(begin).Seconds()
				}
				return nil
			})
			if err == nil && r.Status != schemas.StatusOK {
				err = fmt.Errorf("bench: %s", r.Failure.Message)
			}
			if errs[i] = err; err == nil {
				out[i].total, out[i].engine = time.Since(begin).Seconds(), float64(r.Timing.EngineTTFTNS)/1e9
			}
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
		if d := w.Do(&schemas.Op{Prefill: &schemas.PrefillOp{Seqs: []int32{int32(i)}, MaxBlocks: 1 << 20, MaxNS: 1 << 62}}); d.Err != "" {
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

func (noKeys) Chain(worker.Key, int, []int32, []schemas.MediaSpan) worker.Key {
	return worker.Key{}
}
