package exact

import (
	"bytes"
	"io"
	"slices"
	"testing"

	"github.com/weir-dev/weir/e2e/stack"
	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/model"
)

// tiny is a reference on the Go engine, which needs nothing installed.
func tiny(t *testing.T) *reference {
	t.Helper()
	path, err := stack.ModelFile("tiny")
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Open(model.Options{Engine: model.EngineGo, Path: path, Log: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	r, err := openReference(m, 512)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.close(); err != nil {
			t.Error(err)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// TestReference: the run that all others are compared with repeats itself, finds
// what a shorter turn left, and tells the origin of each block.
func TestReference(t *testing.T) {
	r := tiny(t)
	c := Case{Sampling: Seeded, Prompt: 200}
	prompt := c.prompt(r.model.Vocab.Size())
	cold, again, after := r.memory(), r.memory(), r.memory()
	one, err := r.turn(cold, prompt, nil, samplingOf(Seeded), maxNew)
	if err != nil {
		t.Fatal(err)
	}
	two, err := r.turn(again, prompt, nil, samplingOf(Seeded), maxNew)
	if err != nil {
		t.Fatal(err)
	}
	if len(one.tokens) != maxNew || !slices.Equal(one.tokens, two.tokens) || one.cached != 0 {
		t.Errorf("tokens %v, then %v; cached %d", one.tokens, two.tokens, one.cached)
	}
	if len(one.keys) != (200+maxNew-1)/64 || len(cold.blocks) != len(one.keys) {
		t.Errorf("%d keys, %d blocks", len(one.keys), len(cold.blocks))
	}
	for i, k := range one.keys {
		if b := cold.blocks[k]; b.Index != i || b.Decoded != (i >= 3) || !bytes.Equal(b.data, again.blocks[k].data) {
			t.Errorf("block %d is %d, decoded %v, or differs from the second run's", i, b.Index, b.Decoded)
		}
	}
	head, force := shorter(prompt)
	left, err := r.turn(after, head, force, samplingOf(Seeded), maxNew)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(left.tokens, force) || !after.blocks[left.keys[len(left.keys)-1]].Decoded {
		t.Errorf("forced %v, got %v; the last block must hold generated tokens", force, left.tokens)
	}
	three, err := r.turn(after, prompt, nil, samplingOf(Seeded), maxNew)
	if err != nil {
		t.Fatal(err)
	}
	if three.cached != 192 {
		t.Errorf("%d tokens were found, want 192", three.cached)
	}
	other, err := r.turn(r.memory(), prompt, nil, samplingOf(Greedy), maxNew)
	if err != nil {
		t.Fatal(err)
	}
	if slices.Equal(other.tokens, one.tokens) {
		t.Error("sampled and greedy tokens are the same: the seed has no effect")
	}
}

// TestCompareFindsFaults: whatever differs is counted.
func TestCompareFindsFaults(t *testing.T) {
	r := tiny(t)
	c := Case{Sampling: Greedy, Prompt: 130, Condition: Cold}
	mem := r.memory()
	want, err := r.turn(mem, c.prompt(r.model.Vocab.Size()), nil, samplingOf(Greedy), maxNew)
	if err != nil {
		t.Fatal(err)
	}
	read := func(k kvtier.Key) ([]byte, kvtier.Block, bool) {
		b, ok := mem.blocks[k]
		origin := kvtier.OriginPrefill
		if b.Decoded {
			origin = kvtier.OriginDecode
		}
		return b.data, kvtier.Block{Key: k, Parent: b.Parent, Index: b.Index, Origin: origin}, ok
	}
	last := want.keys[len(want.keys)-1]
	tests := map[string]struct {
		result func(*schemas.Result)
		read   func(k kvtier.Key, data []byte, b kvtier.Block) ([]byte, kvtier.Block, bool)
		same   bool
		kv     bool
	}{
		"equal":        {nil, nil, true, true},
		"token":        {func(r *schemas.Result) { r.Tokens[9]++ }, nil, false, true},
		"fewer tokens": {func(r *schemas.Result) { r.Tokens = r.Tokens[:20] }, nil, false, true},
		"other hits":   {func(r *schemas.Result) { r.Usage.Cached = 64 }, nil, false, true},
		"one process":  {func(r *schemas.Result) { r.PrefillOn = r.DecodeOn }, nil, false, false},
		"bit": {nil, func(k kvtier.Key, d []byte, b kvtier.Block) ([]byte, kvtier.Block, bool) {
			d[len(d)/2] ^= 1
			return d, b, true
		}, true, false},
		"missing": {nil, func(k kvtier.Key, d []byte, b kvtier.Block) ([]byte, kvtier.Block, bool) { return d, b, k != last }, true, false},
		"origin": {nil, func(k kvtier.Key, d []byte, b kvtier.Block) ([]byte, kvtier.Block, bool) {
			b.Origin = kvtier.OriginPrefill
			return d, b, true
		}, true, false},
		"index of block": {nil, func(k kvtier.Key, d []byte, b kvtier.Block) ([]byte, kvtier.Block, bool) {
			b.Index++
			return d, b, true
		}, true, false},
	}
	for name, tt := range tests {
		res := &schemas.Result{Tokens: slices.Clone(want.tokens), PrefillOn: "p0", DecodeOn: "d0", Attempt: 1}
		if tt.result != nil {
			tt.result(res)
		}
		o := compare(c, res, &want, mem, func(k kvtier.Key) ([]byte, kvtier.Block, bool) {
			data, b, ok := read(k)
			if tt.read != nil {
				return tt.read(k, bytes.Clone(data), b)
			}
			return data, b, ok
		})
		if o.Same() != tt.same || o.KVEqual() != tt.kv {
			t.Errorf("%s: same %v, KV equal %v; %+v", name, o.Same(), o.KVEqual(), o)
		}
	}
}
