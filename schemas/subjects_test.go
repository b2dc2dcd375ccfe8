package schemas_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-dev/weir/schemas"
)

func TestBuildersParse(t *testing.T) {
	tests := []struct {
		subject string
		root    schemas.Root
		tokens  map[string]string
	}{
		{schemas.AgentSubject("t", "s", schemas.EventTurn), schemas.RootAgent, map[string]string{"tenant": "t", "session": "s", "kind": "turn"}},
		{schemas.ReadySubject("c", "t", "s", "u"), schemas.RootReady, map[string]string{"cell": "c", "tenant": "t", "session": "s", "turn": "u"}},
		{schemas.JobSubject(schemas.StagePrefill, "c", "e", "j"), schemas.RootPrefill, map[string]string{"cell": "c", "executor": "e", "job": "j"}},
		{schemas.JobSubject(schemas.StageDecode, "c", "e", "j"), schemas.RootDecode, map[string]string{"cell": "c", "executor": "e", "job": "j"}},
		{schemas.DoneSubject("c", "j"), schemas.RootDone, map[string]string{"cell": "c", "job": "j"}},
		{schemas.KVSubject("c", "n"), schemas.RootKV, map[string]string{"cell": "c", "node": "n"}},
		{schemas.BranchSubject("c", "n"), schemas.RootBranch, map[string]string{"cell": "c", "node": "n"}},
		{schemas.RoleSubject("c", "e"), schemas.RootRole, map[string]string{"cell": "c", "executor": "e"}},
		{schemas.ReportSubject("c", "e"), schemas.RootReport, map[string]string{"cell": "c", "executor": "e"}},
		{schemas.PlanSubject("c"), schemas.RootPlan, map[string]string{"cell": "c"}},
		{schemas.ModeSubject("c"), schemas.RootMode, map[string]string{"cell": "c"}},
		{schemas.LoadSubject("c"), schemas.RootLoad, map[string]string{"cell": "c"}},
		{schemas.OutSubject("t", "s", "u"), schemas.RootOut, map[string]string{"tenant": "t", "session": "s", "turn": "u"}},
		{schemas.CkptSubject("t", "s", "u"), schemas.RootCkpt, map[string]string{"tenant": "t", "session": "s", "turn": "u"}},
		{schemas.ResultSubject("t", "s", "u"), schemas.RootResult, map[string]string{"tenant": "t", "session": "s", "turn": "u"}},
		{schemas.SnapSubject("lineage", "0"), schemas.RootSnap, map[string]string{"actor": "lineage", "shard": "0"}},
		{schemas.DeadSubject("agent", "t"), schemas.RootDead, map[string]string{"stage": "agent", "tenant": "t"}},
		{schemas.LeaseSubject("c", "router"), schemas.RootLease, map[string]string{"cell": "c", "service": "router"}},
		{schemas.HBSubject("c", "e"), schemas.RootHB, map[string]string{"cell": "c", "executor": "e"}},
		{schemas.CancelSubject("c", "e"), schemas.RootCancel, map[string]string{"cell": "c", "executor": "e"}},
		{schemas.SyncSubject("n"), schemas.RootSync, map[string]string{"node": "n"}},
		{schemas.TokensSubject("c"), schemas.RootTokens, map[string]string{"cell": "c"}},
		{schemas.SessionSubject("c"), schemas.RootSession, map[string]string{"cell": "c"}},
	}
	left := map[schemas.Root]bool{}
	for _, r := range schemas.Roots() {
		left[r] = true
	}
	for _, tt := range tests {
		s, err := schemas.ParseSubject(tt.subject)
		if err != nil {
			t.Errorf("%s: %v", tt.subject, err)
			continue
		}
		got := map[string]string{}
		for _, name := range schemas.Layout(s.Root) {
			got[name] = s.Get(name)
		}
		if diff := cmp.Diff(tt.tokens, got); s.Root != tt.root || diff != "" {
			t.Errorf("%s: root %s, tokens (-want +got):\n%s", tt.subject, s.Root, diff)
		}
		if s.String() != tt.subject {
			t.Errorf("%s comes back as %s", tt.subject, s)
		}
		delete(left, tt.root)
	}
	if len(left) > 0 {
		t.Errorf("no builder was tested for %v", left)
	}
}

func TestParseSubjectRefuses(t *testing.T) {
	long := strings.Repeat("a", schemas.MaxIDLen+1)
	tests := map[string]string{
		"empty":           "",
		"root alone":      "agent",
		"unknown root":    "agents.t.s.turn",
		"other case":      "AGENT.t.s.turn",
		"too few":         "agent.t.s",
		"too many":        "agent.t.s.turn.x",
		"wildcard":        "agent.t.*.turn",
		"full wildcard":   "agent.t.>",
		"empty token":     "agent.t..turn",
		"trailing dot":    "agent.t.s.turn.",
		"space":           "agent.t.s 1.turn",
		"control":         "agent.t.s\x00.turn",
		"non-ASCII":       "agent.t.sé.turn",
		"long token":      "agent.t." + long + ".turn",
		"long subject":    "agent." + strings.Repeat("a.", 500),
		"three digits":    "agent.123.t.s.turn",
		"partition twice": "agent.1.2.t.s.turn",
		"other partition": "ready.1.c.t.s.u",
	}
	for name, in := range tests {
		t.Run(name, func(t *testing.T) {
			if s, err := schemas.ParseSubject(in); !errors.Is(err, schemas.ErrSubject) || s != (schemas.Subject{}) {
				t.Errorf("%q parses to %v, %v; want ErrSubject", in, s, err)
			}
		})
	}
}

