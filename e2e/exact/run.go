package exact

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-dev/weir/e2e/stack"
	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/model"
	"github.com/weir-dev/weir/services/turns"
)

// Options are the part of the matrix that one stack runs.
type Options struct {
	Engine     string
	Preset     string
	Prompts    []int
	Samplings  []string
	Conditions []Condition    // Moved only without others
	Emit       func(*Outcome) // called as outcomes come
}

// caseWait bounds one turn.
const caseWait = 3 * time.Minute

// bench is a stack and a reference with the same model.
type bench struct {
	o      Options
	stack  *stack.Stack
	client *turns.Client
	mem    *stack.Memory
	ref    *reference
	out    []Outcome
	n      int // sessions so far
}

// Run runs a part of the matrix on a stack of one prefill and one decode executor.
// An error means that it could not be run; outcomes say what differed.
func Run(ctx context.Context, o Options) (out []Outcome, err error) {
	path, err := stack.ModelFile(o.Preset)
	if err != nil {
		return nil, err
	}
	m, err := model.Open(model.Options{Engine: o.Engine, Path: path, LibDir: stack.Libraries(), Log: io.Discard})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	room := max(1024, slices.Max(o.Prompts)+2*movedNew) // tokens per sequence
	ref, err := openReference(m, room)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ref.close()) }()
	s, err := stack.Launch(ctx, stack.Options{Args: []string{
		"--engine", o.Engine, "--model", path, "--prefill", "1", "--decode", "1", "--direct-max", "-1",
		"--ctx", strconv.Itoa(room), "--slots", strconv.Itoa(besideTurns + 2), "--kv-mem", "256MiB",
		// What is measured is the memory shared by executors, not what an engine keeps.
		"--keep-sequences=false",
	}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	b := &bench{o: o, stack: s, ref: ref}
	if b.client, err = s.Client(); err != nil {
		return nil, err
	}
	if b.mem, err = s.Memory(ctx, m, ref.format, ref.engine.Limits().BlockBytes); err != nil {
		return nil, err
	}
	return b.run(ctx)
}

// references of one prompt; nil where no condition needs them.
type references struct {
	alone, after       run // with empty memory; with the blocks of the shorter turn
	aloneMem, afterMem *memory
	err                error
}

// run goes through the prompts, and then once more beside other sequences. The next
// prompt's references are computed while the stack is at work.
func (b *bench) run(ctx context.Context) ([]Outcome, error) {
	var cases []Case
	for _, n := range b.o.Prompts {
		for _, s := range b.o.Samplings {
			cases = append(cases, Case{Engine: b.o.Engine, Preset: b.o.Preset, Sampling: s, Prompt: n})
		}
	}
	if slices.Contains(b.o.Conditions, Moved) { // alone: it needs references of its own
		err := b.moved(ctx, cases)
		return b.out, err
	}
	refs := make([]chan *references, len(cases))
	for i := range refs {
		refs[i] = make(chan *references, 1)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i, c := range cases {
			if ctx.Err() != nil {
				return
			}
			refs[i] <- b.refer(c)
		}
	}()
	defer func() { cancel(); <-done }() // the engine is closed next
	kept := make([]*references, len(cases))
	for i, c := range cases {
		err := b.quiet(ctx, c, refs[i], &kept[i])
		if err != nil {
			return b.out, err
		}
	}
	if !slices.Contains(b.o.Conditions, Beside) {
		return b.out, nil
	}
	others, err := startBeside(ctx, b.client, b.ref.model.Vocab.Size())
	if err != nil {
		return b.out, err
	}
	defer others.stop()
	for i, c := range cases {
		c.Condition = Beside
		if err := b.beside(ctx, c, kept[i], others); err != nil {
			return b.out, err
		}
	}
	return b.out, nil
}

// refer computes the references of a prompt.
func (b *bench) refer(c Case) *references {
	r := &references{aloneMem: b.ref.memory(), afterMem: b.ref.memory()}
	prompt, s := c.prompt(b.ref.model.Vocab.Size()), samplingOf(c.Sampling)
	r.alone, r.err = b.ref.turn(r.aloneMem, prompt, nil, s, c.maxNew())
	if r.err != nil || !slices.Contains(b.o.Conditions, Partial) {
		return r
	}
	head, force := shorter(prompt)
	if _, r.err = b.ref.turn(r.afterMem, head, force, s, maxNew); r.err == nil {
		r.after, r.err = b.ref.turn(r.afterMem, prompt, nil, s, maxNew)
	}
	return r
}

// quiet runs the conditions in which nothing else is at work.
func (b *bench) quiet(ctx context.Context, c Case, refs <-chan *references, kept **references) error {
	prompt := c.prompt(b.ref.model.Vocab.Size())
	for _, c.Condition = range []Condition{Cold, Evicted, Partial} {
		if !slices.Contains(b.o.Conditions, c.Condition) {
			continue
		}
		if c.Condition != Cold {
			if err := b.mem.Evict(ctx); err != nil {
				return err
			}
		}
		if c.Condition == Partial {
			head, force := shorter(prompt)
			if _, err := b.turn(ctx, c, head, force, nil); err != nil {
				return err
			}
		}
		res, err := b.turn(ctx, c, prompt, nil, nil)
		if err != nil {
			return err
		}
		if *kept == nil {
			select {
			case *kept = <-refs:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			if err := (*kept).err; err != nil {
				return err
			}
		}
		b.judge(c, res, *kept, "")
	}
	return b.mem.Evict(ctx)
}

// beside runs a case while other sequences decode.
func (b *bench) beside(ctx context.Context, c Case, refs *references, others *others) error {
	if err := b.mem.Evict(ctx); err != nil {
		return err
	}
	before, err := others.all(ctx)
	if err != nil {
		return err
	}
	res, err := b.turn(ctx, c, c.prompt(b.ref.model.Vocab.Size()), nil, nil)
	if err != nil {
		return err
	}
	problem := ""
	if n := others.moved(before); n < besideTurns {
		problem = fmt.Sprintf("only %d of %d other sequences went on meanwhile", n, besideTurns)
	}
	b.judge(c, res, refs, problem)
	return nil
}

// turn runs one turn on the stack, in a session of its own. each, when not nil, sees
// what comes of it.
func (b *bench) turn(ctx context.Context, c Case, prompt, force schemas.Tokens, each func(*turns.Event) error) (*schemas.Result, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, caseWait, fmt.Errorf("%v did not end within %s", c, caseWait))
	defer cancel()
	b.n++
	t := &schemas.Turn{Weir: schemas.TurnMeta{InputTokens: prompt, ForceOutput: force, IgnoreEOS: true}}
	p, most, seed := samplingOf(c.Sampling), int64(c.maxNew()), int64(seed)
	t.Temperature, t.Seed, t.MaxTokens = &p.Temperature, &seed, &most
	if p.TopP > 0 {
		t.TopP = &p.TopP
	}
	s, err := b.client.Publish(ctx, turns.Request{Session: fmt.Sprintf("exact-%d", b.n), Turn: t})
	if err != nil {
		return nil, fmt.Errorf("%v: %w", c, err)
	}
	defer s.Close()
	r, err := turns.Collect(ctx, s, each)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%v: %w\n%s", c, errors.Join(err, context.Cause(ctx)), b.stack.Logs(10))
	case r.Failure != nil:
		return nil, fmt.Errorf("%v failed: %s: %s", c, r.Failure.Code, r.Failure.Message)
	}
	return r, nil
}

