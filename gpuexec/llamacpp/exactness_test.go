package llamacpp_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/gpuexec/llamacpp"
)

// TestExactness: computing, importing and recomputing give equal bytes, whatever
// else is resident. kv_unified = false and fixed prefill steps make it so.
func TestExactness(t *testing.T) {
	t.Run("tiny", func(t *testing.T) { testExactness(t, preset(t, "tiny"), 64, 65, 300) })
	t.Run("stories", func(t *testing.T) { testExactness(t, stories(t), 200) })
}

func testExactness(t *testing.T, path string, lengths ...int) {
	e := openEngine(t, path, llamacpp.Options{Slots: 6, Context: 512})
	for _, n := range lengths {
		tokens := prompt(n, n)
		logits := prefill(t, e, 0, tokens, 0)
		want := blocks(t, e, 0)
		wantTokens := greedy(t, e, 0, logits, 8)
		e.Drop(0)
		check := func(what string, seq gpuexec.SeqID, from int) {
			t.Helper()
			logits := prefill(t, e, seq, tokens, from)
			if got := blocks(t, e, seq); !slices.EqualFunc(got, want, bytes.Equal) {
				t.Errorf("%d tokens, %s: KV bytes differ", n, what)
			}
			if got := greedy(t, e, seq, logits, 8); !slices.Equal(got, wantTokens) {
				t.Errorf("%d tokens, %s: tokens %v, want %v", n, what, got, wantTokens)
			}
			e.Drop(seq)
		}
		check("again in the same slot", 0, 0)
		check("in another slot", 3, 0)
		// At least one token is left to compute: it yields the logits.
		hit := want[:(n-1)/gpuexec.BlockTokens]
		importTo := func(seq gpuexec.SeqID, b [][]byte) int {
			t.Helper()
			if err := e.Import(seq, b); err != nil {
				t.Fatal(err)
			}
			return len(b) * gpuexec.BlockTokens
		}
		check("imported but for the tail", 1, importTo(1, hit))
		check("half imported", 2, importTo(2, hit[:len(hit)/2]))
		cutTo := func(seq gpuexec.SeqID, keep int) int {
			t.Helper()
			// Longer than the prompt, and with other tokens behind the cut.
			longer := slices.Concat(tokens[:keep*gpuexec.BlockTokens], prompt(n-keep*gpuexec.BlockTokens, n+1))
			greedy(t, e, seq, prefill(t, e, seq, longer, 0), 70)
			if err := e.Cut(seq, keep*gpuexec.BlockTokens); err != nil {
				t.Fatal(err)
			}
			return e.Len(seq)
		}
		check("cut to all but the tail", 1, cutTo(1, len(hit)))
		check("cut to half", 2, cutTo(2, len(hit)/2))
		prefill(t, e, 4, prompt(200, 77), 0)
		prefill(t, e, 5, prompt(90, 78), 0)
		check("other sequences resident", 1, 0)
		check("imported, other sequences resident", 1, importTo(1, hit))
		e.Drop(4)
		check("after a neighbour was dropped", 1, 0)
		e.Drop(5)
	}
}

// TestForcedDecode: generated tokens are rebuilt bit by bit when they are decoded
// one at a time again, after an import and with a block sealed from decode rows.
func TestForcedDecode(t *testing.T) {
	e := openEngine(t, preset(t, "tiny"), llamacpp.Options{Slots: 3, Context: 512})
	tokens := prompt(150, 3)
	generated := greedy(t, e, 0, prefill(t, e, 0, tokens, 0), 139)
	want := blocks(t, e, 0)
	wantNext := decode(t, e, 0, 7)

	// Everything again: prompt by prefill, generated tokens forced.
	prefill(t, e, 1, tokens, 0)
	decode(t, e, 1, generated...)
	if got := blocks(t, e, 1); !slices.EqualFunc(got, want, bytes.Equal) {
		t.Error("forced decode gives other KV bytes")
	}
	e.Drop(1)
	// Blocks imported, among them decode-origin ones, the rest forced.
	if err := e.Import(1, want[:3]); err != nil {
		t.Fatal(err)
	}
	decode(t, e, 1, generated[192-150:]...)
	if got := blocks(t, e, 1); !slices.EqualFunc(got, want, bytes.Equal) {
		t.Error("imported blocks and forced decode give other KV bytes")
	}
	if got := decode(t, e, 1, 7); !slices.Equal(got, wantNext) {
		t.Error("logits after the rebuild differ")
	}
}

// TestLayouts: every layout of a state survives the hand-over, and blocks of one
// layout never reach an engine with another one of another size.
func TestLayouts(t *testing.T) {
	path := preset(t, "tiny")
	numerics := map[string]bool{}
	for name, o := range map[string]llamacpp.Options{
		"flash":        {FlashAttention: llamacpp.FlashOn},
		"transposed V": {FlashAttention: llamacpp.FlashOff},
		"f32":          {KVType: "f32"},
		"q8_0":         {KVType: "q8_0"},
		"one slot":     {Slots: 1, FlashAttention: llamacpp.FlashOff, KVType: "f32"},
	} {
		if o.Slots == 0 {
			o.Slots = 3
		}
		if o.Context == 0 {
			o.Context = 512
		}
		a, b := openEngine(t, path, o), openEngine(t, path, o)
		tokens := prompt(250, 9)
		last := gpuexec.SeqID(o.Slots - 1)
		want := prefill(t, a, last, tokens, 0)
		whole := blocks(t, a, last)
		if err := b.Import(0, whole); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := blocks(t, b, 0); !slices.EqualFunc(got, whole, bytes.Equal) {
			t.Errorf("%s: export, import, export gives other bytes", name)
		}
		if got := prefill(t, b, 0, tokens, 192); !slices.Equal(got, want) {
			t.Errorf("%s: logits after the import differ: %v, want %v", name, got[:4], want[:4])
		}
		part := [][]byte{make([]byte, a.Limits().BlockBytes)}
		if err := a.Export(last, 2, part); err != nil || !bytes.Equal(part[0], whole[2]) {
			t.Errorf("%s: block 2 alone differs from block 2 of all (%v)", name, err)
		}
		numerics[a.Info().Numerics] = true
	}
	if len(numerics) != 5 {
		t.Errorf("five settings have %d different numerics strings: %v", len(numerics), numerics)
	}
}

func TestBatchInvariant(t *testing.T) {
	for name, path := range map[string]func(testing.TB) string{
		"tiny":    func(t testing.TB) string { return preset(t, "tiny") },
		"stories": stories,
	} {
		t.Run(name, func(t *testing.T) {
			e := openEngine(t, path(t), llamacpp.Options{Slots: 5, Context: 512})
			inv, err := llamacpp.BatchInvariant(e)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("exact %v, decode %v, prefill %v: %s", e.Info().Exact, inv.Decode, inv.Prefill, inv.Detail)
			if e.Info().Exact != inv.Decode {
				t.Errorf("the quick probe at open says %v, the measurement %v", e.Info().Exact, inv.Decode)
			}
			for s := range 5 {
				if e.Len(gpuexec.SeqID(s)) != 0 {
					t.Errorf("slot %d is not empty afterwards", s)
				}
			}
			decode(t, e, 0, 5)
			if _, err := llamacpp.BatchInvariant(e); err == nil {
				t.Error("measured on an engine in use")
			}
		})
	}
}
