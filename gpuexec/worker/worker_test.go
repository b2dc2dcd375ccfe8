package worker_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/gpuexec/nullengine"
	"github.com/weir-dev/weir/gpuexec/worker"
	"github.com/weir-dev/weir/schemas"
)

const endToken = 258 // <|im_end|> of the fake engine's alphabet

// scripted is the fake engine with an end token at one position.
type scripted struct {
	*nullengine.Engine
	rows  []gpuexec.Row
	endAt int32 // position whose next token is the end
}

func (s *scripted) Step(p gpuexec.Phase, rows []gpuexec.Row) error {
	s.rows = append(s.rows[:0], rows...)
	return s.Engine.Step(p, rows)
}

func (s *scripted) Logits(i int) []float32 {
	l := s.Engine.Logits(i)
	if s.rows[i].Pos >= s.endAt {
		clear(l)
		l[endToken] = 1
	}
	return l
}

func endRig(t *testing.T, endAt int32, tier *memTier) *rig {
	e, err := nullengine.New(nullengine.Options{Slots: 4, Context: 1024})
	if err != nil {
		t.Fatal(err)
	}
	return rigOf(t, &scripted{Engine: e, endAt: endAt}, nullengine.Vocab{}, tier)
}

// TestImport: what the tier holds of a prompt is imported up to the first gap;
// decode leaves the last 1 to 64 tokens of the prompt to itself.
func TestImport(t *testing.T) {
	for _, c := range []struct{ n, have, cached, missing int }{
		{1, 0, 0, 0}, {64, 0, 0, 0}, {65, 0, 0, 1}, {65, 1, 64, 0}, {300, 0, 0, 4}, {300, 2, 128, 2}, {300, 4, 256, 0}, {320, 4, 256, 0}, {321, 5, 320, 0},
	} {
		t.Run(fmt.Sprintf("%d tokens, %d blocks", c.n, c.have), func(t *testing.T) {
			first := newRig(t, 0, newTier())
			first.open(&schemas.OpenOp{Ready: turn(c.n, 1), Stage: schemas.StagePrefill})
			if c.have > 0 {
				first.prefill(0, c.have)
			}
			if d := first.seal(0); d.Sealed != c.have || d.Skipped != 0 || d.Blocks != c.have {
				t.Fatalf("sealed %+v", d)
			}
			second := newRig(t, 0, first.tier)
			if o := second.open(&schemas.OpenOp{Ready: turn(c.n, 1)}); o.Cached != c.cached || o.Missing != c.missing {
				t.Errorf("found %+v, want %d cached, %d missing", o, c.cached, c.missing)
			}
		})
	}
}

// TestPrefillStops: an operation ends on a block boundary, after one block at
// least, by count and by time.
func TestPrefillStops(t *testing.T) {
	r := newRig(t, 0, newTier())
	r.open(&schemas.OpenOp{Ready: turn(500, 1), Stage: schemas.StagePrefill})
	if d := r.prefill(0, 2); d.Computed != 128 || d.Missing != 5 {
		t.Errorf("two blocks: %+v", d)
	}
	d := r.do(&schemas.Op{Prefill: &schemas.PrefillOp{Seqs: []int32{0}, MaxBlocks: 100, MaxNS: 1}})
	if d.Prefill.Rows[0].Computed != 64 || r.eng.Len(0) != 192 {
		t.Errorf("no time: %+v", d.Prefill)
	}
	if d := r.prefill(0, 100); d.Computed != 256 || d.Missing != 0 {
		t.Errorf("the rest: %+v", d)
	}
	if d := r.prefill(0, 100); d.Computed != 0 || d.Missing != 0 {
		t.Errorf("nothing is left: %+v", d)
	}
}

