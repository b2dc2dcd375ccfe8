package schemas_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/weir-dev/weir/schemas"
)

// compareTokens holds Tokens to the reflecting codec on the same bytes: same
// verdict, same values. The one wanted difference is a null among the numbers,
// which encoding/json reads as token 0 and Tokens refuses.
func compareTokens(t *testing.T, b []byte) {
	t.Helper()
	var want []int32
	wantErr := json.Unmarshal(b, &want)
	var got schemas.Tokens
	gotErr := json.Unmarshal(b, &got)
	if wantErr == nil && gotErr != nil && bytes.Contains(b, []byte("null")) {
		return
	}
	if (gotErr == nil) != (wantErr == nil) {
		t.Fatalf("%.80q: Tokens says %v, encoding/json says %v", b, gotErr, wantErr)
	}
	if wantErr != nil {
		return
	}
	if !slices.Equal(got, want) || (got == nil) != (want == nil) {
		t.Fatalf("%.80q: Tokens reads %v, encoding/json %v", b, got, want)
	}
	out, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if want == nil {
		want = []int32{} // a nil list is written as [], not as null
	}
	if ref, err := json.Marshal(want); err != nil || !bytes.Equal(out, ref) {
		t.Fatalf("%.80q: Tokens writes %s, encoding/json %s (%v)", b, out, ref, err)
	}
}

var tokenInputs = []string{
	`[]`, `[ ]`, `null`, `[0]`, `[-0]`, `[1,2,3]`, "\t[\n1 ,\r2 ]", `[2147483647,-2147483648]`, `[2147483648]`, `[-2147483649]`,
	`[1,]`, `[,1]`, `[1 2]`, `[1.0]`, `[1e2]`, `[01]`, `["1"]`, `[[1]]`, `[null]`, `[1,null]`, `{}`, `7`, `"x"`, `[`, `]`, ``, `[-]`, `[--1]`, `[true]`,
	`[99999999999999999999999999]`,
}

func TestTokensLikeEncodingJSON(t *testing.T) {
	for _, in := range tokenInputs {
		compareTokens(t, []byte(in))
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		list := make([]int32, r.IntN(300))
		for i := range list {
			list[i] = int32(r.Uint32()) >> r.IntN(32)
		}
		b, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		compareTokens(t, b)
	}
}

// TestTokensDirectly calls the method without the scanner of encoding/json in
// front of it, as other JSON libraries may: it must neither panic nor accept.
func TestTokensDirectly(t *testing.T) {
	for _, in := range []string{`[1,]`, `[,1]`, `[1 2]`, `[-]`, `[`, `]`, ``, `1]`, `[1`, `["1"]`, `[null]`} {
		var got schemas.Tokens
		if err := got.UnmarshalJSON([]byte(in)); !errors.Is(err, schemas.ErrMessage) {
			t.Errorf("%q: %v, want ErrMessage", in, err)
		}
	}
}

func TestTokensBound(t *testing.T) {
	b := []byte("[" + strings.Repeat("0,", schemas.MaxTokens) + "0]")
	var got schemas.Tokens
	if err := got.UnmarshalJSON(b); !errors.Is(err, schemas.ErrTooLarge) {
		t.Errorf("%d tokens: %v, want ErrTooLarge", schemas.MaxTokens+1, err)
	}
}

func FuzzTokens(f *testing.F) {
	for _, in := range tokenInputs {
		f.Add([]byte(in))
	}
	f.Fuzz(func(t *testing.T, b []byte) { compareTokens(t, b) })
}

// tokensOf returns n ids as large as those of real vocabularies.
func tokensOf(n int) schemas.Tokens {
	r := rand.New(rand.NewPCG(3, 4))
	out := make(schemas.Tokens, n)
	for i := range out {
		out[i] = r.Int32N(math.MaxUint16)
	}
	return out
}

// The benchmarks go through encoding/json, as messages do, and stand beside the
// reflecting codec on the same list.

func BenchmarkTokensEncode(b *testing.B) { benchEncode(b, tokensOf(4096)) }

func BenchmarkReflectedEncode(b *testing.B) { benchEncode(b, []int32(tokensOf(4096))) }

func benchEncode(b *testing.B, list any) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := json.Marshal(list); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTokensDecode(b *testing.B) { benchDecode[schemas.Tokens](b) }

func BenchmarkReflectedDecode(b *testing.B) { benchDecode[[]int32](b) }

func benchDecode[T any](b *testing.B) {
	body, err := json.Marshal(tokensOf(4096))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		var got T
		if err := json.Unmarshal(body, &got); err != nil {
			b.Fatal(err)
		}
	}
}
