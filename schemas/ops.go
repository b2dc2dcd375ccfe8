package schemas

// Op is an effect outside the bus that an actor asks for: work of an engine, a
// look into memory, a rendered prompt. Exactly one pointer is set. The runner
// hands it to its local handler and brings an OpDone with the same ID back.
type Op struct {
	ID uint64
	// Trace is that of the turn which the operation is for; empty when it is for
	// several turns or none.
	Trace Trace

	Open      *OpenOp
	Prefill   *PrefillOp
	Decode    *DecodeOp
	Seal      *SealOp
	Drop      *DropOp
	Verify    *VerifyOp
	Render    *RenderOp
	Tokens    *TokensRequest
	Delivered *DeliveredOp
	Lookup    *LookupOp
	Fetch     *FetchOp
	Sync      *SyncOp
	Bring     *BringOp
	Health    *HealthOp
	Interrupt *InterruptOp
}

// OpDone is the completion of an Op.
type OpDone struct {
	ID     uint64
	TookNS int64
	// Err is "" on success. Code tells failures apart, see Failure.
	Err  string
	Code string
	// Device is what the engine keeps without a turn, when that changed.
	Device *DeviceState

	Open      *OpenDone
	Prefill   *PrefillDone
	Decode    *DecodeDone
	Seal      *SealDone
	Verify    *VerifyDone
	Render    *RenderDone
	Tokens    *TokensReply
	Delivered *DeliveredDone
	Lookup    *LookupDone
	Fetch     *FetchDone
	Sync      *SyncReply
	Bring     *BringDone
	Health    *HealthDone
}

// OpenOp gives a turn a sequence of the engine and imports what the tier holds
// of its prompt.
type OpenOp struct {
	Seq     int32 // engine slot, free
	Stage   Stage
	Attempt int
	Ready   *Ready
	// Head holds tokens 0..len(Head)-1 of the prompt where they were asked for
	// because the tier lacks blocks before Prompt.TailFrom; otherwise empty.
	Head Tokens
	// Delivered tokens the attempt is forced along and which are not sent again.
	Delivered Tokens
	// Again: they are sent again. A checkpoint may hold tokens that no frame had.
	Again bool
}

// OpenDone says what was found.
type OpenDone struct {
	Cached int // prompt tokens imported, a multiple of the block size
	// NeedHead: blocks before Prompt.TailFrom are missing and their tokens are
	// not in the job. Nothing was opened; ask for tokens 0..TailFrom-1 and try again.
	NeedHead bool
	// Missing is the number of whole prompt blocks still to be computed.
	Missing int
	// Started: the whole prompt and all delivered tokens but the last are in place, so the
	// next decode step yields a new token.
	Started bool
	// Gone says why the first block that was missed is gone, when the tier knows:
	// it had been computed, as Prompt.Path says.
	Gone *Gone
}

// BringOp brings blocks of a turn's prompt that the host's memory lacks into it, from
// disk or from other nodes, before the turn is opened. The engine works on meanwhile.
// It ends within a bound of time, and what did not come is computed: it never fails.
type BringOp struct {
	Ready   *Ready
	Head    Tokens   // as in OpenOp
	Sources []Source // the job's
	// From is the executor whose engine computed the prompt's blocks a moment ago, or
	// had the turn before; empty when none did.
	From string
}

// BringDone says what came.
type BringDone struct{ Brought int } // blocks

// Gone is what the tier remembers of a block that it does not hold.
type Gone struct {
	AtNS int64  // when it was evicted, Unix time; 0: it was never kept
	Rule string // the rule by which it went, see kvtier/hostmem
}

// PrefillOp computes whole blocks of prompts, at least one step of each, until MaxNS
// nanoseconds have gone or MaxBlocks of each are computed. It ends on a block boundary,
// so an executor whose role changes, or whose caller has gone, stops soon. Several
// sequences are given only to an engine that computes them side by side.
type PrefillOp struct {
	Seqs      []int32
	MaxBlocks int
	MaxNS     int64
}

// PrefillDone says how far each sequence came, in the order of PrefillOp.Seqs.
type PrefillDone struct{ Rows []PrefillRow }

// PrefillRow is the progress of one prompt in one PrefillOp.
type PrefillRow struct {
	Computed int    // tokens computed now
	Missing  int    // whole blocks still to be computed
	Err      string // the row failed; the others go on
	Code     string
}