// TestHead: a job without the prompt's first tokens finds their blocks by walking
// back from the last key. A gap, or another engine's root, needs the tokens.
func TestHead(t *testing.T) {
	full := newRig(t, 0, newTier())
	want := full.run(turn(400, 8))
	full.seal(0)
	job := full.headless(turn(400, 8), 5)
	get := func(tier *memTier, head schemas.Tokens, change func(*schemas.Ready)) (*schemas.OpenDone, *rig) {
		r := newRig(t, 0, tier)
		j := *job
		if change != nil {
			change(&j)
		}
		return r.open(&schemas.OpenOp{Ready: &j, Head: head}), r
	}
	o, r := get(full.tier, nil, nil)
	if o.NeedHead || o.Cached != 384 || o.Missing != 0 {
		t.Fatalf("all blocks are there: %+v", o)
	}
	var got answer
	r.decode(0, &got, 4, 100)
	if !slices.Equal(got.tokens, want.tokens) {
		t.Errorf("tokens %v, want %v", got.tokens, want.tokens)
	}
	for i := range 5 {
		gap := full.tier.copyOf()
		for k, b := range gap.blocks {
			if b.Index == i {
				delete(gap.blocks, k)
			}
		}
		if o, _ := get(gap, nil, nil); !o.NeedHead {
			t.Errorf("block %d is gone: %+v", i, o)
		}
		o, r := get(gap, turn(400, 8).Prompt.Tail[:320], nil)
		if o.NeedHead || o.Cached != i*64 || o.Missing != 6-i {
			t.Fatalf("block %d is gone, the head is known: %+v", i, o)
		}
		r.prefill(0, 100)
		got = answer{}
		r.decode(0, &got, 4, 100)
		if !slices.Equal(got.tokens, want.tokens) {
			t.Errorf("block %d is gone: tokens %v, want %v", i, got.tokens, want.tokens)
		}
	}
	for name, change := range map[string]func(*schemas.Ready){
		"another tenant's blocks":    func(j *schemas.Ready) { j.Keys.Salt = "other" }, // invariant 5
		"a path that ends early":     func(j *schemas.Ready) { j.Prompt.Path = []schemas.Extent{{Key: j.Prompt.Path[0].Key, N: 4}} },
		"a key that is none":         func(j *schemas.Ready) { j.Prompt.Path = []schemas.Extent{{Key: strings.Repeat("z", 64), N: 5}} },
		"no path":                    func(j *schemas.Ready) { j.Prompt.Path = nil },
		"a penalty on prompt tokens": func(j *schemas.Ready) { j.Sampling.RepetitionPenalty = 1.1 },
	} {
		if o, _ := get(full.tier, nil, change); !o.NeedHead {
			t.Errorf("%s: %+v", name, o)
		}
	}
	if d := newRig(t, 0, newTier()).do(&schemas.Op{Open: &schemas.OpenOp{Ready: job, Head: make(schemas.Tokens, 10)}}); d.Err == "" {
		t.Error("a head that is too short was taken")
	}
}

// TestChangingBlock: a block that is evicted while it is copied is noticed after
// the copy, whatever the engine makes of the bytes.
func TestChangingBlock(t *testing.T) {
	for _, garbage := range []bool{false, true} {
		for victim := range 4 {
			first := newRig(t, 0, newTier())
			want := first.run(turn(300, 8))
			first.seal(0)
			r := newRig(t, 0, first.tier)
			r.tier.onData = func(ref worker.Ref) {
				b := r.tier.blocks[ref.Key]
				if b.Index == victim && b.gen == 0 {
					b.gen++
					if garbage {
						for i := range b.data {
							b.data[i] = 0xff
						}
					}
				}
			}
			o := r.open(&schemas.OpenOp{Ready: turn(300, 8)})
			if o.Cached != victim*64 || o.Missing != 4-victim || r.eng.Len(0) != o.Cached {
				t.Fatalf("block %d changed, garbage %v: %+v, %d in the engine", victim, garbage, o, r.eng.Len(0))
			}
			r.prefill(0, 100)
			var got answer
			r.decode(0, &got, 4, 100)
			if !slices.Equal(got.tokens, want.tokens) {
				t.Errorf("block %d changed: other tokens", victim)
			}
		}
	}
	// Bytes that no engine wrote are a miss, not a failure.
	first := newRig(t, 0, newTier())
	want := first.run(turn(300, 8))
	first.seal(0)
	for _, b := range first.tier.blocks {
		if b.Index == 2 {
			for i := range b.data {
				b.data[i] = 0xff
			}
		}
	}
	r := newRig(t, 0, first.tier)
	if got := r.run(turn(300, 8)); !slices.Equal(got.tokens, want.tokens) {
		t.Error("a corrupt block changed the answer")
	}
}

