package nodes

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weir-dev/weir/e2e/stack"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/erase"
)

// start runs two executors that do both phases, on one node or on a node each.
func start(t *testing.T, engine string, nodes int, args ...string) *stack.Stack {
	t.Helper()
	return launch(t, engine, nodes, append([]string{"--mixed", "2"}, args...))
}

func launch(t *testing.T, engine string, nodes int, args []string) *stack.Stack {
	t.Helper()
	if engine == "llama" && stack.Libraries() == "" {
		t.Skip("the llama.cpp libraries are not installed; `make engine` installs them")
	}
	path, err := stack.ModelFile("small")
	if err != nil {
		t.Fatal(err)
	}
	return stack.Start(t, stack.Options{Args: append([]string{
		"--engine", engine, "--model", path, "--nodes", strconv.Itoa(nodes), "--ctx", "4096", "--slots", "4", "--kv-mem", "512MiB",
	}, args...)})
}

// only gives one executor all the work.
func only(t *testing.T, s *stack.Stack, id string) {
	t.Helper()
	roles := map[string]schemas.Role{"m0": schemas.RoleStandby, "m1": schemas.RoleStandby}
	roles[id] = schemas.RoleMixed
	if err := s.SetRoles(t.Context(), roles); err != nil {
		t.Fatal(err)
	}
}

// turn runs a turn and checks where it ran.
func turn(t *testing.T, c *session, on, message string, most int64) *schemas.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	r, err := c.turn(ctx, message, most, nil)
	if err != nil {
		t.Fatal(err)
	}
	if on != "" && r.DecodeOn != on {
		t.Fatalf("the turn ran on %s, not on %s", r.DecodeOn, on)
	}
	return r
}

func share(r *schemas.Result) float64 { return float64(r.Usage.Cached) / float64(r.Usage.Prompt) }

// TestMove: a session that goes on at another node finds its context, and gets the
// answer that it gets where all executors share one memory.
func TestMove(t *testing.T) {
	for _, engine := range []string{"go", "llama"} {
		t.Run(engine, func(t *testing.T) {
			var answers [2][]*schemas.Result
			for i, nodes := range []int{1, 2} {
				t.Run(fmt.Sprintf("%d nodes", nodes), func(t *testing.T) {
					s := start(t, engine, nodes)
					c := &session{c: s.NewClient(t), id: "move"}
					only(t, s, "m0")
					first := turn(t, c, "m0", text("harbours", 1500), 100)
					only(t, s, "m1")
					second := turn(t, c, "m1", "And what follows from that?", 32)
					only(t, s, "m0")
					third := turn(t, c, "m0", "And from that?", 32)
					t.Logf("cached %.3f of %d tokens, then %.3f of %d", share(second), second.Usage.Prompt, share(third), third.Usage.Prompt)
					if share(second) < 0.9 || share(third) < 0.9 {
						t.Errorf("the second turn found %.3f of its prompt, the third %.3f, want 0.9", share(second), share(third))
					}
					answers[i] = []*schemas.Result{first, second, third}
				})
			}
			if len(answers[0]) != len(answers[1]) {
				t.Fatal("the runs cannot be compared")
			}
			for i := range answers[0] {
				if !slices.Equal(answers[0][i].Tokens, answers[1][i].Tokens) {
					t.Errorf("turn %d: the answer is %q on one node and %q on two", i+1, answers[0][i].Text, answers[1][i].Text)
				}
			}
		})
	}
}

// TestApart: nodes that give each other nothing compute what TestMove finds.
func TestApart(t *testing.T) {
	s := start(t, "go", 2, "--peer-addr", "off")
	c := &session{c: s.NewClient(t), id: "apart"}
	only(t, s, "m0")
	turn(t, c, "m0", text("harbours", 800), 16)
	only(t, s, "m1")
	if r := turn(t, c, "m1", "And what follows from that?", 8); r.Usage.Cached != 0 {
		t.Errorf("%d tokens were found on a node that nobody gave anything", r.Usage.Cached)
	}
}

// TestRouterStarts: a router that starts asks the nodes what they hold, so a session
// that moves then finds its context.
func TestRouterStarts(t *testing.T) {
	s := start(t, "go", 2)
	c := &session{c: s.NewClient(t), id: "restart"}
	only(t, s, "m0")
	turn(t, c, "m0", text("harbours", 1200), 100)
	s.KillAndWait(t, "control", syscall.SIGKILL)
	only(t, s, "m1")
	// Lineage names blocks from the first heartbeat on that it hears, half a second later
	// at most. What is rendered before is computed anew on another node. When it has
	// rendered a turn it listens; what both executors say from then on it hears.
	turn(t, &session{c: c.c, id: "other"}, "m1", "Hello", 4)
	beats, err := s.Heartbeats()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = beats.Close() }() // ends with the stack
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err = beats.Wait(ctx, "both executors", func(m map[string]schemas.Heartbeat) bool { return len(m) == 2 })
	if err != nil {
		t.Fatal(err)
	}
	if r := turn(t, c, "m1", "And what follows from that?", 8); share(r) < 0.9 {
		t.Errorf("%.2f of the prompt was found", share(r))
	}
}

