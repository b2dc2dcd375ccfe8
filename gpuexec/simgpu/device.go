package simgpu

import (
	"fmt"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/schemas/calib"
)

const blockTokens = gpuexec.BlockTokens

// Device does the operations of one executor. It belongs to one goroutine, in which
// Config.Later calls back too.
type Device struct {
	cfg   Config
	al    float64 // accepted tokens per decode step
	seqs  []*seq
	mem   memory
	load  []int // by rank: prompt blocks to be computed
	busy  bool  // an operation of the engine is under way
	run   *run  // the decode operation under way
	told  schemas.Time
	zeros []int32
	rows  []schemas.DecodeRow
	ranks [][]chunk
}

// seq is one sequence of the engine.
type seq struct {
	r      *schemas.Ready
	stage  schemas.Stage
	chain  string
	prefix string // shared prefix, and whether it is counted in memory
	pblock int
	holds  bool
	rank   int

	prompt int // whole blocks before the prompt's tail
	have   int // of them in the engine
	held   int // tokens of room taken
	// started: the prompt's tail is computed, and the answer has base tokens, to which
	// each step adds.
	started     bool
	base, steps int
	out         int // generated tokens
	target      int // true length of the answer
	delivered   int // generated tokens that are not sent again
}

// New makes a device with empty memory.
func New(cfg Config) *Device {
	cal := cfg.Cal
	return &Device{
		cfg: cfg, al: max(cal.Spec.AL, 1), seqs: make([]*seq, cfg.Slots), mem: newMemory(int(cal.Mem.KVTokens)),
		load: make([]int, max(cal.Layout.AttnDP, 1)), ranks: make([][]chunk, max(cal.Layout.AttnDP, 1)),
	}
}

// Start begins an operation. done is called through Config.Later when it ends, never
// from within Start. Drop and Interrupt act at once, and done is not called for them:
// no executor waits for it.
func (d *Device) Start(now schemas.Time, op *schemas.Op, done func(schemas.OpDone)) {
	switch {
	case op.Drop != nil:
		d.drop(op.Drop.Seq)
		return
	case op.Interrupt != nil:
		d.interrupt(now, op.Interrupt.Op)
		return
	case op.Bring != nil:
		d.bring(now, op, done)
		return
	case op.Delivered != nil, op.Tokens != nil:
		d.answer(now, op, done)
		return
	}
	if d.busy {
		d.end(now, now, schemas.OpDone{ID: op.ID, Err: "simgpu: an operation is under way", Code: schemas.CodeEngine}, done)
		return
	}
	d.busy = true
	out := schemas.OpDone{ID: op.ID}
	at := now
	var err error
	switch {
	case op.Open != nil:
		out.Open, err = d.open(op.Open)
	case op.Seal != nil:
		out.Seal, err = d.seal(now, op.Seal.Seq)
	case op.Verify != nil:
		out.Verify, at = d.verify(now, op.Verify)
	case op.Prefill != nil:
		out.Prefill, at, err = d.prefill(now, op.Prefill)
	case op.Decode != nil:
		if err = d.decode(now, op, done); err == nil {
			return
		}
	default:
		err = fmt.Errorf("simgpu: an operation that is not for a device: %+v", op)
	}
	if err != nil {
		out.Err, out.Code = err.Error(), codeOf(err)
	}
	d.end(now, at, out, func(o schemas.OpDone) {
		d.busy = false
		done(o)
	})
}

// end brings a completion back at a time.
func (d *Device) end(start, at schemas.Time, out schemas.OpDone, done func(schemas.OpDone)) {
	out.TookNS = int64(at - start)
	d.cfg.Later(at, func() { done(d.telling(at, out)) })
}

// tellEvery is how often a device says what it keeps: as often as heartbeats go out.
const tellEvery = schemas.Time(500_000_000)

// telling adds what the engine keeps to a completion, now and then.
func (d *Device) telling(now schemas.Time, out schemas.OpDone) schemas.OpDone {
	if d.cfg.Key != nil && d.mem.changed && now >= d.told+tellEvery {
		d.told, d.mem.changed = now, false
		out.Device = d.mem.device(d.cfg.Slots)
	}
	return out
}

// answer answers a question outside the engine.
func (d *Device) answer(now schemas.Time, op *schemas.Op, done func(schemas.OpDone)) {
	out := schemas.OpDone{ID: op.ID}
	if t := op.Tokens; t != nil {
		out.Tokens = &schemas.TokensReply{Header: schemas.H(), From: t.From, Tokens: d.tokens(t.To - t.From)}
	} else {
		out.Delivered = &schemas.DeliveredDone{}
		if d.cfg.Delivered != nil {
			*out.Delivered = d.cfg.Delivered(op.Delivered)
		}
	}
	d.end(now, now, out, done)
}

// tokens are n tokens whose values mean nothing.
func (d *Device) tokens(n int) []int32 {
	if n > len(d.zeros) {
		d.zeros = make([]int32, max(n, 2*len(d.zeros), 4096))
	}
	return d.zeros[:n:n]
}

