package route

import "github.com/weir-dev/weir/schemas"

// turn is one turn without a result.
//
//	waiting --place--> placed --done: prefilled--> placed on the decode executor, or waiting for one
//	   ^                 |  \--result------------> gone
//	   +-- returned, ----+
//	       executor lost
//	any --deadline, cancel, poison--> failing --result stored--> gone
type turn struct {
	ready *schemas.Ready
	seq   uint64 // of the READY message
	trace schemas.Trace
	order uint64 // of arrival

	in     *pool
	class  need          // of its prefill
	keys   [orders]int64 // the smallest first, see heap
	pos    [orders]int   // in a heap, from 1 on
	queue  *heap         // in which it waits
	waits  need          // the need of queue
	queued int           // its tokens in the books of the queue
	held   bool          // its session is not admitted: it waits in held of its pool
	came   schemas.Time  // with held: when its session came first
	begun  bool          // it stands in the book of its pool
	pin    *executor     // in whose queue it waits
	pinAt  schemas.Time
	next   *executor // of whose queue it was among the first, as it was taken out to be valued anew
	listed bool      // it stands in a list of its pool instead

	state    state
	stage    schemas.Stage // the stage that is placed, or to be placed next
	exec     *executor     // where it is placed
	decodeOn *executor     // where a decode slot is kept for it while it is in prefill
	boot     string        // life of decodeOn when the slot was taken
	attempt  int           // of the last placement; 0 before the first
	used     int           // highest attempt that any router may have used
	placedAt schemas.Time
	missing  int // heartbeats in a row that lack it

	old     bool // admitted before this router started
	handed  bool // prefilled, and waiting for a decode slot
	evicted bool // blocks that were promised were not in the tier

	ends     []promptEnd  // of the extents of its prompt
	shares   []share      // which nodes hold how much of the prompt, the deepest first
	kept     []keptShare  // and which engines
	looked   schemas.Time // when that was looked up; 0 when it is to be done anew
	promised int          // blocks that the executor was to find, or to bring in
	charged  int          // tokens that it was to compute, in its books
	gives    []*tierNode  // nodes that it was to bring blocks in from

	tries       int // placements that came back
	deaths      int
	errors      int
	alone       bool
	keeps       *executor // kept free of new work until this alone turn can have it
	local       bool      // compute everything on the decode executor: chosen when it was placed last
	bound       bool      // and nothing else will do
	indirect    bool      // little is to be computed, but not where there is a decode slot
	prefillOn   string
	export      *executor // in whose exports it stands
	prefillBoot string    // life of prefillOn
	cached      int
	busy        int64 // engine time of its prefill in nanoseconds

	spans []schemas.StageSpan // stages that are over, as far as executors told
	first int64               // Unix time of the first token, likewise
	since schemas.Time        // it waits since then
	miss  *schemas.Miss       // what the prefill stage found

	failure *schemas.Failure
	failAt  schemas.Time // last publish of the failure

	expect   int    // prompt tokens to be computed, as far as the directory knew when it became ready
	length   int    // tokens of its context with the answer, once it has one
	counted  int    // tokens of it that stand in the totals and were not set right yet; 0 when none do
	beat     uint64 // the heartbeat that named it last, see compare
	occupies bool   // it stands in decoding and contexts of exec
	own      int    // tokens of its prompt that the executor where it decodes computes itself
}

type state uint8

const (
	stateWaiting state = iota
	statePlaced
	stateFailing
)

const blockTokens = 64

// executor is what the router knows of one executor.
type executor struct {
	id        string
	boot      string
	gone      string // the life that ended last: its heartbeats may still be under way
	in        *pool  // its model; turns of others do not go there
	role      schemas.Role
	classes   []schemas.SizeClass // that its assignment allows; none means all
	epoch     uint64
	slots     int
	context   int
	size      int                 // accelerators
	tier      int                 // blocks that its memory holds; 0 while unknown
	rate      float64             // tokens per second and sequence of its decodes, measured
	absorb    schemas.SizeClass   // that it may compute itself when it decodes
	absorbing bool                // counted in its pool
	kv        int                 // tokens that its engine can hold; 0 while unknown
	tps       float64             // prefill tokens per second, measured
	bring     float64             // tokens per second that come in from elsewhere, measured
	at        *tierNode           // whose memory it uses; nil when nobody said
	kept      []schemas.Extent    // sequences that stay in its engine between turns
	marks     map[string]keptMark // the same by key
	round     uint32              // counts changes of kept
	lastHB    schemas.Time
	alive     bool
	closed    bool // it sent a job back: nothing is placed here before its next heartbeat

	prefills map[string]*turn // placed for prefill
	decodes  map[string]*turn // placed for decode, or a slot kept
	tokens   int              // uncached tokens in prefills
	decoding int              // turns in decodes that are there, and not in prefill elsewhere
	contexts int              // tokens of their prompts
	exports  int              // tokens of contexts that it prefilled and that wait for a decode slot
	wait     heap             // turns that wait for this executor
	pinned   int              // tokens to be computed of those
	own      int              // uncached tokens of turns that decode there and were not prefilled elsewhere
	owed     float64          // of them that were not computed yet at owedAt, as expected
	owedAt   schemas.Time
	idle     schemas.Time // it has had nothing to prefill since then, while others have a queue
	coming   int          // tokens of prompts for which a slot is kept
	alone    *turn        // a turn that has the executor to itself
	reserved *turn        // an alone turn that waits for it to become empty

	room, takes can    // as counted in the pool
	stamp       uint64 // of the view in which engine is valid
	engine      int    // leading blocks of the turn in view that stay in its engine
}

func (x *executor) empty() bool { return len(x.prefills) == 0 && len(x.decodes) == 0 }