// TestErase: an erased session leaves no block on any node that it was on.
func TestErase(t *testing.T) {
	s := start(t, "go", 2)
	c := &session{c: s.NewClient(t), id: "gone"}
	only(t, s, "m0")
	turn(t, c, "m0", text("harbours", 800), 80)
	only(t, s, "m1")
	turn(t, c, "m1", "And what follows from that?", 80)
	for _, node := range []string{"n0", "n1"} {
		if held(t, s, node) == 0 {
			t.Fatalf("%s holds nothing", node)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	rep, err := erase.Session(ctx, erase.Options{Conn: c.c.Conn(), Cell: s.Ready.Cell}, "default", "gone")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(rep.Nodes, []string{"n0", "n1"}) {
		t.Errorf("asked nodes %v", rep.Nodes)
	}
	for _, node := range []string{"n0", "n1"} {
		if n := held(t, s, node); n != 0 {
			t.Errorf("%s holds %d extents still", node, n)
		}
	}
}

// held is the number of extents that a node lists on its first page.
func held(t *testing.T, s *stack.Stack, node string) int {
	t.Helper()
	nc, err := s.Connect("e2e-nodes")
	if err != nil {
		t.Fatal(err)
	}
	body, err := schemas.Encode(&schemas.SyncRequest{Header: schemas.H()})
	if err != nil {
		t.Fatal(err)
	}
	m, err := nc.Request(schemas.SyncSubject(node), body, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	var r schemas.SyncReply
	if err := schemas.Decode(m.Data, &r); err != nil {
		t.Fatal(err)
	}
	return len(r.Extents)
}

// TestAcross: one node computes prompts and the other one answers. No prompt is
// computed twice.
func TestAcross(t *testing.T) {
	var answers [2][]int32
	for i, nodes := range []int{1, 2} {
		s := launch(t, "go", nodes, []string{"--prefill", "1", "--decode", "1"})
		r := turn(t, &session{c: s.NewClient(t), id: "across"}, "d0", text("harbours", 1200), 40)
		if r.PrefillOn != "p0" {
			t.Errorf("%d nodes: the prompt was computed on %s", nodes, r.PrefillOn)
		}
		for _, span := range r.Timing.Spans {
			if span.Stage == schemas.SpanPrefill && span.On == "d0" {
				t.Errorf("%d nodes: d0 computed blocks of the prompt: %+v", nodes, r.Timing.Spans)
			}
		}
		answers[i] = r.Tokens
	}
	if !slices.Equal(answers[0], answers[1]) {
		t.Errorf("the answer is %v on one node and %v across two", answers[0], answers[1])
	}
}

// TestHotPrefix: sessions that begin with the same long text run on both nodes at
// once. It is computed on one and copied to the other.
func TestHotPrefix(t *testing.T) {
	s := start(t, "go", 2)
	client := s.NewClient(t)
	system := text("the rules of this house", 1200)
	turn(t, &session{c: client, id: "first"}, "", system+"Begin.", 4)
	const sessions = 8
	results := make([]*schemas.Result, sessions)
	errs := make([]error, sessions)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for i := range sessions {
		wg.Go(func() {
			c := &session{c: client, id: fmt.Sprint("s", i)}
			results[i], errs[i] = c.turn(ctx, system+fmt.Sprintf("Task %d.", i), 64, nil)
		})
	}
	wg.Wait()
	on := map[string]int{}
	for i, r := range results {
		if errs[i] != nil {
			t.Fatal(errs[i])
		}
		on[r.DecodeOn]++
		if share(r) < 0.7 { // what two stops enclose is not brought in
			t.Errorf("session %d found %.2f of its prompt on %s", i, share(r), r.DecodeOn)
		}
	}
	t.Logf("sessions by executor: %v", on)
	if len(on) != 2 {
		t.Errorf("all sessions ran on one node: %v", on)
	}
}

// TestNodesEnd: whatever process of a node ends while its blocks are wanted, or while
// a turn runs, the turns are answered as if nothing had happened.
func TestNodesEnd(t *testing.T) {
	s := start(t, "go", 2)
	c := &session{c: s.NewClient(t), id: "end"}
	plain := &session{c: c.c, id: "plain"} // the same turns while nothing ends
	only(t, s, "m0")
	message := text("ends", 1000)
	turn(t, c, "m0", message, 64)
	turn(t, plain, "m0", message, 64)
	want := turn(t, plain, "m0", "Go on.", 200)

	// The tier process that would give the blocks is gone.
	only(t, s, "m1")
	old, err := s.Kill("tier-n0", syscall.SIGSTOP)
	if err != nil {
		t.Fatal(err)
	}
	stopped := &session{c: c.c, id: "stopped"}
	turn(t, stopped, "m1", message, 8)
	if _, err := s.Kill("tier-n0", syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}

	// Then the executor is, in the middle of a turn.
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	got, err := c.turn(ctx, "Go on.", 200, func() {
		if _, err := s.Kill("m1", syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.Tokens, want.Tokens) {
		t.Errorf("the answer is %q, without the ends %q", got.Text, want.Text)
	}
	if _, err := s.WaitRestarted(ctx, "tier-n0", old); err != nil {
		t.Fatal(err)
	}

	// All is as before once they run again.
	only(t, s, "m0")
	r := turn(t, c, "m0", "And now?", 8)
	if share(r) < 0.9 {
		t.Errorf("%.2f of the prompt was found", share(r))
	}
}
