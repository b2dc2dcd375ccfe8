package nodes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/weir-dev/weir/e2e/stack"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/explaincmd"
	"github.com/weir-dev/weir/services/tier"
)

// weir runs the program and returns what it printed and its exit code.
func weir(t *testing.T, s *stack.Stack, args ...string) (out, errOut string, code int) {
	t.Helper()
	bin, err := stack.Binary()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, append(args, "--nats", s.Ready.NATS)...)
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return o.String(), e.String(), cmd.ProcessState.ExitCode()
}

// explain asks for a report in JSON.
func explain[T any](t *testing.T, s *stack.Stack, args ...string) (rep T) {
	t.Helper()
	out, errOut, code := weir(t, s, append([]string{"explain", "-o", "json"}, args...)...)
	if code != 0 {
		t.Fatalf("explain %v: exit code %d: %s", args, code, errOut)
	}
	if err := json.Unmarshal([]byte(out), &rep); err != nil {
		t.Fatalf("explain %v: %v in %s", args, err, out)
	}
	return rep
}

// TestExplainBlock: the end of a session's context is named by its key, and every node
// says whether it is there, who holds it, and why it would go or went.
func TestExplainBlock(t *testing.T) {
	s := start(t, "go", 2)
	c := &session{c: s.NewClient(t), id: "where"}
	only(t, s, "m0")
	turn(t, c, "m0", text("harbours", 800), 80)
	key := ""
	await(t, "the end of the context on n0", func() bool {
		for _, n := range explain[explaincmd.SessionReport](t, s, "session", c.id).Memory {
			for _, b := range n.Branches {
				if n.Node == "n0" && b.Resident > 0 && b.Resident == b.Blocks {
					key = b.Tail
				}
			}
		}
		return key != ""
	})
	at := func(node string) *tier.Block {
		for _, n := range explain[explaincmd.BlockReport](t, s, "block", key).Nodes {
			if n.Node == node && n.Order == "weir" && len(n.Blocks) == 1 {
				return &n.Blocks[0]
			}
		}
		t.Fatalf("%s says nothing of block %s", node, key)
		return nil
	}
	await(t, "a waiting branch", func() bool { return at("n0").Class == "waiting" })
	here := at("n0")
	if !here.Leaf || !here.Whole || here.Medium != schemas.MediumHost || here.Why == "" ||
		len(here.Holders) != 1 || here.Holders[0].Session != c.id || here.Holders[0].State != schemas.BranchUserWaiting {
		t.Errorf("on n0 the block is %+v", here)
	}
	if b := at("n1"); b.Medium != "" {
		t.Errorf("on n1, where nothing ran, the block is %+v", b)
	}
	out, errOut, code := weir(t, s, "explain", "block", key)
	for _, want := range []string{"node n0", "node n1", key + ": in host memory", key + ": not here", "branch main of session where"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("exit code %d, %s, %q is not said:\n%s", code, errOut, want, out)
		}
	}

	out, errOut, code = weir(t, s, "doctor", "--engine", "null", "--dir", t.TempDir())
	if code != 0 || !strings.Contains(out, "tier n0") || !strings.Contains(out, "tier n1") {
		t.Errorf("doctor: exit code %d, %s, and nothing of both nodes:\n%s", code, errOut, out)
	}

	// It moves with the session.
	only(t, s, "m1")
	turn(t, c, "m1", "And what follows from that?", 8)
	await(t, "the block on n1", func() bool { return at("n1").Medium == schemas.MediumHost })

	// And goes with it.
	if _, errOut, code := weir(t, s, "session", "delete", c.id); code != 0 {
		t.Fatalf("session delete: exit code %d: %s", code, errOut)
	}
	for _, node := range []string{"n0", "n1"} {
		if b := at(node); b.Medium != "" || b.Rule == "" || b.GoneNS == 0 {
			t.Errorf("on %s the erased block is %+v", node, b)
		}
	}

	for name, tt := range map[string]struct {
		args []string
		code int
		want string
	}{
		"no key":     {[]string{"explain", "block", "abc"}, 2, `"abc"`},
		"other cell": {[]string{"explain", "block", key, "--cell", "c9"}, 1, "c9"},
		"erased":     {[]string{"explain", "session", c.id}, 1, "was deleted"},
	} {
		if _, errOut, code := weir(t, s, tt.args...); code != tt.code || !strings.Contains(errOut, tt.want) {
			t.Errorf("%s: exit code %d: %s", name, code, errOut)
		}
	}
}

// await repeats a question until it is true.
func await(t *testing.T, what string, f func() bool) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	end := time.NewTimer(time.Minute)
	defer end.Stop()
	for !f() {
		select {
		case <-tick.C:
		case <-end.C:
			t.Fatalf("%s did not come about within a minute", what)
		}
	}
}