func (d *Device) get(id int32) (*seq, error) {
	if id < 0 || int(id) >= len(d.seqs) || d.seqs[id] == nil {
		return nil, fmt.Errorf("simgpu: sequence %d is not open", id)
	}
	return d.seqs[id], nil
}

func (d *Device) chainOf(r *schemas.Ready) string {
	if d.cfg.Chain != nil {
		return d.cfg.Chain(r)
	}
	return r.Tenant + "/" + r.Session + "/" + r.Branch
}

func (d *Device) prefixOf(r *schemas.Ready) (string, int) {
	if d.cfg.Prefix == nil {
		return "", 0
	}
	return d.cfg.Prefix(r)
}

func promptBlocks(r *schemas.Ready) int { return (r.Prompt.N - 1) / blockTokens }

// usable is how many leading blocks of a context serve a turn: all, if they are its own,
// else as many as its prompt repeats.
func (c *context) usable(r *schemas.Ready) int {
	if c.job == r.Job {
		return c.blocks
	}
	return min(c.blocks, gpuexec.KnownBlocks(r))
}

// resident is how many leading blocks of a turn's context the engine has without a turn.
func (d *Device) resident(r *schemas.Ready, chain string) (blocks int, c *context) {
	if c = d.mem.contexts[chain]; c != nil {
		blocks = c.usable(r)
	}
	if name, n := d.prefixOf(r); n > blocks && d.mem.prefixes[name] > 0 {
		blocks = n
	}
	return blocks, c
}

// Holds is how many leading blocks of a turn's context the engine has, also in a
// sequence that is open for it.
func (d *Device) Holds(r *schemas.Ready) int {
	for _, s := range d.seqs {
		if s != nil && s.r.Job == r.Job {
			return s.blocks()
		}
	}
	n, _ := d.resident(r, d.chainOf(r))
	return n
}

// blocks are the whole blocks in the engine: the last token is not fed.
func (s *seq) blocks() int {
	if s.started {
		return (s.r.Prompt.N + s.out - 1) / blockTokens
	}
	return s.have
}

// open gives a turn a sequence on top of what the engine keeps of its context.
func (d *Device) open(op *schemas.OpenOp) (*schemas.OpenDone, error) {
	r := op.Ready
	if op.Seq < 0 || int(op.Seq) >= len(d.seqs) || d.seqs[op.Seq] != nil {
		return nil, fmt.Errorf("simgpu: sequence %d is not free", op.Seq)
	}
	if r.Prompt.N+1 > d.cfg.Context {
		return nil, fmt.Errorf("%w: the prompt has %d tokens, a sequence holds %d", gpuexec.ErrUnsupported, r.Prompt.N, d.cfg.Context)
	}
	s := &seq{r: r, stage: op.Stage, chain: d.chainOf(r), prompt: promptBlocks(r), target: min(max(1, d.cfg.Output(r)), r.MaxNew)}
	s.prefix, s.pblock = d.prefixOf(r)
	most, known := s.prompt, 0
	if op.Stage == schemas.StageDecode {
		if known = len(op.Delivered); known > 0 {
			most = (r.Prompt.N + known - 1) / blockTokens
		}
		if !op.Again {
			s.delivered = known
		}
	}
	have, c := d.resident(r, s.chain)
	if c != nil {
		d.mem.remove(c)
	}
	s.held = r.Prompt.N + known
	if !d.mem.take(s.held) {
		return nil, fmt.Errorf("%w: %d tokens for %s, %d of %d are taken", gpuexec.ErrNoRoom, s.held, r.Turn, d.mem.used, d.mem.room)
	}
	have = min(have, most)
	s.have = min(have, s.prompt)
	switch {
	case known > 0 && have == most && op.Stage == schemas.StageDecode:
		// It was handed over: what fills no block came too.
		s.started, s.base, s.out = true, known, known
	case have > s.prompt: // the tail and some delivered tokens are in place
		s.started, s.base = true, have*blockTokens-r.Prompt.N+1
		s.out = s.base
	}
	if missing := s.prompt - s.have; missing > 0 {
		for i := range d.load {
			if d.load[i] < d.load[s.rank] {
				s.rank = i
			}
		}
		d.load[s.rank] += missing
	}
	d.shares(s)
	d.seqs[op.Seq] = s
	return &schemas.OpenDone{
		Cached: min(have*blockTokens, r.Prompt.N), Missing: s.prompt - s.have, Started: s.started && s.out == s.delivered,
	}, nil
}

// shares notes that a sequence holds its shared prefix.
func (d *Device) shares(s *seq) {
	if !s.holds && s.pblock > 0 && s.have >= s.pblock {
		s.holds = true
		d.mem.hold(s.prefix)
	}
}