// DecodeOp advances sequences token by token: DecodeRun of the design. A row
// that has not started computes the prompt's tail first. It ends after MaxSteps
// steps, after MaxNS nanoseconds, or when a row ends, whichever is first.
type DecodeOp struct {
	Seqs     []int32
	MaxSteps int
	MaxNS    int64
}

// InterruptOp asks the DecodeOp with that ID to end at the next boundary between two
// steps, so that something else can start. It completes with what it did; there is
// nothing to do when it has ended.
type InterruptOp struct{ Op uint64 }

// DecodeDone holds what each row yielded, in the order of DecodeOp.Seqs. The rows are
// read before the next operation begins; who makes them may use them again then.
type DecodeDone struct {
	Rows  []DecodeRow
	Steps int
}

// DecodeRow is the output of one sequence in one DecodeOp.
type DecodeRow struct {
	First    int     // index of Tokens[0] among the generated tokens
	Tokens   []int32 // new tokens; delivered ones are not repeated
	All      []int32 // the answer so far, delivered tokens included; it is only added to. nil: not told
	Text     string  // text that became certain
	TextAt   int     // byte offset of Text in the answer
	Finish   string  // "", or why generation ended: stop, length
	Answer   string  // with Finish: the whole text, delivered tokens included
	End      string  // with Finish: text of the end token, if there was one
	Message  []byte  // with Finish: the message that the answer is, where Ready.Parse names a parser
	Err      string  // the row failed; the others go on
	Code     string
	Logprobs [][]byte // OpenAI logprob objects where wanted: one per token, delivered ones before
}

// SealOp exports blocks that are computed but not yet in the tier.
type SealOp struct {
	Seq int32
	// Tail: the sequence goes on elsewhere. The tokens that fill no block are kept too,
	// under a name of their own, where the engine can hand them out.
	Tail bool
}

// SealDone says how many blocks are in the tier and how many did not fit.
type SealDone struct {
	Sealed  int // blocks sealed now
	Skipped int // blocks left out because the tier is full
	Blocks  int // leading blocks of the sequence that are in the tier
}

// DropOp frees a sequence.
type DropOp struct{ Seq int32 }

// VerifyOp compares the engine with what the executor believes, before a new role
// is in force: exactly the sequences in Open may hold tokens. From and To are the roles,
// for engines that prepare themselves for a phase.
type VerifyOp struct {
	Open     []int32
	From, To Role
}

// VerifyDone is "" when engine and executor agree, or says what differs.
type VerifyDone struct{ Problem string }

// RenderOp renders and tokenizes a request, see RenderRequest.
type RenderOp struct {
	Model   string
	Request RenderRequest
}

// RenderDone is the answer.
type RenderDone struct {
	Reply RenderReply
}

// DeliveredOp asks for the tokens of a turn that may have reached the caller:
// the longer of its frames and its checkpoint.
type DeliveredOp struct {
	Tenant, Session, Turn string
}

// DeliveredDone is the answer.
type DeliveredDone struct {
	Tokens Tokens
	// Finished: a result exists already, nothing is left to do.
	Finished bool
}

// LookupOp asks whether a turn has a result or is waiting in READY.
type LookupOp struct {
	Tenant, Session, Turn string
}

// LookupDone is the answer; Result is nil when there is none.
type LookupDone struct {
	Result *Result
	Ready  bool
	// Branch is where its READY message says that it is.
	Branch string
}

// FetchOp asks for a turn's body that is in the payload bucket.
type FetchOp struct{ Ref PayloadRef }

// FetchDone is the body, or why it cannot be read.
type FetchDone struct {
	Turn    *Turn
	Failure *Failure
}

// SyncOp asks a node for one page of what it holds: SyncRequest on sync.<node>.
type SyncOp struct {
	Node string
	Page int
}

// DeviceState is what stays in an engine between turns, see Heartbeat.Kept.
type DeviceState struct {
	Kept   []Extent
	Blocks int // of all of them
}

// HealthOp asks for the health of the executor's devices.
type HealthOp struct{}

// HealthDone is the answer: see Report.
type HealthDone struct {
	GPUs  []GPU
	Unfit string
}