// TestPartitionedAgentSubject: streams stores agent messages with a partition
// behind the root; decision code never sees it.
func TestPartitionedAgentSubject(t *testing.T) {
	want, err := schemas.ParseSubject("agent.t.s.turn")
	if err != nil {
		t.Fatal(err)
	}
	for p := range 64 {
		got, err := schemas.ParseSubject(fmt.Sprintf("agent.%d.t.s.turn", p))
		if err != nil || got != want {
			t.Fatalf("partition %d: %v, %v", p, got, err)
		}
	}
	// A tenant may look like a partition; the number of tokens tells them apart.
	if s, err := schemas.ParseSubject("agent.7.s.turn"); err != nil || s.Get("tenant") != "7" {
		t.Errorf("tenant 7 parses to %v, %v", s, err)
	}
	if s, err := schemas.ParseSubject("agent.12.7.s.turn"); err != nil || s.Get("tenant") != "7" {
		t.Errorf("tenant 7 in partition 12 parses to %v, %v", s, err)
	}
}

func TestLayoutIsACopy(t *testing.T) {
	schemas.Layout(schemas.RootAgent)[0] = "x"
	if got := schemas.Layout(schemas.RootAgent)[0]; got != "tenant" {
		t.Errorf("a caller changed the grammar: %q", got)
	}
	if schemas.Layout("nothing") != nil {
		t.Error("an unknown root has a layout")
	}
}

func FuzzParseSubject(f *testing.F) {
	for _, m := range messages() {
		f.Add(m.subject)
	}
	for _, s := range []string{"", ".", "agent.>", "agent.*.s.turn", "agent.07.t.s.turn", "agent.7.t.s", "plan.c0", "snap.a.0", "sync.n", "tokens.c0", "agent.t.s.turn\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		s, err := schemas.ParseSubject(in)
		if err != nil {
			if !errors.Is(err, schemas.ErrSubject) || s != (schemas.Subject{}) {
				t.Fatalf("%q: %v, %v", in, s, err)
			}
			return
		}
		again, err := schemas.ParseSubject(s.String())
		if err != nil || again != s {
			t.Fatalf("%q: %v comes back as %v, %v", in, s, again, err)
		}
		if s.Root != schemas.RootAgent && s.String() != in {
			t.Fatalf("%q is written as %q", in, s)
		}
		for _, name := range schemas.Layout(s.Root) {
			if !schemas.ValidID(s.Get(name)) {
				t.Fatalf("%q: %s is %q", in, name, s.Get(name))
			}
		}
	})
}

// FuzzDecodeMsg: no pair of subject and body panics; what is accepted has a body
// of its kind, what is refused says why with a sentinel.
func FuzzDecodeMsg(f *testing.F) {
	for _, g := range goldens(f) {
		f.Add(g.of.subject, []byte(g.body))
	}
	f.Add("agent.63.t.s.turn", []byte(`{}`))
	f.Add("snap.lineage.0", []byte(`{}`))
	f.Fuzz(func(t *testing.T, subject string, body []byte) {
		m, err := schemas.DecodeMsg(subject, body)
		if err != nil {
			if !isSentinel(err) || m.Kind != schemas.KindNone {
				t.Fatalf("%q: kind %d, %v", subject, m.Kind, err)
			}
			return
		}
		if m.Body() == nil || m.Body().Check() != nil {
			t.Fatalf("%q: kind %d without a valid body", subject, m.Kind)
		}
	})
}

func TestDecodeMsgRefuses(t *testing.T) {
	tests := map[string]struct {
		subject, body string
		want          error
	}{
		"subject":        {"agent.t", `{}`, schemas.ErrSubject},
		"body":           {"cancel.c0.e1", `{"v":1,"job":""}`, schemas.ErrID},
		"turn is not v2": {"agent.t.s.turn", `{"weir":{"v":2}}`, schemas.ErrVersion},
		"unknown event":  {"agent.t.s.shout", `{"v":1}`, schemas.ErrSubject},
		"not UTF-8":      {"agent.t.s.cancel", "{\"v\":1,\"reason\":\"\xff\"}", schemas.ErrMessage},
		"snapshot":       {"snap.lineage.0", `{"v":1}`, schemas.ErrMessage},
		"request":        {"sync.n0", `{"v":1,"page":0}`, schemas.ErrMessage},
		"token request":  {"tokens.c0", `{"v":1}`, schemas.ErrMessage},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m, err := schemas.DecodeMsg(tt.subject, []byte(tt.body))
			if !errors.Is(err, tt.want) || m.Body() != nil {
				t.Errorf("kind %d, %v; want %v", m.Kind, err, tt.want)
			}
		})
	}
}
