package examples

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/e2e/node"
	"github.com/weir-dev/weir/e2e/stack"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
	"github.com/weir-dev/weir/streams"
)

// program makes the command of an example with its arguments.
type program func(ctx context.Context, args ...string) *exec.Cmd

// examplesDir is docs/examples.
func examplesDir(t *testing.T) string {
	t.Helper()
	root, err := stack.Root()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, "docs", "examples")
}

// typescript compiles the examples, strictly, and returns how to run one.
func typescript(t *testing.T, name string) program {
	t.Helper()
	dir, err := node.Install(t.Context(), "e2e/examples/npm")
	if errors.Is(err, node.ErrAbsent) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	work := t.TempDir()
	src, err := os.ReadFile(filepath.Join(examplesDir(t), name+".ts"))
	if err == nil {
		err = errors.Join(
			os.WriteFile(filepath.Join(work, name+".ts"), src, 0o600),
			os.WriteFile(filepath.Join(work, "package.json"), []byte(`{"type":"module"}`), 0o600),
			os.Symlink(filepath.Join(dir, "node_modules"), filepath.Join(work, "node_modules")),
		)
	}
	if err != nil {
		t.Fatal(err)
	}
	tsc := exec.CommandContext(t.Context(), "node", "node_modules/typescript/bin/tsc", "--strict", "--skipLibCheck", "--target", "es2022",
		"--module", "nodenext", "--moduleResolution", "nodenext", "--types", "node", name+".ts")
	tsc.Dir = work
	if out, err := tsc.CombinedOutput(); err != nil {
		t.Fatalf("%s.ts: %v\n%s", name, err, out)
	}
	return func(ctx context.Context, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, "node", append([]string{name + ".js"}, args...)...)
		cmd.Dir = work
		return cmd
	}
}

// python runs an example where nats-py is installed.
func python(t *testing.T, name string) program {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "python3", "-c", "import nats.js").CombinedOutput(); err != nil {
		t.Skipf("python3 with nats-py is not installed here: %v %s", err, lastLine(out))
	}
	return func(ctx context.Context, args ...string) *exec.Cmd {
		return exec.CommandContext(ctx, "python3", append([]string{filepath.Join(examplesDir(t), name+".py")}, args...)...)
	}
}

func goProgram(t *testing.T, name string) program {
	t.Helper()
	bin := filepath.Join(t.TempDir(), name)
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin, filepath.Join(examplesDir(t), name+".go"))
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return func(ctx context.Context, args ...string) *exec.Cmd { return exec.CommandContext(ctx, bin, args...) }
}

func lastLine(b []byte) string {
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return lines[len(lines)-1]
}

// TestTurnExamples: each program reads the whole answer once although its connection
// is cut, goes on where an earlier run was, and says that a tool is waited for.
func TestTurnExamples(t *testing.T) {
	s := stack.Start(t, stack.Options{})
	for name, language := range map[string]func(*testing.T, string) program{"ts": typescript, "py": python, "go": goProgram} {
		t.Run(name, func(t *testing.T) {
			run := language(t, "turn")
			tryTurn(t, s, run, "s-"+name)
		})
	}
}

