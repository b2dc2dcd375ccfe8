package schemas_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-dev/weir/schemas"
)

// message is one message type of the contract and where it travels.
type message struct {
	name    string // of its golden and its JSON Schema
	new     func() schemas.Message
	subject string       // an example; empty for replies and requests that DecodeMsg does not read
	kind    schemas.Kind // what DecodeMsg makes of it on that subject
}

// messages lists every message type; TestEveryMessageIsListed keeps it complete.
func messages() []message {
	return []message{
		{"assignment", func() schemas.Message { return new(schemas.Assignment) }, schemas.RoleSubject("c0", "e1"), schemas.KindAssignment},
		{"branch_change", func() schemas.Message { return new(schemas.BranchChange) }, schemas.BranchSubject("c0", "n0"), schemas.KindBranch},
		{"cancel", func() schemas.Message { return new(schemas.Cancel) }, schemas.CancelSubject("c0", "e1"), schemas.KindCancel},
		{"checkpoint", func() schemas.Message { return new(schemas.Checkpoint) }, schemas.CkptSubject("default", "s-1", "t-0007"), schemas.KindCheckpoint},
		{"dead", func() schemas.Message { return new(schemas.Dead) }, schemas.DeadSubject("agent", "default"), schemas.KindDead},
		{"done", func() schemas.Message { return new(schemas.Done) }, schemas.DoneSubject("c0", "0123456789abcdef0123"), schemas.KindDone},
		{"event", func() schemas.Message { return new(schemas.Event) }, schemas.AgentSubject("default", "s-1", schemas.EventToolWait), schemas.KindEvent},
		{"frame", func() schemas.Message { return new(schemas.Frame) }, schemas.OutSubject("default", "s-1", "t-0007"), schemas.KindFrame},
		{"heartbeat", func() schemas.Message { return new(schemas.Heartbeat) }, schemas.HBSubject("c0", "e1"), schemas.KindHeartbeat},
		{"job", func() schemas.Message { return new(schemas.Job) }, schemas.JobSubject(schemas.StageDecode, "c0", "e2", "0123456789abcdef0123"), schemas.KindJob},
		{"kv_notice", func() schemas.Message { return new(schemas.KVNotice) }, schemas.KVSubject("c0", "n0"), schemas.KindKV},
		{"lease", func() schemas.Message { return new(schemas.Lease) }, schemas.LeaseSubject("c0", "router"), schemas.KindLease},
		{"load", func() schemas.Message { return new(schemas.Load) }, schemas.LoadSubject("c0"), schemas.KindLoad},
		{"planner_mode", func() schemas.Message { return new(schemas.PlannerMode) }, schemas.ModeSubject("c0"), schemas.KindMode},
		{"plan", func() schemas.Message { return new(schemas.Plan) }, "plan.c0", schemas.KindPlan},
		{"ready", func() schemas.Message { return new(schemas.Ready) }, schemas.ReadySubject("c0", "default", "s-1", "t-0007"), schemas.KindReady},
		{"render_reply", func() schemas.Message { return new(schemas.RenderReply) }, "", schemas.KindNone},
		{"render_request", func() schemas.Message { return new(schemas.RenderRequest) }, "", schemas.KindNone},
		{"report", func() schemas.Message { return new(schemas.Report) }, schemas.ReportSubject("c0", "e1"), schemas.KindReport},
		{"result", func() schemas.Message { return new(schemas.Result) }, schemas.ResultSubject("default", "s-1", "t-0007"), schemas.KindResult},
		{"session_reply", func() schemas.Message { return new(schemas.SessionReply) }, "", schemas.KindNone},
		{"session_request", func() schemas.Message { return new(schemas.SessionRequest) }, schemas.SessionSubject("c0"), schemas.KindSessionRequest},
		{"snap", func() schemas.Message { return new(schemas.Snap) }, "", schemas.KindNone},
		{"sync_reply", func() schemas.Message { return new(schemas.SyncReply) }, "", schemas.KindNone},
		{"sync_request", func() schemas.Message { return new(schemas.SyncRequest) }, "", schemas.KindNone},
		{"tokens_reply", func() schemas.Message { return new(schemas.TokensReply) }, "", schemas.KindNone},
		{"tokens_request", func() schemas.Message { return new(schemas.TokensRequest) }, schemas.TokensSubject("c0"), schemas.KindTokensRequest},
		{"turn", func() schemas.Message { return new(schemas.Turn) }, schemas.AgentSubject("default", "s-1", schemas.EventTurn), schemas.KindTurn},
	}
}

func messageNamed(t testing.TB, name string) message {
	t.Helper()
	for _, m := range messages() {
		if m.name == name {
			return m
		}
	}
	t.Fatalf("no message type is named %q", name)
	return message{}
}

// golden is a file of testdata: <message>.json or <message>_<variant>.json.
type golden struct {
	file string
	of   message
	body []byte
}

// goldens reads testdata. A variant's name may extend another message's name
// (tokens_reply, tokens_reply_error), so the longest match decides.
func goldens(t testing.TB) []golden {
	t.Helper()
	files, err := filepath.Glob("testdata/*.json")
	if err != nil {
		t.Fatal(err)
	}
	var out []golden
	for _, f := range files {
		base := strings.TrimSuffix(filepath.Base(f), ".json")
		best := ""
		for _, m := range messages() {
			if (base == m.name || strings.HasPrefix(base, m.name+"_")) && len(m.name) > len(best) {
				best = m.name
			}
		}
		if best == "" {
			t.Fatalf("%s belongs to no message type", f)
		}
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, golden{file: f, of: messageNamed(t, best), body: b})
	}
	return out
}

// TestEveryMessageIsListed finds message types by their Check method in the
// source, so that a type that is added cannot go without golden and schema.
func TestEveryMessageIsListed(t *testing.T) {
	var want []string
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil && fn.Name.Name == "Check" {
				want = append(want, fn.Recv.List[0].Type.(*ast.StarExpr).X.(*ast.Ident).Name)
			}
		}
	}
	var got []string
	for _, m := range messages() {
		got = append(got, typeName(m))
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("messages() of registry_test.go is out of step with the types that have Check (-source +list):\n%s", diff)
	}
}

func TestEveryMessageHasGoldenAndSchema(t *testing.T) {
	for _, m := range messages() {
		for _, f := range []string{"testdata/" + m.name + ".json", "jsonschema/" + m.name + ".json"} {
			if _, err := fs.Stat(os.DirFS("."), f); err != nil {
				t.Errorf("%s: %v", m.name, err)
			}
		}
	}
}