// judge compares a result, and what the stack has in memory, with the reference.
func (b *bench) judge(c Case, r *schemas.Result, refs *references, problem string) {
	want, mem := &refs.alone, refs.aloneMem
	if c.Condition == Partial {
		want, mem = &refs.after, refs.afterMem
	}
	o := compare(c, r, want, mem, b.mem.Read)
	o.Problem = strings.TrimPrefix(o.Problem+"; "+problem, "; ")
	o.Problem = strings.TrimSuffix(o.Problem, "; ")
	b.out = append(b.out, o)
	if b.o.Emit != nil {
		b.o.Emit(&o)
	}
}

// compare holds a result against a reference; read yields what is in shared memory.
func compare(c Case, r *schemas.Result, want *run, mem *memory, read func(kvtier.Key) ([]byte, kvtier.Block, bool)) Outcome {
	o := Outcome{
		Case: c, Digest: digest(r.Tokens), Generated: len(r.Tokens), TokensEqual: slices.Equal(r.Tokens, want.tokens),
		Cached: r.Usage.Cached, WantCached: want.cached, PrefillOn: r.PrefillOn, DecodeOn: r.DecodeOn, Attempt: r.Attempt,
	}
	for _, k := range want.keys {
		o.Blocks++
		w := mem.blocks[k]
		data, block, ok := read(k)
		if !ok || !bytes.Equal(data, w.data) || block.Index != w.Index || (block.Origin == kvtier.OriginDecode) != w.Decoded {
			o.BlocksOff++
		}
	}
	computed := r.Usage.Cached < (c.Prompt-1)/gpuexec.BlockTokens*gpuexec.BlockTokens
	// Where blocks were there a moment ago the router may hear of the eviction after it
	// has placed the turn: the decode executor then computes a short prompt itself.
	heard := c.Condition == Cold || c.Condition == Partial
	if computed && r.PrefillOn == r.DecodeOn && heard {
		o.Problem = fmt.Sprintf("prefill and decode both ran on %q", r.DecodeOn)
	}
	return o
}
