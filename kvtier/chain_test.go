package kvtier

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func exampleSpec() Spec {
	return Spec{
		TenantSalt: "default", ModelDigest: "sha256:m", Adapter: "", Template: "chatml", Engine: "llama",
		EngineVersion: "0.4.0/2", Numerics: "kv=f16,vtrans=0,step=64", Tokenizer: "llama/spm", FormatVersion: 1,
	}
}

// The golden keys pin the byte format: a change of them makes every stored block
// unreachable and needs another domain string.
func TestGoldenKeys(t *testing.T) {
	root := exampleSpec().Root()
	first, err := Chain(root, 0, []int32{1, 2, 3, -4}, nil)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Chain(first, 1, []int32{7}, []Media{{Digest: "sha256:i", Offset: -3, Length: 9}})
	if err != nil {
		t.Fatal(err)
	}
	got := []string{root.String(), first.String(), second.String()}
	want := []string{
		"ad29f3f2fdb1e4c9cdbc2616fde2be845bdda70905eb65e3e06939855046f09a",
		"52fba467dc8da97d2a2b47fbd2f9d02229f70a86d854a9ef3978f97e3c9cf548",
		"53b9a868769e3425b945b3bcc127d105b915fab1f331324090e61bf627bbd29a",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// The format written out by hand, as the comments state it.
func TestKeysFollowTheDocumentedFormat(t *testing.T) {
	field := func(tag byte, v string) string { return string([]byte{tag, 0, 0, 0, byte(len(v))}) + v }
	s := exampleSpec()
	text := "weir kv root v1\x00" + field(1, s.TenantSalt) + field(2, s.ModelDigest) + field(3, s.Adapter) +
		field(4, s.Template) + field(5, s.Engine) + field(6, s.EngineVersion) + field(7, s.Numerics) +
		field(8, s.Tokenizer) + field(9, "\x00\x00\x00\x01")
	root := s.Root()
	if want := Key(sha256.Sum256([]byte(text))); root != want {
		t.Errorf("root %s, want %s", root, want)
	}
	text = "weir kv block v1\x00" + field(0x20, string(root[:])) + field(0x21, "\x00\x00\x00\x00\x00\x00\x01\x02") +
		field(0x22, "\x05\x00\x00\x00\xff\xff\xff\xff") +
		field(0x23, "\xff\xff\xff\xff\xff\xff\xff\xff"+"\x00\x00\x00\x00\x00\x00\x00\x02"+"d")
	got, err := Chain(root, 0x102, []int32{5, -1}, []Media{{Digest: "d", Offset: -1, Length: 2}})
	if want := Key(sha256.Sum256([]byte(text))); err != nil || got != want {
		t.Errorf("block %s, %v, want %s", got, err, want)
	}
}

func TestEveryFieldOfASpecChangesTheKey(t *testing.T) {
	base := exampleSpec()
	seen := map[Key]string{base.Root(): "none"}
	for i := range reflect.TypeFor[Spec]().NumField() {
		s := base
		f := reflect.ValueOf(&s).Elem().Field(i)
		if f.Kind() == reflect.String {
			f.SetString(f.String() + "x")
		} else {
			f.SetUint(f.Uint() + 1)
		}
		name := reflect.TypeFor[Spec]().Field(i).Name
		if old, ok := seen[s.Root()]; ok {
			t.Errorf("a change of %s gives the key of a change of %s", name, old)
		}
		seen[s.Root()] = name
	}
}

// Bytes that move from one field to its neighbour must change the key.
func TestSpecsAreUnambiguous(t *testing.T) {
	word := rapid.StringMatching(`[ab\x00\x01]{0,3}`)
	gen := rapid.Custom(func(t *rapid.T) Spec {
		return Spec{
			TenantSalt: word.Draw(t, "salt"), ModelDigest: word.Draw(t, "model"), Adapter: word.Draw(t, "adapter"),
			Template: word.Draw(t, "template"), Engine: word.Draw(t, "engine"), EngineVersion: word.Draw(t, "version"),
			Numerics: word.Draw(t, "numerics"), Tokenizer: word.Draw(t, "tokenizer"), FormatVersion: rapid.Uint32Range(0, 2).Draw(t, "format"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := gen.Draw(t, "a"), gen.Draw(t, "b")
		if (a == b) != (a.Root() == b.Root()) {
			t.Fatalf("%+v and %+v: equal %v, keys equal %v", a, b, a == b, a.Root() == b.Root())
		}
	})
}

type chainInput struct {
	Parent Key
	Index  int
	Tokens []int32
	Media  []Media
}

func TestChainsAreUnambiguous(t *testing.T) {
	gen := rapid.Custom(func(t *rapid.T) chainInput {
		in := chainInput{
			Parent: Key{rapid.Byte().Draw(t, "parent")}, Index: rapid.IntRange(0, 2).Draw(t, "index"),
			Tokens: rapid.SliceOfN(rapid.Int32Range(-1, 1), 0, 4).Draw(t, "tokens"),
		}
		for end := 0; end < len(in.Tokens) && rapid.Bool().Draw(t, "more"); {
			m := Media{
				Digest: rapid.StringMatching(`[ab]{1,2}`).Draw(t, "digest"),
				Offset: rapid.IntRange(end, len(in.Tokens)-1).Draw(t, "offset"), Length: rapid.IntRange(1, 3).Draw(t, "length"),
			}
			in.Media, end = append(in.Media, m), m.Offset+m.Length
		}
		return in
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := gen.Draw(t, "a"), gen.Draw(t, "b")
		ka, errA := Chain(a.Parent, a.Index, a.Tokens, a.Media)
		kb, errB := Chain(b.Parent, b.Index, b.Tokens, b.Media)
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		same := a.Parent == b.Parent && a.Index == b.Index && slices.Equal(a.Tokens, b.Tokens) && slices.Equal(a.Media, b.Media)
		if same != (ka == kb) {
			t.Fatalf("%+v and %+v: equal %v, keys equal %v", a, b, same, ka == kb)
		}
	})
}

func TestIncompleteMediaAreNotCacheable(t *testing.T) {
	tokens := make([]int32, 8)
	for _, tc := range []struct {
		name  string
		media []Media
	}{
		{"no digest", []Media{{Offset: 1, Length: 2}}},
		{"no length", []Media{{Digest: "a", Offset: 1}}},
		{"negative length", []Media{{Digest: "a", Offset: 1, Length: -1}}},
		{"overlap", []Media{{Digest: "a", Offset: 1, Length: 3}, {Digest: "b", Offset: 3, Length: 1}}},
		{"out of order", []Media{{Digest: "a", Offset: 5, Length: 1}, {Digest: "b", Offset: 1, Length: 1}}},
		{"absurd", []Media{{Digest: "a", Offset: 1 << 60, Length: 1 << 60}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := Chain(Key{}, 0, tokens, tc.media); !errors.Is(err, ErrNotCacheable) {
				t.Errorf("Chain: %v, want ErrNotCacheable", err)
			}
			if _, err := NewChainer(Key{}, 4, tc.media); !errors.Is(err, ErrNotCacheable) {
				t.Errorf("NewChainer: %v, want ErrNotCacheable", err)
			}
		})
	}
	if _, err := Chain(Key{}, 0, tokens, []Media{{Digest: "a", Offset: 8, Length: 1}}); !errors.Is(err, ErrNotCacheable) {
		t.Errorf("a medium behind the block: %v", err)
	}
	if _, err := Chain(Key{}, -1, tokens, nil); !errors.Is(err, ErrBadBlock) {
		t.Errorf("negative index: %v", err)
	}
	if _, err := NewChainer(Key{}, 0, nil); !errors.Is(err, ErrBadBlock) {
		t.Errorf("block of no tokens: %v", err)
	}
}

// However the tokens are cut, a Chainer gives the keys that Chain gives block by
// block, with each medium in every block that it touches.
func TestChainerEqualsChain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 5).Draw(t, "size")
		tokens := rapid.SliceOfN(rapid.Int32(), 0, 30).Draw(t, "tokens")
		var media []Media
		for end := 0; end < len(tokens) && rapid.Bool().Draw(t, "medium"); {
			m := Media{Digest: "d", Offset: rapid.IntRange(end, len(tokens)).Draw(t, "at"), Length: rapid.IntRange(1, 9).Draw(t, "len")}
			media, end = append(media, m), m.Offset+m.Length
		}
		c, err := NewChainer(Key{9}, size, media)
		if err != nil {
			t.Fatal(err)
		}
		var got []Key
		for rest := tokens; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			got, rest = c.Append(got, rest[:n]...), rest[n:]
		}
		parent := Key{9}
		var want []Key
		for i := 0; (i+1)*size <= len(tokens); i++ {
			var in []Media
			for _, m := range media {
				if m.Offset < (i+1)*size && m.Offset+m.Length > i*size {
					in = append(in, Media{Digest: m.Digest, Offset: m.Offset - i*size, Length: m.Length})
				}
			}
			if parent, err = Chain(parent, i, tokens[i*size:(i+1)*size], in); err != nil {
				t.Fatal(err)
			}
			want = append(want, parent)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatal(d)
		}
		if tail, index := c.Tail(); tail != parent || index != len(want) || c.Pending() != len(tokens)-len(want)*size {
			t.Fatalf("tail %s at %d with %d pending", tail.Short(), index, c.Pending())
		}
	})
}

