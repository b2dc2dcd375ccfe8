package explaincmd

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"github.com/weir-dev/weir/schemas"
)

// TestOutput plays recorded messages through the reports and compares what the
// terminal shows. A script has one message a line:
//
//	results · lineage      results, and lineage's answer
//	agent                  turns of the session; KNOWN(t1) is the digest of t1's result
//	turn TURN [json]       what is printed
//	session [limit=N]
func TestOutput(t *testing.T) {
	datadriven.Walk(t, "testdata/output", func(t *testing.T, path string) {
		f := &facts{tenant: "default", session: "s1", results: map[string]*schemas.Result{}}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			f.notes = nil
			lines := strings.Split(strings.TrimSpace(d.Input), "\n")
			var b strings.Builder
			var err error
			switch d.Cmd {
			case "agent":
				for _, l := range lines {
					h := &heard{seq: uint64(len(f.turns) + 1), at: time.Unix(0, 0), turn: new(schemas.Turn)}
					for id, r := range f.results {
						l = strings.ReplaceAll(l, "KNOWN("+id+")", r.Known())
					}
					if err := schemas.Decode([]byte(l), h.turn); err != nil {
						t.Fatal(err)
					}
					h.id = h.turn.Weir.Turn
					f.turns = append(f.turns, h)
				}
			case "results":
				for _, l := range lines {
					r := new(schemas.Result)
					if err := schemas.Decode([]byte(l), r); err != nil {
						t.Fatalf("%s: %v", l, err)
					}
					f.results[r.Turn], f.session = r, r.Session
				}
			case "lineage":
				f.lineage = new(schemas.SessionReply)
				if err := schemas.Decode([]byte(lines[0]), f.lineage); err != nil {
					t.Fatal(err)
				}
			case "turn":
				rep := turnReport(f, d.CmdArgs[0].Key)
				if d.HasArg("json") {
					e := json.NewEncoder(&b)
					e.SetIndent("", " ")
					err = e.Encode(rep)
					break
				}
				err = printTurn(&b, rep)
			case "session":
				limit := 50
				d.MaybeScanArgs(t, "limit", &limit)
				err = printSession(&b, sessionReport(f, limit))
			default:
				t.Fatalf("unknown command %q", d.Cmd)
			}
			if err != nil {
				t.Fatal(err)
			}
			// A golden file has no white space at the end of its lines.
			out := strings.Split(b.String(), "\n")
			for i := range out {
				out[i] = strings.TrimRight(out[i], " ")
			}
			return strings.Join(out, "\n")
		})
	})
}

// TestAround: text around a byte is valid, bounded, and the two sides meet there.
func TestAround(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "é", "한", "🌊", "\n", "bc "}), 0, 200).Draw(t, "text"), "")
		at := rapid.IntRange(-3, len(text)+3).Draw(t, "at")
		before, after := around(text, at)
		joined := strings.TrimPrefix(before, "…") + strings.TrimSuffix(after, "…")
		switch {
		case !utf8.ValidString(before) || !utf8.ValidString(after):
			t.Fatalf("%q and %q are not valid", before, after)
		case len(joined) > 2*excerpt || !strings.Contains(text, joined):
			t.Fatalf("%q is no short part of the text", joined)
		}
		if at > 0 && at < len(text) && utf8.RuneStart(text[at]) && !strings.HasPrefix(text[at:], strings.TrimSuffix(after, "…")) {
			t.Fatalf("what follows byte %d is not %q", at, after)
		}
	})
}

// TestBounds: whatever a session holds, a terminal is shown a bounded number of
// short lines without control characters.
func TestBounds(t *testing.T) {
	f := &facts{tenant: "default", session: "s1", results: map[string]*schemas.Result{}, lineage: &schemas.SessionReply{Found: true, Left: 9000}}
	for i := range 1000 {
		id := fmt.Sprintf("t%d", i)
		f.lineage.Branches = append(f.lineage.Branches, schemas.BranchInfo{
			ID: fmt.Sprintf("b%d", i), Parent: fmt.Sprintf("b%d", i-1), Tool: strings.Repeat("tool\x1b[2J", 100), Why: strings.Repeat("x\n", 100),
		})
		f.turns = append(f.turns, &heard{id: id, turn: &schemas.Turn{}})
		f.results[id] = &schemas.Result{
			Turn: id, Status: schemas.StatusFailed, Failure: &schemas.Failure{Code: "x", Message: strings.Repeat("why\x07", 1000)},
			Usage: schemas.Usage{Prompt: 10}, Miss: &schemas.Miss{Cause: schemas.MissRewrite, Message: 3, Byte: 5, Detail: strings.Repeat("d\r", 1000)},
		}
		for j := range schemas.MaxSpans {
			f.results[id].Timing.Spans = append(f.results[id].Timing.Spans, schemas.StageSpan{Stage: schemas.SpanDecode, On: strings.Repeat("e", 64), From: int64(j), To: int64(j)})
		}
	}
	var b strings.Builder
	if err := printSession(&b, sessionReport(f, 50)); err != nil {
		t.Fatal(err)
	}
	if err := printTurn(&b, turnReport(f, "t7")); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	if len(lines) > 230 {
		t.Errorf("%d lines", len(lines))
	}
	for _, l := range lines {
		if len([]rune(l)) > 500 || strings.ContainsAny(l, "\x1b\x07\r") {
			t.Fatalf("line of %d characters: %.200q", len(l), l)
		}
	}
}

// TestTree: every branch is listed once, below its parent, whatever lineage says.
func TestTree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var in []schemas.BranchInfo
		for i := range rapid.IntRange(0, 12).Draw(t, "branches") {
			in = append(in, schemas.BranchInfo{ID: fmt.Sprint("b", i), Parent: fmt.Sprint("b", rapid.IntRange(0, 14).Draw(t, "parent"))})
		}
		depth := map[string]int{}
		for _, b := range tree(in) {
			if _, twice := depth[b.ID]; twice {
				t.Fatalf("%s twice", b.ID)
			}
			if p, ok := depth[b.Parent]; b.Depth > 0 && (!ok || p != b.Depth-1) {
				t.Fatalf("%s at depth %d, its parent at %d, %v", b.ID, b.Depth, p, ok)
			}
			depth[b.ID] = b.Depth
		}
		if len(depth) != len(in) {
			t.Fatalf("%d of %d branches", len(depth), len(in))
		}
	})
}