// TestEnds: every way in which a generation ends, and what is said about it.
func TestEnds(t *testing.T) {
	plain := newRig(t, 0, newTier()).run(turn(10, 40))
	for _, c := range []struct {
		name   string
		change func(*schemas.Ready)
		endAt  int32
		want   answer
	}{
		{"limit", func(*schemas.Ready) {}, 1 << 20, answer{tokens: plain.tokens, text: plain.text, finish: "length"}},
		{"end token", func(*schemas.Ready) {}, 14, answer{
			tokens: append(slices.Clone(plain.tokens[:5]), endToken), text: plain.text[:5], finish: "stop", end: "<|im_end|>",
		}},
		{"end token ignored", func(r *schemas.Ready) { r.IgnoreEOS, r.MaxNew = true, 8 }, 14, answer{
			tokens: append(slices.Clone(plain.tokens[:5]), endToken, endToken, endToken), text: plain.text[:5], finish: "length",
		}},
		{"stop string", func(r *schemas.Ready) { r.Stop = []string{plain.text[7:11]} }, 1 << 20, answer{
			tokens: plain.tokens[:strings.Index(plain.text, plain.text[7:11])+4], text: plain.text[:strings.Index(plain.text, plain.text[7:11])], finish: "stop",
		}},
		{"stop string that is not completed", func(r *schemas.Ready) { r.Stop = []string{plain.text[37:40] + "!"} }, 1 << 20, answer{
			tokens: plain.tokens, text: plain.text, finish: "length",
		}},
		{"replay", func(r *schemas.Ready) { r.Force, r.MaxNew = schemas.Tokens{'h', 'i', endToken, '!'}, 4 }, 1 << 20, answer{
			tokens: []int32{'h', 'i', endToken, '!'}, text: "hi!", finish: "length",
		}},
		{"replay that ends before the limit", func(r *schemas.Ready) { r.Force = schemas.Tokens{'h', 'i'} }, 1 << 20, answer{
			tokens: []int32{'h', 'i'}, text: "hi", finish: "stop",
		}},
		{"half a character at the end", func(r *schemas.Ready) { r.Force, r.MaxNew = schemas.Tokens{'h', 0xc3}, 2 }, 1 << 20, answer{
			tokens: []int32{'h', 0xc3}, text: "h\ufffd", finish: "length",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ready := turn(10, 40)
			c.change(ready)
			whole := endRig(t, c.endAt, newTier()).run(ready)
			if !slices.Equal(whole.tokens, c.want.tokens) || whole.text != c.want.text || whole.whole != c.want.text || whole.finish != c.want.finish || whole.end != c.want.end {
				t.Fatalf("got %+v\nwant %+v", whole, c.want)
			}
			// Cut anywhere, also behind the last token: the end is told again.
			for cut := range len(whole.tokens) + 1 {
				r := endRig(t, c.endAt, newTier())
				r.open(&schemas.OpenOp{Ready: ready, Attempt: 2, Delivered: whole.tokens[:cut]})
				var got answer
				for i := 0; got.finish == "" && i < 100; i++ {
					d := r.do(&schemas.Op{Decode: &schemas.DecodeOp{Seqs: []int32{0}, MaxSteps: 2, MaxNS: 1 << 40}})
					row := d.Decode.Rows[0]
					if len(row.Tokens) > 0 && row.First != cut+len(got.tokens) {
						t.Fatalf("cut %d: index %d again", cut, row.First)
					}
					got.tokens = append(got.tokens, row.Tokens...)
					got.finish, got.whole, got.end = row.Finish, row.Answer, row.End
				}
				if !slices.Equal(got.tokens, whole.tokens[cut:]) || got.finish != whole.finish || got.whole != whole.whole || got.end != whole.end {
					t.Fatalf("cut %d: got %+v\nwant %+v", cut, got, whole)
				}
			}
		})
	}
}