// drop frees a sequence; its whole blocks stay until the room is needed.
func (d *Device) drop(id int32) {
	s, err := d.get(id)
	if err != nil {
		return // what is kept there belongs to nobody
	}
	d.seqs[id] = nil
	d.load[s.rank] -= s.prompt - s.have
	d.mem.give(s.held)
	c := &context{chain: s.chain, job: s.r.Job, blocks: s.blocks()}
	if s.holds {
		c.prefix = s.prefix
	}
	if d.cfg.Key != nil && c.blocks > 0 {
		c.named = c.blocks
		if s.out == 0 {
			// The prompt of the session's next turn is named at stops and where its answer
			// ended, not where the prompt that was computed here did.
			c.named = lastStop(c.blocks)
		}
		c.key = d.cfg.Key(s.r, c.named)
	}
	d.mem.keep(c)
}

// lastStop is the last stop of the first n blocks of a chain.
func lastStop(n int) (stop int) {
	for next := schemas.NextStop(0); next <= n; next = schemas.NextStop(next) {
		stop = next
	}
	return stop
}

// seal hands what the engine holds of a turn to the host's memory. The copies go out of
// the engine beside its work, and nothing waits for them.
func (d *Device) seal(now schemas.Time, id int32) (*schemas.SealDone, error) {
	s, err := d.get(id)
	if err != nil {
		return nil, err
	}
	n := s.blocks()
	before, _ := d.cfg.Memory.Have(s.r)
	skipped := d.cfg.Memory.Seal(now, s.r, n)
	return &schemas.SealDone{Sealed: max(0, n-skipped-before), Skipped: skipped, Blocks: n - skipped}, nil
}

// verify compares, and takes the time of the change of role.
func (d *Device) verify(now schemas.Time, op *schemas.VerifyOp) (*schemas.VerifyDone, schemas.Time) {
	at := now + schemas.Time(flipMS(d.cfg.Cal, op)*1e6)
	open := make([]bool, len(d.seqs))
	for _, id := range op.Open {
		open[id] = true
	}
	for i, s := range d.seqs {
		if open[i] != (s != nil) {
			return &schemas.VerifyDone{Problem: fmt.Sprintf("sequence %d: open is %v, want %v", i, s != nil, open[i])}, at
		}
	}
	return &schemas.VerifyDone{}, at
}

// flipMS is what preparing the engine for a phase that it did not do before costs.
func flipMS(cal *calib.Calibration, op *schemas.VerifyOp) float64 {
	switch f := cal.Flip; {
	case op.From == schemas.RolePrefill && op.To.Takes(schemas.StageDecode):
		return f.P2DMS
	case op.From == schemas.RoleDecode && op.To.Takes(schemas.StagePrefill):
		return f.D2PMS
	}
	return 0
}

// bring fetches what the engine lacks of a turn's context: from the engine that had the
// turn before, or from the host's memory. The engine works on meanwhile. Room is taken
// when the transfer begins.
func (d *Device) bring(now schemas.Time, op *schemas.Op, done func(schemas.OpDone)) {
	r := op.Bring.Ready
	out := schemas.OpDone{ID: op.ID, Bring: &schemas.BringDone{}}
	chain := d.chainOf(r)
	own, c := d.resident(r, chain)
	link, most := LinkLocal, 0
	n, far := d.cfg.Memory.Have(r)
	if most = n; far {
		link = LinkFar
	}
	if op.Bring.From != "" {
		if n := d.cfg.Memory.Handed(r, op.Bring.From); n >= most && n > 0 {
			link, most = LinkHand, n
		}
	}
	if c != nil {
		d.mem.use(c)
	}
	if most <= own {
		d.end(now, now, out, done)
		return
	}
	if c != nil { // it moves into what is being put together
		d.mem.remove(c)
	}
	most = min(most, max(own, d.mem.free()/blockTokens))
	if most <= own || !d.mem.take(most*blockTokens) {
		if c != nil {
			d.mem.hold(c.prefix)
			d.mem.keep(c)
		}
		d.end(now, now, out, done)
		return
	}
	if link != LinkHand {
		d.cfg.Memory.Use(now, r)
	}
	out.Bring.Brought = most - own
	bytes := int64(most-own) * blockTokens * d.cfg.Cal.Mem.KVBytesTok
	arrived := func(at schemas.Time) {
		d.mem.give(most * blockTokens)
		k := &context{chain: chain, job: r.Job, blocks: most}
		if name, n := d.prefixOf(r); n > 0 && most >= n {
			k.prefix = name
			d.mem.hold(name)
		}
		if d.cfg.Key != nil {
			k.key, k.named = d.cfg.Key(r, most), most
		}
		d.mem.keep(k)
		out.TookNS = int64(at - now)
		done(d.telling(at, out))
	}
	if err := d.cfg.Links.Send(now, link, bytes, arrived); err != nil {
		d.mem.give(most * blockTokens)
		out.Bring.Brought, out.Err = 0, err.Error()
		d.end(now, now, out, done)
	}
}
