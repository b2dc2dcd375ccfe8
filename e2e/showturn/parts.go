package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-dev/weir/e2e/bench"
	"github.com/weir-dev/weir/e2e/cache"
	"github.com/weir-dev/weir/e2e/exact"
	"github.com/weir-dev/weir/e2e/show"
	"github.com/weir-dev/weir/e2e/stack"
)

// parts are all runs, in order. To add figures, add a part: the run belongs into a
// package of its own, which its test asserts on too.
func parts() []show.Part {
	return []show.Part{
		// What measures time comes first, on a machine that is still quiet.
		show.New("overhead", []string{"overhead.ttft_ms_p50", "overhead.ttft_ms_p99", "overhead.e2e_share"}, benchPart(overheadPart)),
		show.New("null", []string{"null.turns_per_s", "null.tokens_per_s"}, benchPart(nullPart)),
		show.New("kv", []string{"kv.export_vs_memcpy", "kv.import_vs_memcpy"}, benchPart(kvPart)),
		show.New("engines", []string{"goengine.prefill_vs_llama", "goengine.decode_vs_llama"}, benchPart(bench.GoAgainstLlama)),
		show.New("kill", append(recoverNames(), "kill.turns", "kill.kinds_hit", "kill.lost", "kill.duplicated", "kill.changed_tokens"), killPart),
		show.New("poison", []string{"poison.executor_deaths", "poison.others_lost"}, poisonPart),
		show.New("full", []string{"full.lost"}, fullPart),
		show.New("exact", []string{"turn.cases", "turn.cases_differing", "turn.kv_bit_exact_cases"}, exactPart),
		show.New("cache", []string{"cache.second_turn_share_min"}, cachePart),
	}
}

// errNoLibraries: half of what is to be shown needs llama.cpp.
var errNoLibraries = errors.New("the llama.cpp libraries are not installed; `make engine` installs them")

// exactLine is what is printed of a case.
type exactLine struct {
	Case      string `json:"case"`
	Digest    string `json:"digest"` // of the generated tokens
	Tokens    int    `json:"tokens"`
	Cached    int    `json:"cached"`
	PrefillOn string `json:"prefill_on"`
	DecodeOn  string `json:"decode_on"`
	Same      bool   `json:"same"`
	Blocks    int    `json:"blocks"`
	BlocksOff int    `json:"blocks_off"`
	Problem   string `json:"problem,omitempty"`
}

func exactPart(ctx context.Context, out *show.Printer) error {
	if stack.Libraries() == "" {
		return errNoLibraries
	}
	cases, differing, exactKV := 0, 0, 0
	var errs []error
	for _, o := range exact.Matrix(false) {
		o.Emit = func(c *exact.Outcome) {
			cases++
			if !c.Same() {
				differing++
			}
			if c.KVEqual() {
				exactKV++
			}
			out.Line(exactLine{c.String(), c.Digest, c.Generated, c.Cached, c.PrefillOn, c.DecodeOn, c.Same(), c.Blocks, c.BlocksOff, c.Problem})
		}
		if _, err := exact.Run(ctx, o); err != nil {
			errs = append(errs, fmt.Errorf("%s-%s: %w", o.Engine, o.Preset, err))
		}
	}
	out.Figure("turn.cases", float64(cases), "cases")
	out.Figure("turn.cases_differing", float64(differing), "cases")
	out.Figure("turn.kv_bit_exact_cases", float64(exactKV), "cases")
	return errors.Join(errs...)
}

// cacheLine is what is printed of a second turn.
type cacheLine struct {
	Case      string  `json:"case"`
	Prompt    int     `json:"prompt"`
	Generated int     `json:"generated"`
	Cached    int     `json:"cached"`
	Share     float64 `json:"share"`
	Problem   string  `json:"problem,omitempty"`
}

func cachePart(ctx context.Context, out *show.Printer) error {
	if stack.Libraries() == "" {
		return errNoLibraries
	}
	var all []cache.Outcome
	var errs []error
	for _, e := range []struct{ engine, preset string }{{"llama", "small"}, {"go", "tiny"}} {
		got, err := cache.Run(ctx, e.engine, e.preset, cache.Places(), func(o *cache.Outcome) {
			out.Line(cacheLine{o.String(), o.Prompt, o.Generated, o.Cached, o.Share, o.Problem})
			if o.Problem != "" {
				errs = append(errs, fmt.Errorf("%v: %s", o.Scenario, o.Problem))
			}
		})
		errs = append(errs, err)
		all = append(all, got...)
	}
	out.Figure("cache.second_turn_share_min", cache.MinShare(all), "share")
	return errors.Join(errs...)
}