// TestContextEnd: generation ends where the sequence is full, and a prompt that
// leaves no room for one token is refused.
func TestContextEnd(t *testing.T) {
	r := newRig(t, 0, newTier())
	if a := r.run(turn(1000, 500)); len(a.tokens) != 24 || a.finish != "length" || r.eng.Len(0) != 1023 {
		t.Errorf("%d tokens, %s, %d in the engine", len(a.tokens), a.finish, r.eng.Len(0))
	}
	d := newRig(t, 0, newTier()).do(&schemas.Op{Open: &schemas.OpenOp{Ready: turn(1024, 1), Stage: schemas.StageDecode}})
	if d.Code != schemas.CodeInvalid || !strings.Contains(d.Err, "1024") {
		t.Errorf("a full context: %+v", d)
	}
}

// TestSealing: blocks of the prompt are prefill-origin, those that hold generated
// tokens decode-origin; a full tier leaves blocks out and harms nothing.
func TestSealing(t *testing.T) {
	r := newRig(t, 0, newTier())
	want := r.run(turn(100, 130))
	if d := r.seal(0); d.Sealed != 3 || d.Blocks != 3 {
		t.Fatalf("%+v", d)
	}
	for _, b := range r.tier.blocks {
		if b.Decoded != (b.Index >= 1) {
			t.Errorf("block %d: decode-origin is %v", b.Index, b.Decoded)
		}
	}
	if d := r.seal(0); d.Sealed != 0 || d.Blocks != 3 {
		t.Errorf("again: %+v", d)
	}
	full := newRig(t, 0, newTier())
	full.tier.room = 2
	if got := full.run(turn(100, 130)); !slices.Equal(got.tokens, want.tokens) {
		t.Error("other tokens")
	}
	if d := full.seal(0); d.Sealed != 2 || d.Skipped != 1 {
		t.Errorf("room for two: %+v", d)
	}
	if d := full.seal(0); d.Sealed != 0 || d.Skipped != 1 {
		t.Errorf("no room: %+v", d)
	}
	broken := newRig(t, 0, newTier())
	broken.tier.room, broken.tier.sealErr = 5, errString("no daemon")
	broken.run(turn(100, 130))
	if d := broken.seal(0); d.Sealed != 0 || d.Skipped != 3 || broken.tier.room != 5 {
		t.Errorf("a tier that refuses: %+v, room %d", d, broken.tier.room)
	}
	// Blocks after the prompt that prefill made are not the same bits: not imported
	// for a later attempt.
	for _, b := range r.tier.blocks {
		b.Decoded = false
	}
	second := newRig(t, 0, r.tier)
	if o := second.open(&schemas.OpenOp{Ready: turn(100, 130), Attempt: 2, Delivered: want.tokens}); o.Cached != 64 || second.eng.Len(0) != 64 {
		t.Errorf("prefill-origin blocks of generated tokens: %+v, %d in the engine", o, second.eng.Len(0))
	}
}

type errString string

func (e errString) Error() string { return string(e) }

// TestBatch: several sequences in one operation yield what each yields alone, and
// one that fails does not stop the others.
func TestBatch(t *testing.T) {
	var want []answer
	for i := range 4 {
		want = append(want, newRig(t, 0, newTier()).run(turn(10+30*i, 20)))
	}
	r := newRig(t, 0, newTier())
	for i := range 4 {
		if o := r.open(&schemas.OpenOp{Seq: int32(i), Ready: turn(10+30*i, 20)}); o.Missing > 0 && i < 3 {
			r.prefill(int32(i), 10)
		}
	}
	got := make([]answer, 4)
	seqs := []int32{0, 1, 2, 3}
	for range 40 {
		d := r.do(&schemas.Op{Decode: &schemas.DecodeOp{Seqs: seqs, MaxSteps: 3, MaxNS: 1 << 40}})
		for i, q := range seqs {
			row := &d.Decode.Rows[i]
			if q == 3 {
				if row.Err == "" || row.Code != schemas.CodeEngine {
					t.Fatalf("decode before the prompt is complete: %+v", row)
				}
				continue
			}
			got[q].take(t, row)
		}
		seqs = slices.DeleteFunc(seqs, func(q int32) bool { return q == 3 || got[q].finish != "" })
		if len(seqs) == 0 {
			break
		}
	}
	for i := range 3 {
		if !slices.Equal(got[i].tokens, want[i].tokens) || got[i].text != want[i].text {
			t.Errorf("sequence %d: %q, want %q", i, got[i].text, want[i].text)
		}
	}
}

