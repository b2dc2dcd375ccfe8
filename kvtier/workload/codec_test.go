package workload

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func example() *Schedule {
	return &Schedule{
		Name: "two", Seed: 1<<64 - 1,
		Sessions: []Session{{"s0", "t0"}, {"s1", "t1"}},
		Calls: []Call{
			{
				At: 5, For: 7, In: 200, Out: 40, Prompt: []Run{{Global, 2}, {0, 1}}, Finish: FinishTools, Tool: "shell", Dropped: 12,
				Say: []Say{{Kind: "tool_wait", After: 3, Tool: "shell", Expect: 9}, {Kind: "branch_fork", After: 3, Line: 1}},
			},
			{At: 9, Session: 1, Line: 1, In: 63, Say: []Say{{Kind: "session_end"}}},
		},
	}
}

func TestCodecKeepsEverything(t *testing.T) {
	var b bytes.Buffer
	want := example()
	if err := Encode(&b, want); err != nil {
		t.Fatal(err)
	}
	got, err := Decode(&b)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestEncodeRefuses(t *testing.T) {
	tests := map[string]struct {
		spoil func(s *Schedule)
		want  string
	}{
		"blocks":       {func(s *Schedule) { s.Calls[0].In = 100 }, "3 blocks for 100 tokens"},
		"session":      {func(s *Schedule) { s.Calls[1].Session = 2 }, "session 2 of 2"},
		"order":        {func(s *Schedule) { s.Calls[1].At = 4 }, "before the one before it"},
		"session name": {func(s *Schedule) { s.Sessions[0].ID = "a.b" }, "session 0"},
		"tenant":       {func(s *Schedule) { s.Sessions[0].Tenant = "" }, "tenant"},
		"kind":         {func(s *Schedule) { s.Calls[0].Say[0].Kind = "turn" }, `event 0 is "turn"`},
		"order of say": {func(s *Schedule) { s.Calls[0].Say[1].After = 1 }, "event 1 comes before event 0"},
		"negative":     {func(s *Schedule) { s.Calls[0].Say[0].Expect = -1 }, "expects -1 ns"},
		"line":         {func(s *Schedule) { s.Calls[0].Say[1].Line = MaxLines }, "about line 65536"},
		"tokens":       {func(s *Schedule) { s.Calls[0].Out = MaxTokens + 1 }, "at most 16777216"},
		"drops":        {func(s *Schedule) { s.Calls[0].Dropped = 41 }, "drops more than its answer"},
	}
	for name, tt := range tests {
		s := example()
		tt.spoil(s)
		var b bytes.Buffer
		err := Encode(&b, s)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q in it", name, err, tt.want)
		}
		if b.Len() > 0 {
			t.Errorf("%s: %d bytes were written", name, b.Len())
		}
	}
}

func TestDecodeSaysWhatIsWrong(t *testing.T) {
	var b bytes.Buffer
	if err := Encode(&b, example()); err != nil {
		t.Fatal(err)
	}
	good := b.String()
	tests := map[string]struct{ in, want string }{
		"empty":         {"", "line 1: the file ends where the head is due"},
		"other format":  {strings.Replace(good, Format, "x", 1), `line 1: its format is "x"`},
		"cut":           {good[:len(good)-10], "line 5: a call"},
		"short":         {strings.Join(strings.SplitAfter(good, "\n")[:4], ""), "line 5: the file ends where a call is due"},
		"more":          {good + "{}\n", "line 6: the head announces 2 calls"},
		"unknown field": {strings.Replace(good, `"in":`, `"inn":`, 1), `line 4: a call: json: unknown field "inn"`},
		"two in a line": {strings.Replace(good, "\n", "{}\n", 1), "line 1: the head is followed by something else"},
		"many calls":    {strings.Replace(good, `"calls":2`, `"calls":99999999`, 1), "line 1: 99999999 calls"},
		"finish":        {strings.Replace(good, `"tools"`, `"length"`, 1), `line 4: finish is "length"`},
		"long line":     {strings.Repeat("a", MaxLine+1), "line 1: it is longer than"},
		"number":        {strings.Replace(good, `"in":200`, `"in":2147483648`, 1), "line 4"},
		"check":         {strings.Replace(good, `"in":200`, `"in":300`, 1), "3 blocks for 300 tokens"},
	}
	for name, tt := range tests {
		s, err := Decode(strings.NewReader(tt.in))
		if s != nil || !errors.Is(err, ErrSchedule) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q in it", name, err, tt.want)
		}
	}
}

// TestCodecTurnsBack: whatever can be written is read back, and writes the same bytes.
func TestCodecTurnsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &Schedule{Name: rapid.String().Draw(t, "name"), Seed: rapid.Uint64().Draw(t, "seed")}
		for range rapid.IntRange(1, 3).Draw(t, "sessions") {
			s.Sessions = append(s.Sessions, Session{rapid.StringMatching(`[a-z0-9]{1,8}`).Draw(t, "id"), "t"})
		}
		at := int64(0)
		for range rapid.IntRange(0, 8).Draw(t, "calls") {
			at += rapid.Int64Range(0, 1<<40).Draw(t, "gap")
			n := rapid.Int32Range(0, 4).Draw(t, "runs")
			c := Call{
				At: at, For: rapid.Int64Range(0, 1<<40).Draw(t, "for"), Session: rapid.Int32Range(0, int32(len(s.Sessions)-1)).Draw(t, "session"),
				Out: rapid.Int32Range(0, 1<<20).Draw(t, "out"), Tool: rapid.String().Draw(t, "tool"),
			}
			for range n {
				r := Run{rapid.Int32Range(0, 1<<31-20).Draw(t, "from"), rapid.Int32Range(1, 9).Draw(t, "n")}
				c.Prompt, c.In = append(c.Prompt, r), c.In+64*r.N
			}
			s.Calls = append(s.Calls, c)
		}
		var a, b bytes.Buffer
		if err := Encode(&a, s); err != nil {
			t.Fatal(err)
		}
		first := bytes.Clone(a.Bytes())
		got, err := Decode(&a)
		if err != nil {
			t.Fatal(err)
		}
		if err := Encode(&b, got); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(first, b.Bytes()) {
			t.Errorf("wrote\n%s\nthen\n%s", first, b.Bytes())
		}
	})
}

func FuzzDecode(f *testing.F) {
	var b bytes.Buffer
	if err := Encode(&b, example()); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte(`{"format":"weir.schedule.v1","sessions":1,"calls":0}` + "\n" + `{"id":"a","tenant":"b"}`))
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, in []byte) {
		s, err := Decode(bytes.NewReader(in))
		if err != nil {
			if s != nil || !errors.Is(err, ErrSchedule) {
				t.Fatalf("%v with a schedule or without its kind", err)
			}
			return
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := Encode(&b, s); err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
	})
}
