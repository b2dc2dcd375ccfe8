package llamacpp

import (
	"errors"
	"fmt"

	"github.com/weir-dev/weir/gpuexec"
)

// Engine is one model with its slots. It implements gpuexec.StepEngine and
// gpuexec.Constrainer, and belongs to one goroutine.
type Engine struct {
	lib     *Library
	call    caller
	model   *model
	context uintptr
	memory  uintptr
	opts    Options
	limits  gpuexec.Limits
	info    gpuexec.Info

	rows    *rowBuffers
	seen    []bool // scratch of checkRows, one per slot
	lengths []int  // tokens held, one per slot
	asked   []bool // rows of the last step that asked for logits
	broken  error  // set when the KV state became unknown

	layout  layout // of one exported sequence, learned at open
	scratch arena  // one exported or assembled sequence

	candidates  *candidates // of all constraints; nil until the first one
	constraints map[*constraint]bool
}

var (
	_ gpuexec.StepEngine  = (*Engine)(nil)
	_ gpuexec.Constrainer = (*Engine)(nil)
)

// Open loads a GGUF model and makes an engine. It computes a few tokens to learn
// the layout of a state, to prove that export and import are byte-exact, and to
// see whether a row's result depends on the rows beside it (Info().Exact).
//
// Errors wrap ErrModel (file), gpuexec.ErrUnsupported (options, or a model whose
// state cannot be cut into blocks, with the property named), or tell that memory
// ran out.
func Open(l *Library, modelPath string, opts Options) (*Engine, error) {
	m, err := loadModel(l, modelPath, opts.GPULayers, false)
	if err != nil {
		return nil, err
	}
	e := &Engine{lib: l, call: caller{api: &l.api}, model: m}
	if err := e.start(opts); err != nil {
		return nil, joinClose(fmt.Errorf("%s (%s): %w", modelPath, m.description(), err), e)
	}
	return e, nil
}

// start creates the context and runs the self-tests.
func (e *Engine) start(opts Options) error {
	if why := e.model.unsupported(); why != "" {
		return fmt.Errorf("%w: KV blocks cannot be handed over for this model: %s", gpuexec.ErrUnsupported, why)
	}
	trained := e.model.trained()
	opts = opts.withDefaults(trained)
	if err := opts.validate(trained); err != nil {
		return err
	}
	e.opts = opts
	a := &e.lib.api
	e.lib.logs.clear()
	e.context = a.contextNew(e.model.handle, opts.contextParams(a.contextDefaults()))
	if e.context == 0 {
		return fmt.Errorf("llama: no context of %d x %d tokens: %s", opts.Slots, opts.Context, e.lib.logs.reason())
	}
	if got := int(a.contextPerSeq(e.context)); got < opts.Context {
		return fmt.Errorf("llama: the library grants %d of %d tokens per sequence", got, opts.Context)
	}
	e.memory = a.memory(e.context)
	e.limits = gpuexec.Limits{
		Slots: opts.Slots, Context: opts.Context, BatchRows: opts.batchRows(),
		Vocab: int(a.vocabTokens(e.model.vocab)),
	}
	var err error
	if e.rows, err = newRowBuffers(opts.contextRows()); err != nil {
		return err
	}
	e.seen = make([]bool, opts.Slots)
	e.lengths = make([]int, opts.Slots)
	e.asked = make([]bool, 0, e.limits.BatchRows)
	if err := e.learnLayout(); err != nil {
		return err
	}
	e.limits.BlockBytes = e.layout.blockBytes()
	if err := e.proveBlocks(); err != nil {
		return err
	}
	e.info = e.describe()
	if e.onCPU() {
		e.info.Exact, err = e.quickInvariance()
	}
	return err
}

// Info describes library, numerics and devices.
func (e *Engine) Info() gpuexec.Info { return e.info }

// Limits are the bounds of the engine.
func (e *Engine) Limits() gpuexec.Limits { return e.limits }

// Description is the library's one-line description of the model.
func (e *Engine) Description() string { return e.model.description() }

// Step computes rows; see gpuexec.StepEngine. ErrBroken means that the process
// should restart.
func (e *Engine) Step(phase gpuexec.Phase, rows []gpuexec.Row) error {
	if e.broken != nil {
		return e.broken
	}
	if err := checkRows(phase, rows, e.limits, e.lengths, e.seen); err != nil {
		return err
	}
	return e.compute(rows)
}

// compute runs rows that are known to be within all bounds.
func (e *Engine) compute(rows []gpuexec.Row) error {
	e.asked = e.asked[:0]
	switch rc := e.call.decode(e.context, e.rows.fill(rows)); rc {
	case 0:
	case 1:
		return fmt.Errorf("%w: the library found no free cells for %d rows", gpuexec.ErrNoRoom, len(rows))
	case -1:
		return fmt.Errorf("%w: the library refused the rows: %s", gpuexec.ErrBadBatch, e.lib.logs.reason())
	default:
		e.broken = fmt.Errorf("%w: llama_decode returned %d: %s", ErrBroken, rc, e.lib.logs.reason())
		return e.broken
	}
	for _, r := range rows {
		e.lengths[r.Seq]++
		e.asked = append(e.asked, r.Logits)
	}
	return nil
}

// Logits returns the logits of row i of the last Step, or nil when that row did
// not ask for them. It waits for the device.
func (e *Engine) Logits(i int) []float32 {
	if i < 0 || i >= len(e.asked) || !e.asked[i] {
		return nil
	}
	return e.call.logitsRow(e.context, i, e.limits.Vocab)
}

// Len is the number of tokens that seq holds.
func (e *Engine) Len(seq gpuexec.SeqID) int {
	if !e.valid(seq) {
		return 0
	}
	return e.lengths[seq]
}

// Drop forgets a sequence.
func (e *Engine) Drop(seq gpuexec.SeqID) {
	if !e.valid(seq) || e.lengths[seq] == 0 {
		return
	}
	e.clearSeq(seq)
}

// clearSeq removes whatever the library holds of a sequence.
func (e *Engine) clearSeq(seq gpuexec.SeqID) {
	// Removing a whole sequence cannot fail; only a part of recurrent state can.
	e.lib.api.seqRemove(e.memory, int32(seq), -1, -1)
	e.lengths[seq] = 0
}

func (e *Engine) valid(seq gpuexec.SeqID) bool { return seq >= 0 && int(seq) < e.limits.Slots }

// Close frees open constraints, context, model and scratch memory.
func (e *Engine) Close() error {
	for c := range e.constraints {
		c.Close()
	}
	if e.context != 0 {
		e.lib.api.contextFree(e.context)
		e.context = 0
	}
	e.model.free()
	errs := []error{e.scratch.free()}
	if e.rows != nil {
		errs = append(errs, e.rows.mem.free())
		e.rows = nil
	}
	if e.candidates != nil {
		errs = append(errs, e.candidates.mem.free())
		e.candidates = nil
	}
	return errors.Join(errs...)
}

// joinClose closes an engine that could not start and keeps both errors.
func joinClose(err error, e *Engine) error {
	if closeErr := e.Close(); closeErr != nil {
		return fmt.Errorf("%w (and closing it: %w)", err, closeErr)
	}
	return err
}