// TestLogprobs: one object for each token of the answer, those included that an
// earlier attempt delivered, because the result lists all.
func TestLogprobs(t *testing.T) {
	ready := turn(10, 12)
	ready.Sampling.Logprobs = 3
	whole := newRig(t, 0, newTier()).run(ready)
	if whole.logprobs != 12 {
		t.Errorf("%d logprobs for 12 tokens", whole.logprobs)
	}
	r := newRig(t, 0, newTier())
	r.open(&schemas.OpenOp{Ready: ready, Delivered: whole.tokens[:5]})
	got := answer{tokens: whole.tokens[:5:5], text: whole.text[:5]}
	r.decode(0, &got, 4, 100)
	if got.logprobs != 12 {
		t.Errorf("%d logprobs for 5 delivered and 7 new tokens", got.logprobs)
	}
}

// TestAgain: an attempt may be forced along delivered tokens and yet send all of
// them, with the same text.
func TestAgain(t *testing.T) {
	ready := turn(10, 100)
	whole := newRig(t, 0, newTier()).run(ready)
	r := newRig(t, 0, newTier())
	r.open(&schemas.OpenOp{Ready: ready, Delivered: whole.tokens[:80], Again: true})
	var got answer
	r.decode(0, &got, 4, 200)
	if !slices.Equal(got.tokens, whole.tokens) || got.text != whole.text {
		t.Errorf("%d tokens %q, want %d %q", len(got.tokens), got.text, len(whole.tokens), whole.text)
	}
}

// TestVerify: sequences that are open without being expected, or expected without
// being open, are named.
func TestVerify(t *testing.T) {
	r := newRig(t, 0, newTier())
	verify := func(open ...int32) string {
		return r.do(&schemas.Op{Verify: &schemas.VerifyOp{Open: open}}).Verify.Problem
	}
	if p := verify(); p != "" {
		t.Errorf("an empty engine: %s", p)
	}
	r.open(&schemas.OpenOp{Ready: turn(100, 4)})
	if p := verify(0); p != "" {
		t.Errorf("one open sequence: %s", p)
	}
	if verify() == "" || verify(0, 1) == "" {
		t.Error("a sequence too many or too few is not found")
	}
}

// TestGrammar: sampling follows the grammar, and it is freed on every way out.
func TestGrammar(t *testing.T) {
	e, err := nullengine.New(nullengine.Options{Slots: 2, Context: 1024})
	if err != nil {
		t.Fatal(err)
	}
	open := 0
	r := rigOf(t, constrained{e, &open}, nullengine.Vocab{}, newTier())
	ready := turn(10, 4)
	ready.Sampling.Grammar = "root ::= [x]*"
	if a := r.run(ready); a.text != "xxxx" {
		t.Errorf("text %q", a.text)
	}
	r.drop(0)
	if open != 0 {
		t.Errorf("%d grammars are left after a drop", open)
	}
	long := turn(400, 4)
	long.Sampling.Grammar = ready.Sampling.Grammar
	r.open(&schemas.OpenOp{Ready: long})
	r.prefill(0, 10)
	r.seal(0)
	r.drop(0)
	// The blocks are named, and gone when they are leased.
	if e, err = nullengine.New(nullengine.Options{Slots: 2, Context: 1024}); err != nil {
		t.Fatal(err)
	}
	r = rigOf(t, constrained{e, &open}, nullengine.Vocab{}, r.tier)
	job := r.headless(long, 5)
	r.tier.onData = func(ref worker.Ref) { r.tier.blocks[ref.Key].gen++ }
	if o := r.open(&schemas.OpenOp{Ready: job}); !o.NeedHead || open != 0 {
		t.Errorf("%+v, %d grammars are left", o, open)
	}
}