func TestChainerResumes(t *testing.T) {
	tokens := []int32{1, 2, 3, 4, 5, 6, 7, 8, 9}
	whole, _ := NewChainer(Key{1}, 3, nil)
	want := whole.Append(nil, tokens...)
	part, _ := NewChainer(Key{1}, 3, nil)
	part.Append(nil, 1) // forgotten
	part.Resume(want[0], 0)
	if d := cmp.Diff(want[1:], part.Append(nil, tokens[3:]...)); d != "" {
		t.Error(d)
	}
}

func TestChainerDoesNotAllocate(t *testing.T) {
	c, _ := NewChainer(Key{1}, 64, nil)
	tokens, keys := make([]int32, 640), make([]Key, 0, 10)
	if n := testing.AllocsPerRun(20, func() { keys = c.Append(keys[:0], tokens...) }); n != 0 {
		t.Errorf("%v allocations for ten blocks", n)
	}
}

func TestKeyText(t *testing.T) {
	k := exampleSpec().Root()
	data, err := json.Marshal(map[string]Key{"k": k})
	if err != nil {
		t.Fatal(err)
	}
	var back map[string]Key
	if err := json.Unmarshal(data, &back); err != nil || back["k"] != k {
		t.Errorf("%s came back as %v, %v", data, back, err)
	}
	if got, err := ParseKey(strings.ToUpper(k.String())); err != nil || got != k {
		t.Errorf("upper case: %v, %v", got, err)
	}
	for _, bad := range []string{"", "00", k.String() + "0", strings.Repeat("g", 64)} {
		if got, err := ParseKey(bad); !errors.Is(err, ErrBadKey) || !got.IsZero() {
			t.Errorf("ParseKey(%q) = %v, %v, want ErrBadKey", bad, got, err)
		}
	}
}

func TestSpecValidate(t *testing.T) {
	if err := exampleSpec().Validate(); err != nil {
		t.Error(err)
	}
	err := Spec{TenantSalt: "t", Engine: "go"}.Validate()
	if !errors.Is(err, ErrBadSpec) {
		t.Fatalf("%v, want ErrBadSpec", err)
	}
	for _, name := range []string{"ModelDigest", "EngineVersion", "Numerics", "Tokenizer", "FormatVersion"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%q does not name %s", err, name)
		}
	}
}

func FuzzParseKey(f *testing.F) {
	f.Add("")
	f.Add(strings.Repeat("ab", 32))
	f.Fuzz(func(t *testing.T, text string) {
		k, err := ParseKey(text)
		if err != nil {
			return
		}
		if !bytes.EqualFold([]byte(k.String()), []byte(text)) {
			t.Errorf("%q reads as %s", text, k)
		}
	})
}

func BenchmarkChainerBlock(b *testing.B) {
	c, _ := NewChainer(Key{1}, 64, nil)
	tokens, keys := make([]int32, 64), make([]Key, 0, 1)
	for b.Loop() {
		keys = c.Append(keys[:0], tokens...)
	}
}
