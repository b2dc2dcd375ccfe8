package worker

import (
	"errors"
	"fmt"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/gpuexec/chat"
	"github.com/weir-dev/weir/gpuexec/sampling"
	"github.com/weir-dev/weir/schemas"
)

// Key is the chain key of a block.
type Key = [32]byte

// Ref is a leased block of the tier.
type Ref struct {
	Slot, Gen uint64
	Key       Key
	Decoded   bool // the block is decode-origin: it holds generated tokens
}

// Block names what is sealed.
type Block struct {
	Key, Parent Key
	Index       int
	Decoded     bool
}

// Slot is reserved memory of one block.
type Slot interface{ Data() []byte }

// Tier is the shared host memory as the worker uses it.
type Tier interface {
	// Lease leases the longest resident prefix of keys.
	Lease(keys []Key) []Ref
	// Data is the block's bytes; Valid tells, after they were copied, whether
	// they were what the lease named.
	Data(r Ref) []byte
	Valid(r Ref) bool
	Release(refs []Ref)
	// Has reports whether the block is resident. It counts as a use.
	Has(k Key) bool
	// Parent returns the key before k in its chain, if k is resident.
	Parent(k Key) (parent Key, index int, ok bool)
	// Reserve returns up to n slots; fewer when the tier is full.
	Reserve(n int) ([]Slot, error)
	Seal(s Slot, b Block) error
	Abandon(s []Slot)
}

// Rememberer is implemented by tiers that remember why blocks are gone.
type Rememberer interface {
	// Why says what became of a block that was not found; false when that is not
	// known, or not known soon.
	Why(k Key) (schemas.Gone, bool)
}

// Pinner is implemented by tiers that evict. A sequence pins the blocks that it
// hangs new ones behind: a small memory would otherwise evict those first, and what
// is stored could not be found.
type Pinner interface {
	// Pin keeps blocks from being evicted until the returned function is called.
	Pin(keys []Key) (unpin func())
}

// Keys names blocks. It is the tier's naming, handed in because executors and
// tier do not import each other.
type Keys interface {
	Root(spec schemas.KeySpec, format schemas.KVFormat) (Key, error)
	// Chain names a block. media are those that touch it, with offsets from its
	// first token, negative if they begin before it.
	Chain(parent Key, index int, tokens []int32, media []schemas.MediaSpan) Key
}

// Config are the parts of a worker.
type Config struct {
	Engine gpuexec.StepEngine
	Vocab  gpuexec.Vocab
	Tier   Tier
	Keys   Keys
	Format schemas.KVFormat
	Now    func() int64 // nanoseconds, monotonic
	// NoKeep: the engine forgets a sequence when its turn is over.
	NoKeep bool
}

// Worker performs operations. It belongs to one goroutine.
type Worker struct {
	cfg     Config
	limits  gpuexec.Limits
	seqs    []*seq
	scratch sampling.Scratch
	rows    []gpuexec.Row
	at      []gpuexec.SeqID                // by sequence of the executor: the engine's, see keep.go
	kept    []kept                         // by sequence of the engine
	drops   uint64                         // counts sequences that were dropped, the clock of kept
	changed bool                           // kept is not what was last told
	shown   map[chat.Family]map[int32]bool // see markers
}

// New makes a worker.
func New(cfg Config) *Worker {
	l := cfg.Engine.Limits()
	w := &Worker{
		cfg: cfg, limits: l, seqs: make([]*seq, l.Slots), at: make([]gpuexec.SeqID, l.Slots), kept: make([]kept, l.Slots),
		shown: map[chat.Family]map[int32]bool{},
	}
	for i := range w.at {
		w.at[i] = gpuexec.SeqID(i)
	}
	return w
}