func tryTurn(t *testing.T, s *stack.Stack, run program, session string) {
	t.Helper()
	p, err := newProxy(s.Ready.NATS)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	ref := turns.Ref{Tenant: schemas.DefaultTenant, Session: session, Turn: "t1"}
	args := []string{session, "t1", "Tell me about the weir at the harbour, 고맙습니다"}

	got, before := cutWhile(t, run(ctx, args...), p)
	res, err := s.NewClient(t).Result(ctx, ref)
	if err != nil || res.Status != schemas.StatusOK {
		t.Fatalf("%+v, %v", res, err)
	}
	if got != res.Text {
		t.Errorf("the program read\n%q\nthe answer is\n%q", got, res.Text)
	}
	if p.Total() <= before {
		t.Errorf("%d connections before the cut and %d after it: the program did not reconnect", before, p.Total())
	}
	if n := events(t, s, session, schemas.EventToolWait); n != 1 {
		t.Errorf("%d tool waits are stored", n)
	}
	if n := events(t, s, session, schemas.EventTurn); n != 1 {
		t.Errorf("%d turns are stored", n)
	}

	// A later run has read the first half: of tokens as of bytes, at a frame's end.
	st, err := s.NewClient(t).Resume(ctx, ref, turns.Position{})
	if err != nil {
		t.Fatal(err)
	}
	e, err := st.Next(ctx)
	st.Close()
	if err != nil {
		t.Fatal(err)
	}
	at := e.Position()
	from := []string{strconv.Itoa(at.TextAt)}
	if session == "s-go" {
		from = []string{strconv.Itoa(at.Index), strconv.Itoa(at.TextAt)}
	}
	cmd := run(ctx, append(args, from...)...)
	cmd.Env = append(os.Environ(), "WEIR_NATS="+s.Ready.NATS)
	out, err := cmd.Output()
	if err != nil || string(out) != res.Text[at.TextAt:] {
		t.Errorf("from byte %d on the program read %q, %v; the answer is %q", at.TextAt, out, err, res.Text)
	}
}

// cutWhile runs a program and cuts its connection as soon as it has written
// something. It returns what it wrote and how many connections there were before.
func cutWhile(t *testing.T, cmd *exec.Cmd, p *proxy) (string, int) {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Env = append(os.Environ(), "WEIR_NATS="+p.URL())
	cmd.Stderr = &stderr
	pipe, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	first := make([]byte, 4096)
	n, rerr := pipe.Read(first)
	before := p.Cut()
	rest, err := io.ReadAll(pipe)
	if werr := cmd.Wait(); werr != nil || err != nil || rerr != nil {
		t.Fatalf("%v %v %v\n%s", werr, err, rerr, stderr.String())
	}
	return string(first[:n]) + string(rest), before
}

// events counts what a session said of one kind.
func events(t *testing.T, s *stack.Stack, session string, kind schemas.EventKind) uint64 {
	t.Helper()
	nc, err := s.Connect("e2e-examples")
	if err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	st, err := js.Stream(t.Context(), streams.Agent)
	if err != nil {
		t.Fatal(err)
	}
	subject := streams.StoredSubject(schemas.AgentSubject(schemas.DefaultTenant, session, kind))
	info, err := st.Info(t.Context(), jetstream.WithSubjectFilter(subject))
	if err != nil {
		t.Fatal(err)
	}
	return info.State.Subjects[subject]
}

// TestImageExample: an image that a plain client has stored is taken by a turn, like
// one that weir stored.
func TestImageExample(t *testing.T) {
	run := typescript(t, "image")
	s := stack.Start(t, stack.Options{Args: []string{"--engine", "null", "--null-vision"}})
	file := filepath.Join(t.TempDir(), "a.png")
	if err := os.WriteFile(file, headPNG(640, 480), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := run(ctx, "s1", "t1", file)
	cmd.Env = append(os.Environ(), "WEIR_NATS="+s.Ready.NATS)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if ref, err := turns.ParseMediaRef(strings.TrimSpace(string(out))); err != nil || ref.Width != 640 || ref.Height != 480 {
		t.Errorf("the program's reference is %q: %+v, %v", out, ref, err)
	}
	st, err := s.NewClient(t).Resume(ctx, turns.Ref{Tenant: schemas.DefaultTenant, Session: "s1", Turn: "t1"}, turns.Position{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	res, err := turns.Collect(ctx, st, nil)
	if err != nil || res.Status != schemas.StatusOK {
		t.Fatalf("%+v, %v", res, err)
	}
	if res.Usage.Prompt < 64 {
		t.Errorf("the prompt has %d tokens: the image is not in it", res.Usage.Prompt)
	}
}

// headPNG is a PNG of which only the head is there, which is all that is read of it.
func headPNG(w, h int) []byte {
	be := func(n int) []byte { return []byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)} }
	head := fmt.Appendf(nil, "IHDR%s%s\x08\x02\x00\x00\x00", be(w), be(h))
	return append(append([]byte("\x89PNG\r\n\x1a\n\x00\x00\x00\x0d"), head...), be(int(crc32.ChecksumIEEE(head)))...)
}
