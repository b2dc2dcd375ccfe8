package gpuexec

import (
	"errors"

	"github.com/weir-dev/weir/schemas"
)

// BlockTokens is the number of tokens whose KV forms one block: the unit of
// export, import, naming and prefill. Prefill of a sequence always advances in
// steps that end on a multiple of it, except for a prompt's tail, so that an
// imported prefix plus a computed rest is bit-identical to computing all.
const BlockTokens = 64

// SeqID names a sequence slot of an engine: 0 ≤ id < Limits.Slots.
type SeqID int32

// Phase tells what the rows of one Step are. One engine call holds either
// decode rows or prefill rows, never both: mixing them changes the KV bytes of
// both (docs/engines.md).
type Phase uint8

// The phases of a Step.
const (
	PhasePrefill Phase = iota // consecutive positions of one sequence, at most BlockTokens of them
	PhaseDecode               // one row for each of several sequences
)

// Row is one token to compute. Its position is the sequence's length before the
// step plus its index among the sequence's rows; engines refuse a gap.
type Row struct {
	Seq    SeqID
	Token  int32
	Pos    int32
	Logits bool // logits of this row are wanted
}

// Limits are the bounds of one engine instance. They do not change while it lives.
type Limits struct {
	Slots      int // sequences that may be resident at once
	Context    int // tokens per sequence
	BatchRows  int // most rows of one Step
	BlockBytes int // bytes of one exported block
	Vocab      int // number of token ids

	// PrefillRanks is how many prompts the engine computes side by side, as one with
	// data-parallel attention does; 0 means 1. PrefillChunk is how many tokens each of
	// them advances in a step; 0 when that is not known.
	PrefillRanks int
	PrefillChunk int
	// KVTokens is how many tokens of KV the engine holds for all sequences together;
	// 0 means that every slot has its whole Context.
	KVTokens int
	// Interrupt: the engine batches continuously. A DecodeOp may be long, because an
	// InterruptOp ends it between two steps, and the prompts' tails of new rows are
	// computed in its first step, beside the rows that run.
	Interrupt bool
}

// Device is one device that the engine really uses, as the engine itself reports
// it: a CUDA build without a GPU lists only the CPU.
type Device struct {
	Name        string
	Description string
	MemoryBytes int64 // 0 when unknown
}

// Info says what an engine is. Engine, Version and Numerics enter every block
// key: two engines whose values are equal may read each other's blocks.
type Info struct {
	Engine   string // "llama", "go", "null"
	Version  string // library version and format version
	Numerics string // KV type, v_trans, RoPE settings, prefill step: whatever decides a KV byte
	Devices  []Device
	// Exact: an imported prefix plus a computed rest is bit-identical to
	// computing all, and a row's result does not depend on the other rows.
	Exact bool
}

// StepEngine computes tokens step by step and hands KV blocks in and out. It is
// owned by one goroutine; no method may be called concurrently with another.
//
// An engine may abort its process on misuse of the library below it, so an
// implementation checks every argument first and returns an error.
type StepEngine interface {
	Info() Info
	Limits() Limits

	// Step computes rows and appends their KV. It returns ErrNoRoom when the
	// engine has no cell left (nothing was appended), ErrBadBatch for rows that
	// break the rules of phase, position or bounds.
	Step(phase Phase, rows []Row) error

	// Logits returns the logits of row i of the last Step, which must have asked
	// for them. Length Limits().Vocab; valid until the next call; the caller may
	// overwrite them.
	Logits(i int) []float32

	// Len is the number of tokens whose KV the sequence holds; 0 for an unused one.
	Len(seq SeqID) int

	// Export copies whole blocks first, first+1, … of seq into dst, one block of
	// Limits().BlockBytes into each element. Every block must lie within Len.
	Export(seq SeqID, first int, dst [][]byte) error

	// Import fills the empty sequence seq with whole blocks 0..len(src)-1. On an
	// error the sequence is empty again.
	Import(seq SeqID, src [][]byte) error

	// Drop forgets a sequence. Dropping an empty one does nothing.
	Drop(seq SeqID)

	// Close frees the engine; no method may be called afterwards.
	Close() error
}

// Cutter is implemented by engines that can forget the end of a sequence. A sequence
// whose turn is over then stays in the engine, and a prompt that begins with the same
// blocks goes on from there without an import.
type Cutter interface {
	// Cut keeps the first n tokens of seq, a multiple of BlockTokens and at most Len.
	// What is computed behind them afterwards has the bits that it would have behind
	// an import of the same blocks. On an error the sequence is empty.
	Cut(seq SeqID, n int) error
}

// Tailer is implemented by engines that also hand out the end of a sequence that fills
// no block, so that a decode goes on elsewhere without computing anything again.
type Tailer interface {
	// ExportTail copies the last Len%BlockTokens tokens, which must not be none, into
	// dst, the beginning of a block of Limits().BlockBytes whose rest is zero.
	ExportTail(seq SeqID, dst []byte) error
	// ImportTail is Import followed by n more tokens, 0 < n < BlockTokens, from tail. What
	// is computed behind them has the bits that it would have had where they were made.
	ImportTail(seq SeqID, src [][]byte, tail []byte, n int) error
}

// Vocab is the token alphabet of a model and its text.
type Vocab interface {
	Size() int
	BOS() int32           // -1 when the model has none
	EOG(token int32) bool // token ends a generation
	// Piece is the bytes of one token. They may be a part of a UTF-8 character.
	// Special (control) tokens yield their text only when special is set.
	Piece(token int32, special bool) []byte
	// Tokenize turns text into tokens. addSpecial prepends BOS when the model
	// asks for it; parseSpecial turns the text of control tokens into those tokens.
	Tokenize(text string, addSpecial, parseSpecial bool) ([]int32, error)
	// Name says which implementation and which vocabulary this is; it enters the
	// block key, so that two tokenizers never share blocks.
	Name() string
}

// Constraint restricts sampling of one sequence to a grammar.
type Constraint interface {
	// Mask sets the logits of all tokens that the grammar forbids next to -Inf.
	Mask(logits []float32)
	// Accept advances the grammar by a token that was sampled.
	Accept(token int32) error
	Close()
}

// Constrainer is implemented by engines that can constrain sampling.
type Constrainer interface {
	// Constrain compiles a GBNF grammar (root rule "root"). A grammar that does
	// not compile is an error, never an abort.
	Constrain(gbnf string) (Constraint, error)
}

// MediaTaker is implemented by engines that see images. It is told what an open
// sequence's placeholder tokens stand for before the first Step that holds one;
// Drop forgets it. An engine without it refuses prompts with media.
type MediaTaker interface {
	// SetMedia gives all media of a prompt, in order, with offsets from its start.
	SetMedia(seq SeqID, media []schemas.MediaSpan) error
}

// Errors of engines.
var (
	// ErrNoRoom: the engine holds no free cell or slot. Drop a sequence and try again.
	ErrNoRoom = errors.New("engine: no room for more tokens")
	// ErrBadBatch: the rows break the rules of Step; nothing was computed.
	ErrBadBatch = errors.New("engine: bad batch")
	// ErrBadBlock: a block's size or content does not fit this engine; nothing was imported.
	ErrBadBlock = errors.New("engine: bad block")
	// ErrUnsupported: the model or request needs something this engine lacks.
	ErrUnsupported = errors.New("engine: unsupported")
)