// seq is one sequence in the engine.
type seq struct {
	ready *schemas.Ready
	// tokens are the prompt and then the generated ones. Prompt tokens before
	// known are not in the job and hold zeros.
	tokens []int32
	known  int
	n      int   // prompt tokens
	keys   []Key // chain keys of whole blocks, as far as computed
	root   Key
	sealed int // leading blocks that are in the tier or need not be
	full   bool
	// uncached: media are not fully described, so blocks are neither looked up nor kept.
	uncached bool

	started   bool
	finish    string
	delivered int // generated tokens that are not sent again
	forced    []int32
	sampler   *sampling.Sampler
	grammar   gpuexec.Constraint
	text      *chat.Text
	reader    reader
	end       string // text of the end token
	all       []byte // the answer's text as far as it is certain
}

const blockTokens = gpuexec.BlockTokens

// promptBlocks is the number of whole blocks before the prompt's tail. The tail
// has 1 to 64 tokens: it yields the first logits.
func (s *seq) promptBlocks() int { return (s.n - 1) / blockTokens }

var errOp = errors.New("worker: bad operation")

// Do performs one operation. Failures come back in OpDone.Err; the sequence is
// then gone where the operation was Open, and unchanged otherwise.
func (w *Worker) Do(op *schemas.Op) schemas.OpDone {
	done := schemas.OpDone{ID: op.ID}
	start := w.cfg.Now()
	var err error
	switch {
	case op.Open != nil:
		done.Open, err = w.open(op.Open)
	case op.Prefill != nil:
		done.Prefill, err = w.prefill(op.Prefill)
	case op.Decode != nil:
		done.Decode, err = w.decode(op.Decode)
	case op.Seal != nil:
		done.Seal, err = w.seal(op.Seal)
	case op.Drop != nil:
		err = w.drop(op.Drop.Seq)
	case op.Verify != nil:
		done.Verify = w.verify(op.Verify)
	default:
		err = fmt.Errorf("%w: an operation that is not for the engine", errOp)
	}
	done.TookNS = w.cfg.Now() - start
	if err != nil {
		done.Err, done.Code = err.Error(), codeOf(err)
	}
	if w.changed {
		done.Device, w.changed = w.device(), false
	}
	return done
}

// verify looks for sequences that should not be there, and for those that should.
func (w *Worker) verify(op *schemas.VerifyOp) *schemas.VerifyDone {
	open := make(map[int]bool, len(op.Open))
	for _, id := range op.Open {
		open[int(id)] = true
	}
	for id, s := range w.seqs {
		kept := len(w.kept[w.at[id]].keys) * blockTokens
		switch held := w.cfg.Engine.Len(w.at[id]); {
		case open[id] && s == nil:
			return &schemas.VerifyDone{Problem: fmt.Sprintf("sequence %d should be open and is not", id)}
		case !open[id] && (s != nil || held != kept):
			return &schemas.VerifyDone{Problem: fmt.Sprintf("sequence %d should be free and holds %d tokens", id, held)}
		}
	}
	return &schemas.VerifyDone{}
}

func codeOf(err error) string {
	switch {
	case errors.Is(err, sampling.ErrParams):
		return schemas.CodeInvalid
	case errors.Is(err, gpuexec.ErrUnsupported):
		return schemas.CodeInvalid
	case errors.Is(err, gpuexec.ErrNoRoom):
		return schemas.CodeBusy
	}
	return schemas.CodeEngine
}

func (w *Worker) get(id int32) (*seq, error) {
	if id < 0 || int(id) >= len(w.seqs) || w.seqs[id] == nil {
		return nil, fmt.Errorf("%w: sequence %d is not open", errOp, id)
	}
	return w.seqs[id], nil
}

func (w *Worker) drop(id int32) error {
	if id < 0 || int(id) >= len(w.seqs) {
		return fmt.Errorf("%w: sequence %d of %d", errOp, id, len(w.seqs))
	}
	s := w.seqs[id]
	if s == nil {
		return nil // what is kept there belongs to nobody
	}
	if s.grammar != nil {
		s.grammar.Close()
	}
	w.seqs[id] = nil
	w.keep(s, w.at[id])
	return nil
}
